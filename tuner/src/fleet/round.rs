//! A round of candidates on its way: what is to be sent, what is waited for, and what came.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use ansc_sketch::Task;

use super::wire::TaskText;
use crate::candidate::Candidate;
use crate::measure::Place;
use crate::outcome::{Failure, Outcome};

/// A candidate that was refused or lost so often has no outcome to hope for.
const MOST_TRIES: u8 = 3;

pub(super) struct Round<'a> {
    pub(super) task: TaskText,
    pub(super) key: String,
    pub(super) candidates: &'a [Candidate],
    open: VecDeque<usize>,
    /// By the name of the job.
    waiting: HashMap<String, usize>,
    tries: Vec<u8>,
    done: Vec<Option<(Outcome, Place)>>,
}

impl<'a> Round<'a> {
    pub(super) fn new(task: &Task, candidates: &'a [Candidate]) -> Round<'a> {
        Round {
            task: task.into(),
            key: task.key(),
            candidates,
            open: VecDeque::new(),
            waiting: HashMap::new(),
            tries: vec![0; candidates.len()],
            done: vec![None; candidates.len()],
        }
    }

    /// The first of the first `n` that has no outcome yet.
    pub(super) fn first(&self, n: usize) -> Option<usize> {
        self.done.iter().take(n).position(Option::is_none)
    }

    /// These are to be measured, but for what has an outcome.
    pub(super) fn open(&mut self, places: Range<usize>) {
        self.open.extend(places.filter(|place| self.done[*place].is_none()));
    }

    pub(super) fn is_done(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes up to so many that are open.
    pub(super) fn next(&mut self, n: usize) -> Vec<usize> {
        self.open.drain(..n.min(self.open.len())).collect()
    }

    pub(super) fn sent(&mut self, job: &str, place: usize) {
        self.waiting.insert(job.into(), place);
    }

    /// Not taken: it is open again.
    pub(super) fn again(&mut self, job: &str) {
        if let Some(place) = self.waiting.remove(job) {
            self.open.push_front(place);
        }
    }

    /// The candidate that a job was about, if it is waited for.
    pub(super) fn answered(&mut self, job: &str) -> Option<usize> {
        self.waiting.remove(job)
    }

    pub(super) fn set(&mut self, place: usize, outcome: Outcome, by: Place) {
        self.done[place] = Some((outcome, by));
    }

    /// Another try, if there is one left.
    pub(super) fn failed(&mut self, place: usize) -> bool {
        self.tries[place] += 1;
        self.open.push_back(place);
        self.tries[place] < MOST_TRIES
    }

    /// Everything that is waited for was lost: it is sent once more, or given up.
    pub(super) fn lost(&mut self) {
        for (_, place) in std::mem::take(&mut self.waiting) {
            if !self.failed(place) {
                self.open.pop_back();
                let by = Place::now("none");
                self.done[place] = Some((Outcome::Failed(Failure::Poison), by));
            }
        }
    }

    pub(super) fn seconds(&self, place: usize) -> Option<f64> {
        self.done[place].as_ref().and_then(|(outcome, _)| outcome.seconds())
    }

    /// Outcomes and where they are from, of a round that is done.
    pub(super) fn into_parts(self) -> (Vec<Outcome>, Vec<Place>) {
        self.done.into_iter().flatten().unzip()
    }
}
