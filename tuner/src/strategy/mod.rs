//! Which candidates to measure next.

mod annealing;
mod beam;
mod evolutionary;
mod g_bfs;
mod grid;
mod kind;
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
pub use kind::{Kind, UnknownKind};
pub use n_a2c::{NA2c, NA2cOptions};
pub use opevo::{OpEvo, OpEvoOptions};
pub use random::Random;
pub use rnn::{Rnn, RnnOptions};

/// One way of searching. It decides from what was measured and from its own seeded random numbers
/// only: the same seed and measurements give the same proposals.
pub trait SearchStrategy: Send {
    /// At most `n` different candidates that were not measured yet; none if the space is exhausted.
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate>;
}

/// The strategy of that name for one task; those that rank candidates ask `model`. `None` if there
/// is none of that name.
pub fn create(name: &str, model: &SharedModel, seed: u64) -> Option<Box<dyn SearchStrategy>> {
    name.parse().ok().map(|kind: Kind| kind.create(model, seed))
}

#[cfg(test)]
mod tests;
