//! How fast candidates really are.

mod batch;
mod each;
mod failures;
mod folder;
mod local;
mod phases;
mod process;
pub mod protocol;
pub mod simulated;
mod spawner;

use std::sync::Arc;

use ansc_sketch::Task;

pub use batch::Batch;
pub use each::{Each, Place};
pub(crate) use failures::Failures;
pub use local::{Caches, LocalMeasurer, LocalOptions};
pub use phases::{Phase, Phases};
pub use process::WorkerCommand;
pub use simulated::Simulated;
pub use spawner::end_with_parent;

use crate::candidate::Candidate;
use crate::outcome::Outcome;
use crate::records::Record;

/// Builds and runs candidates. Nothing that a candidate does may harm the measurer.
pub trait Measurer {
    /// One outcome for each candidate, in their order.
    fn measure(
        &mut self,
        task: &Arc<Task>,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, MeasureError>;

    /// The same, and `each` is told of every candidate before and after it runs.
    fn measure_each(
        &mut self,
        task: &Arc<Task>,
        batch: &dyn Batch,
        each: &mut dyn Each,
    ) -> Result<(), MeasureError> {
        for place in 0..batch.len() {
            let Some(candidate) = batch.candidate(place) else {
                each.is_missing(place);
                continue;
            };
            if !each.begins(place) {
                break;
            }
            for outcome in self.measure(task, std::slice::from_ref(candidate))? {
                each.ends(place, outcome);
            }
        }
        Ok(())
    }

    /// Where and when each candidate of the last round was measured, if not here and just now.
    fn places(&self) -> &[Place] {
        &[]
    }

    /// Measurements that an earlier run asked for and did not live to see. Each is given once.
    fn strays(&mut self) -> Vec<Record> {
        vec![]
    }

    /// Is told that everything it gave is written down, so that nothing needs to be kept for a
    /// later run.
    fn recorded(&mut self) -> Result<(), MeasureError> {
        Ok(())
    }

    /// The phases that the time went to so far, where they are known.
    fn phases(&self) -> Vec<Phase> {
        vec![]
    }
}

/// Why measuring cannot go on at all. What the machine did is no outcome of a candidate.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// No worker process could be started.
    #[error(
        "worker processes cannot be started: {0}; raise the limits on processes and memory, or take fewer `--threads`"
    )]
    Worker(#[source] std::io::Error),
    /// This machine cannot run what is to be measured; the text says why.
    #[error(
        "this machine cannot measure: {0}; what was measured before is kept: mend that and run it again"
    )]
    Unfit(String),
    /// The system ended worker processes again and again.
    #[error(
        "{times} times in a row a worker process was ended by signal {signal} from outside, as the system does where \
         memory is short; what was measured before is kept: run it again with more memory or fewer `--threads`"
    )]
    Killed {
        /// The number of the signal.
        signal: i32,
        /// How often it came in a row.
        times: usize,
    },
    /// Programs could not be handed to workers through files.
    #[error("the temporary folder cannot be used: {0}; set TMPDIR to one with space")]
    Io(#[from] std::io::Error),
    /// The reference for results could not be computed.
    #[error("a subgraph cannot be computed by definition: {0}")]
    Reference(String),
    /// The fleet cannot be used.
    #[cfg(feature = "fleet")]
    #[error(transparent)]
    Fleet(#[from] crate::fleet_error::FleetError),
    /// Nothing runs any more, which is no fault of each candidate.
    #[error(
        "no candidate can be measured any more: the last {count} failed, the last one because it {last}"
    )]
    AllFail {
        /// Failures in a row.
        count: usize,
        /// The last of them.
        last: crate::outcome::Failure,
    },
}

impl MeasureError {
    /// Whether it is the machine that is to be mended.
    pub fn is_of_the_machine(&self) -> bool {
        match self {
            MeasureError::Worker(_)
            | MeasureError::Unfit(_)
            | MeasureError::Killed { .. }
            | MeasureError::Io(_) => true,
            #[cfg(feature = "fleet")]
            MeasureError::Fleet(_) => true,
            MeasureError::Reference(_) | MeasureError::AllFail { .. } => false,
        }
    }
}
