//! Which candidates to measure next.

mod evolutionary;
mod grid;
mod random;

use crate::candidate::{Candidate, Search};

pub use evolutionary::{EvolutionOptions, Evolutionary, MutationWeights};
pub use grid::Grid;
pub use random::Random;

/// One way of searching. It decides from what was measured and from its own seeded random numbers only: the
/// same seed and measurements give the same proposals.
pub trait SearchStrategy: Send {
    fn name(&self) -> &'static str;
    /// At most `n` different candidates that were not measured yet; none if the space is exhausted.
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate>;
}
