//! Trees as JSON.
//!
//! ```text
//! {"format":"ansc hist 1","features":164,"trees":[[[3,1.5,2],0.25,-0.125], ..]}
//! ```

use serde::{Deserialize, Serialize};

use super::super::Parts;
use super::Trees;
use super::tree::Tree;

/// Why a text is no model of trees.
#[derive(Debug, thiserror::Error)]
pub enum TreesError {
    /// The text is no JSON of trees.
    #[error("not a cost model: {0}")]
    Json(#[from] serde_json::Error),
    /// The text is of another format.
    #[error("a cost model of format `{0}`, not `{1}`")]
    Format(String, &'static str),
    /// The trees were grown on other rows.
    #[error("a cost model over {0} numbers per row; this compiler has {1}")]
    Features(usize, usize),
    /// A tree refers to a node that it does not have, or to itself.
    #[error("tree {0} of the cost model is not a tree")]
    Tree(usize),
}

/// A kind of model, and how many numbers its rows have.
#[derive(Clone, Copy)]
pub(in crate::model) struct Format {
    pub(in crate::model) name: &'static str,
    pub(in crate::model) width: usize,
}

#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    features: usize,
    trees: Vec<Tree>,
}

impl Trees {
    /// The trees as data; there are no weights.
    pub(in crate::model) fn to_parts(&self, format: Format) -> Parts {
        let trees = self.all.clone();
        let file = File { format: format.name.into(), features: format.width, trees };
        let about = serde_json::to_value(&file).expect("trees of finite numbers can be written");
        Parts { about, numbers: vec![] }
    }

    /// The trees of what [`Trees::to_parts`] wrote.
    pub(in crate::model) fn from_parts(parts: &Parts, format: Format) -> Result<Trees, TreesError> {
        let file: File = serde_json::from_value(parts.about.clone())?;
        if file.format != format.name {
            return Err(TreesError::Format(file.format, format.name));
        }
        if file.features != format.width {
            return Err(TreesError::Features(file.features, format.width));
        }
        match file.trees.iter().position(|tree| !tree.is_sound(format.width)) {
            Some(unsound) => Err(TreesError::Tree(unsound)),
            None => Ok(Trees { all: file.trees, base: None }),
        }
    }
}
