//! Which candidates to measure next.

mod evolutionary;
mod g_bfs;
mod grid;
mod opevo;
mod random;
pub mod topology;

use crate::candidate::{Candidate, Search};
use crate::model::SharedModel;

pub use evolutionary::{EvolutionOptions, Evolutionary, MutationWeights};
pub use g_bfs::{GBfs, WIDTH};
pub use grid::Grid;
pub use opevo::{OpEvo, OpEvoOptions};
pub use random::Random;

/// One way of searching. It decides from what was measured and from its own seeded random numbers only: the
/// same seed and measurements give the same proposals.
pub trait SearchStrategy: Send {
    fn name(&self) -> &'static str;
    /// At most `n` different candidates that were not measured yet; none if the space is exhausted.
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate>;
}

/// Names of the strategies that [`create`] makes.
pub const NAMES: [&str; 6] =
    ["evolutionary", "annealed-evolution", "opevo", "g-bfs", "random", "grid"];

/// The strategy of that name for one task; those that rank candidates ask `model`.
pub fn create(name: &str, model: &SharedModel, seed: u64) -> Option<Box<dyn SearchStrategy>> {
    match name {
        "evolutionary" => {
            Some(Box::new(Evolutionary::new(EvolutionOptions::default(), model.clone(), seed)))
        }
        "annealed-evolution" => {
            Some(Box::new(Evolutionary::new(EvolutionOptions::annealed(), model.clone(), seed)))
        }
        "opevo" => Some(Box::new(OpEvo::new(OpEvoOptions::default(), seed))),
        "g-bfs" => Some(Box::new(GBfs::new(WIDTH, seed))),
        "random" => Some(Box::new(Random::new(seed))),
        "grid" => Some(Box::new(Grid::default())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, RwLock};

    use super::*;
    use crate::model;

    #[test]
    fn strategies_go_by_their_names() {
        let model: SharedModel = Arc::new(RwLock::new(model::create("random", 0).unwrap()));
        for name in NAMES {
            assert_eq!(create(name, &model, 0).unwrap().name(), name);
        }
        assert!(create("guess", &model, 0).is_none());
    }
}
