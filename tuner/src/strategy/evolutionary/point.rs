//! A candidate less its program, of which a population would fill much memory: those that are proposed get theirs back.

use std::sync::Arc;

use ansc_sketch::{Features, Task, Trace, features};

use crate::candidate::Candidate;

pub(super) struct Point {
    /// With all its decisions.
    pub(super) trace: Trace,
    pub(super) features: Arc<Features>,
    /// As in [`Candidate`].
    pub(super) program: u64,
    /// The buffers that the rows of the features are about.
    pub(super) stored: Vec<String>,
}

impl Point {
    pub(super) fn of(candidate: &Candidate) -> Point {
        let program = &candidate.scheduled.program;
        let stored = features::stored(program).into_iter();
        Point {
            trace: candidate.trace.clone(),
            features: candidate.features.clone(),
            program: candidate.program,
            stored: stored.map(|b| program.buffer(b).name.clone()).collect(),
        }
    }

    /// None for a trace that was made for another version of the rules.
    pub(super) fn candidate(&self, task: &Arc<Task>) -> Option<Candidate> {
        Candidate::exactly(task, &self.trace)
    }
}
