//! Which candidates to measure next.

mod annealing;
mod beam;
mod evolutionary;
mod g_bfs;
mod grid;
mod n_a2c;
mod opevo;
mod random;
mod rnn;
pub mod topology;
mod tried;

use crate::candidate::{Candidate, Search};
use crate::model::SharedModel;

pub use annealing::{Annealing, AnnealingOptions};
pub use beam::Beam;
pub use evolutionary::{EvolutionOptions, Evolutionary, MutationWeights};
pub use g_bfs::{GBfs, WIDTH};
pub use grid::Grid;
pub use n_a2c::{NA2c, NA2cOptions};
pub use opevo::{OpEvo, OpEvoOptions};
pub use random::Random;
pub use rnn::{Rnn, RnnOptions};

/// One way of searching. It decides from what was measured and from its own seeded random numbers
/// only: the same seed and measurements give the same proposals.
pub trait SearchStrategy: Send {
    /// As in [`NAMES`], for strategies that [`create`] makes.
    fn name(&self) -> &'static str;
    /// At most `n` different candidates that were not measured yet; none if the space is exhausted.
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate>;
}

/// Names of the strategies that [`create`] makes.
pub const NAMES: [&str; 13] = [
    "evolutionary",
    "annealed-evolution",
    "opevo",
    "opevo-published",
    "g-bfs",
    "g-bfs-published",
    "n-a2c",
    "n-a2c-published",
    "annealing",
    "beam",
    "rnn",
    "random",
    "grid",
];

/// The strategy of that name for one task; those that rank candidates ask `model`. Numbers of an
/// evolution may follow its name, as in `evolutionary:crossover=0`.
pub fn create(name: &str, model: &SharedModel, seed: u64) -> Option<Box<dyn SearchStrategy>> {
    if let Some(options) = evolution(name) {
        return Some(Box::new(Evolutionary::new(options, model.clone(), seed)));
    }
    match name {
        "opevo" => Some(Box::new(OpEvo::new(OpEvoOptions::default(), seed))),
        "opevo-published" => Some(Box::new(OpEvo::new(OpEvoOptions::published(), seed))),
        "g-bfs" => Some(Box::new(GBfs::new(WIDTH, seed))),
        "g-bfs-published" => Some(Box::new(GBfs::published(seed))),
        "n-a2c" => Some(Box::new(NA2c::new(NA2cOptions::default(), seed))),
        "n-a2c-published" => Some(Box::new(NA2c::new(NA2cOptions::published(), seed))),
        "annealing" => {
            Some(Box::new(Annealing::new(AnnealingOptions::default(), model.clone(), seed)))
        }
        "beam" => Some(Box::new(Beam::new(model.clone(), seed))),
        "rnn" => Some(Box::new(Rnn::new(RnnOptions::default(), seed))),
        "random" => Some(Box::new(Random::new(seed))),
        "grid" => Some(Box::new(Grid::default())),
        _ => None,
    }
}

/// Whether [`create`] makes a strategy of that name.
pub fn is_known(name: &str) -> bool {
    NAMES.contains(&name) || evolution(name).is_some()
}

/// The numbers of an evolution of that name.
fn evolution(name: &str) -> Option<EvolutionOptions> {
    let (name, changes) = name.split_once(':').map_or((name, None), |(n, c)| (n, Some(c)));
    let options = match name {
        "evolutionary" => EvolutionOptions::default(),
        "annealed-evolution" => EvolutionOptions::annealed(),
        _ => return None,
    };
    changes.map_or(Some(options.clone()), |changes| options.with(changes))
}

#[cfg(test)]
mod comparison;

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
        for name in ["guess", "evolutionary:", "evolutionary:x=1", "random:epsilon=0"] {
            assert!(create(name, &model, 0).is_none() && !is_known(name), "{name}");
        }
        let changed = create("evolutionary:crossover=0", &model, 0).unwrap();
        assert_eq!(changed.name(), "evolutionary");
    }
}
