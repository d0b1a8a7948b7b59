//! How fast candidates really are.

use ansc_sketch::Task;
use std::sync::Arc;

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
}

/// Why measuring cannot go on at all.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error("worker processes cannot be started: {0}")]
    Worker(#[source] std::io::Error),
    #[error("the temporary folder cannot be used: {0}; set TMPDIR to one with space")]
    Io(#[from] std::io::Error),
    #[error(
        "no candidate can be measured any more: the last {count} failed, the last one because it {last}"
    )]
    AllFail { count: usize, last: crate::outcome::Failure },
}
