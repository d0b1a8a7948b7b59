//! Models as JSON.
//!
//! ```text
//! {"format":"ansc hist 1","features":164,"trees":[[[3,1.5,2],0.25,-0.125], ..]}
//! ```

use ansc_sketch::features::LEN;
use serde::{Deserialize, Serialize};

use super::tree::Tree;
use super::{Config, Hist, Parts};

const FORMAT: &str = "ansc hist 1";

/// Why a text is no model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The text is no JSON of a model.
    #[error("not a cost model: {0}")]
    Json(#[from] serde_json::Error),
    /// The text is of another format.
    #[error("a cost model of format `{0}`, not `{FORMAT}`")]
    Format(String),
    /// The model was trained on other features.
    #[error("a cost model over {0} numbers per row; this compiler has {LEN}")]
    Features(usize),
    /// A tree refers to a node that it does not have, or to itself.
    #[error("tree {0} of the cost model is not a tree")]
    Tree(usize),
}

#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    features: usize,
    trees: Vec<Tree>,
}

impl Hist {
    /// The trees as text, which [`Hist::from_json`] reads.
    pub fn to_json(&self) -> String {
        self.to_parts().about.to_string()
    }

    /// With the default configuration for further training.
    pub fn from_json(text: &str) -> Result<Hist, ModelError> {
        let about = serde_json::from_str(text)?;
        Hist::from_parts(&Parts { about, numbers: vec![] })
    }

    /// The trees as data; there are no weights.
    pub(super) fn to_parts(&self) -> Parts {
        let file = File { format: FORMAT.into(), features: LEN, trees: self.trees.clone() };
        let about = serde_json::to_value(&file).expect("trees of finite numbers can be written");
        Parts { about, numbers: vec![] }
    }

    /// As [`Hist::from_json`], from what a file of models holds.
    pub(in crate::model) fn from_parts(parts: &Parts) -> Result<Hist, ModelError> {
        Hist::of_config(parts, Config::default())
    }

    /// The same of a model that learns as the configuration says.
    pub(in crate::model) fn of_config(parts: &Parts, config: Config) -> Result<Hist, ModelError> {
        let file: File = serde_json::from_value(parts.about.clone())?;
        if file.format != FORMAT {
            return Err(ModelError::Format(file.format));
        }
        if file.features != LEN {
            return Err(ModelError::Features(file.features));
        }
        match file.trees.iter().position(|tree| !tree.is_sound()) {
            Some(unsound) => Err(ModelError::Tree(unsound)),
            None => Ok(Hist { trees: file.trees, ..Hist::new(config) }),
        }
    }
}
