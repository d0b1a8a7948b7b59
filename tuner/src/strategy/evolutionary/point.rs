//! A candidate less its program, of which a population would fill much memory: those that are
//! proposed get theirs back.
//!
//! A model that reads traces never asks for the program, and then none is made before a point is
//! proposed.

use std::sync::Arc;

use ansc_sketch::trace::{Recorder, Unfit};
use ansc_sketch::{Features, Trace};
use rand::Rng;

use super::super::tried;
use crate::candidate::{Candidate, Search};
use crate::model::{Needs, Subject, View};

/// The same for traces that are the same, and, but for chance, for no others.
pub(super) fn id(trace: &Trace) -> u64 {
    tried::key(trace) as u64
}

pub(super) struct Point {
    /// With all its decisions.
    pub(super) trace: Trace,
    /// The same for points that are the same: of the program as in [`Candidate`], or of the trace
    /// where no program was made.
    pub(super) id: u64,
    /// Features of the program, where one was made.
    pub(super) features: Option<Arc<Features>>,
}

impl Point {
    /// For a model that needs this much.
    pub(super) fn of(candidate: &Candidate, needs: Needs) -> Point {
        if needs == Needs::Trace {
            return Point::unmade(candidate.trace.clone());
        }
        let features = Some(candidate.features().clone());
        Point { trace: candidate.trace.clone(), id: candidate.program, features }
    }

    /// A trace whose program nobody has made. It may turn out to be none.
    pub(super) fn unmade(trace: Trace) -> Point {
        Point { id: id(&trace), trace, features: None }
    }

    /// The same of a trace in which something is open: what depends on the program is drawn by
    /// doing its steps, and nothing is made of the result.
    pub(super) fn drawn(search: &Search, trace: &Trace, random: &mut dyn Rng) -> Option<Point> {
        if trace.is_decided() {
            return Some(Point::unmade(trace.clone()));
        }
        let recorder = Recorder::of_task(search.task.clone());
        let replayed = trace.replay_on(recorder, Unfit::Resample, random);
        let replayed = search.refusals.count(replayed)?;
        Some(Point::unmade(replayed.into_parts().1))
    }

    pub(super) fn view<'a>(&'a self, subject: &'a Subject) -> View<'a> {
        View { subject, trace: &self.trace, features: self.features.as_deref() }
    }

    /// None for a trace that makes no program, as those of other versions of the rules.
    pub(super) fn candidate(&self, search: &Search) -> Option<Candidate> {
        search.replay_exactly(&self.trace)
    }
}
