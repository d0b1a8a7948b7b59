//! How fast candidates really are.

mod folder;
mod local;
mod phases;
mod process;
pub mod protocol;
pub mod simulated;
mod spawner;

use std::sync::Arc;

use ansc_sketch::Task;

pub use local::{Caches, LocalMeasurer, LocalOptions};
pub use phases::{Phase, Phases};
pub use process::WorkerCommand;
pub use simulated::Simulated;
pub use spawner::end_with_parent;

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

/// Why measuring cannot go on at all. What the machine did is no outcome of a candidate.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error(
        "worker processes cannot be started: {0}; raise the limits on processes and memory, or take fewer `--threads`"
    )]
    Worker(#[source] std::io::Error),
    #[error(
        "this machine cannot measure: {0}; what was measured before is kept: mend that and run it again"
    )]
    Unfit(String),
    #[error(
        "{times} times in a row a worker process was ended by signal {signal} from outside, as the system does where \
         memory is short; what was measured before is kept: run it again with more memory or fewer `--threads`"
    )]
    Killed { signal: i32, times: usize },
    #[error("the temporary folder cannot be used: {0}; set TMPDIR to one with space")]
    Io(#[from] std::io::Error),
    #[error("a subgraph cannot be computed by definition: {0}")]
    Reference(String),
    #[error(
        "no candidate can be measured any more: the last {count} failed, the last one because it {last}"
    )]
    AllFail { count: usize, last: crate::outcome::Failure },
}

impl MeasureError {
    /// Whether it is the machine that is to be mended.
    pub fn is_of_the_machine(&self) -> bool {
        match self {
            MeasureError::Worker(_)
            | MeasureError::Unfit(_)
            | MeasureError::Killed { .. }
            | MeasureError::Io(_) => true,
            MeasureError::Reference(_) | MeasureError::AllFail { .. } => false,
        }
    }
}
