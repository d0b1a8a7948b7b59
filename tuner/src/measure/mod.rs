//! How fast candidates really are.

mod local;
mod phases;
mod process;
pub mod protocol;
pub mod simulated;

use std::sync::Arc;

use ansc_sketch::Task;

pub use local::{Caches, LocalMeasurer, LocalOptions};
pub use phases::{Phase, Phases};
pub use process::WorkerCommand;
pub use simulated::Simulated;

use crate::candidate::Candidate;
use crate::outcome::Outcome;

/// Builds and runs candidates. Nothing that a candidate does may harm the measurer.
pub trait Measurer {
    /// One outcome for each candidate, in their order.
    fn measure(
        &mut self,
        task: &Arc<Task>,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, MeasureError>;

    /// What the time went to so far, where that is known.
    fn phases(&self) -> Vec<Phase> {
        vec![]
    }
}

/// Why measuring cannot go on at all.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error("worker processes cannot be started: {0}")]
    Worker(#[source] std::io::Error),
    #[error("the temporary folder cannot be used: {0}; set TMPDIR to one with space")]
    Io(#[from] std::io::Error),
    #[error("a subgraph cannot be computed by definition: {0}")]
    Reference(String),
    #[error(
        "no candidate can be measured any more: the last {count} failed, the last one because it {last}"
    )]
    AllFail { count: usize, last: crate::outcome::Failure },
}
