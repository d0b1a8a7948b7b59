//! How good a program is, told from its features.
//!
//! A [`CostModel`] learns from measured programs and scores others: more is better. Scores of one task are
//! comparable; they predict the program's share of the task's best throughput. The models:
//!
//! | name | what |
//! |---|---|
//! | `hist` | boosted trees over histograms, the default (`hist`) |
//! | `gbdt` | boosted trees of the crate `gbdt` (`gbdt`) |
//! | `mlp` | the network of TenSet, which learns to rank (`mlp`) |
//! | `random` | a number drawn from the program's features (`random`) |
//!
//! Trees score each row of the features, and a program by the sum over its rows, as in Ansor: the loss of a
//! program with throughput `y` is `y * (sum of scores - y)^2`, so that what is fast counts most.

pub mod gbdt;
pub mod hist;
pub mod mlp;
pub mod quality;
pub mod random;
mod table;
pub mod warm_up;

#[cfg(test)]
mod simulated;

use std::sync::{Arc, RwLock};

use ansc_sketch::Features;

pub use gbdt::Gbdt;
pub use hist::Hist;
pub use mlp::Mlp;
pub use quality::Quality;
pub use random::Random;
pub use table::throughputs;
pub use warm_up::WarmUp;

/// Tells good programs from bad ones before they are measured, from what was measured before.
pub trait CostModel: Send + Sync {
    /// As in [`NAMES`], for models that [`create`] makes.
    fn name(&self) -> &'static str;
    /// Forgets what it has learned and learns from all of `samples`.
    fn train(&mut self, samples: &[Sample]);
    /// A score for each program, always finite. The same for the same samples and program.
    fn predict(&self, programs: &[&Features]) -> Vec<f32>;
    /// False while its scores are random.
    fn is_informed(&self) -> bool {
        true
    }
}

/// A model that several searches ask and one loop teaches.
pub type SharedModel = Arc<RwLock<Box<dyn CostModel>>>;

/// A measured program.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Programs of the same task compute the same; only they are compared.
    pub task: usize,
    /// The program as the model sees it.
    pub features: Arc<Features>,
    /// Of one run; `None` if it failed.
    pub seconds: Option<f64>,
}

/// Names of the models that [`create`] makes.
pub const NAMES: [&str; 4] = ["hist", "gbdt", "mlp", "random"];

/// An untrained model; `None` if there is none of that name.
pub fn create(name: &str, seed: u64) -> Option<Box<dyn CostModel>> {
    match name {
        "hist" => Some(Box::new(Hist::default())),
        "gbdt" => Some(Box::new(Gbdt::default())),
        "mlp" => Some(Box::new(Mlp::new(mlp::Config { seed, ..mlp::Config::default() }))),
        "random" => Some(Box::new(Random { seed })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_go_by_their_names() {
        for name in NAMES {
            assert_eq!(create(name, 0).unwrap().name(), name);
        }
        assert!(create("oracle", 0).is_none());
    }
}
