//! Points of a round that need not be made again.
//!
//! Children of the same parents often have the same decisions, and what they make is looked up.
//! Decisions that do not depend on the program, as lengths of vectors, are drawn beforehand, so
//! that they can be looked up, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ansc_sketch::Trace;
use rand::Rng;

use super::super::tried::key;
use super::point::Point;
use crate::candidate::Search;
use crate::model::Needs;

pub(super) struct Replays {
    /// The needs of the model that is asked about points.
    needs: Needs,
    /// By its trace's key: a trace with all its decisions makes one program only.
    known: Mutex<HashMap<u128, Arc<Point>>>,
}

impl Replays {
    pub(super) fn new(needs: Needs) -> Replays {
        Replays { needs, known: Mutex::default() }
    }

    /// As [`Search::replay`], but that no program is made if the model needs none: whether a
    /// candidate is known decides how long it takes, never what it is.
    pub(super) fn of(
        &self,
        search: &Search,
        trace: &Trace,
        random: &mut dyn Rng,
    ) -> Option<Arc<Point>> {
        let drawn = trace.drawn(random);
        let trace = drawn.as_ref().unwrap_or(trace);
        if self.needs == Needs::Trace {
            return Point::drawn(search, trace, random).map(Arc::new);
        }
        if !trace.is_decided() {
            return search.replay(trace, random).map(|c| Arc::new(Point::of(&c, self.needs)));
        }
        let key = key(trace);
        let known = self.lock().get(&key).cloned();
        if known.is_some() {
            return known;
        }
        let point = Arc::new(Point::of(&search.replay(trace, random)?, self.needs));
        // Else a decision did not fit and was drawn again: another time it may become something
        // else.
        if point.trace == *trace {
            self.lock().insert(key, point.clone());
        }
        Some(point)
    }

    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u128, Arc<Point>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::candidate::Candidate;
    use crate::testing::{matmul, task};

    #[test]
    fn candidates_are_those_of_replays() {
        let search = Search::new(task(matmul(32, 48, 24)));
        let task = &search.task;
        let replays = Replays::new(Needs::Program);
        let mut looked_up = 0;
        for sketch in task.sketches() {
            for seed in 0..60 {
                let random = || StdRng::seed_from_u64(seed % 30);
                let found = replays.of(&search, &sketch.trace, &mut random()).unwrap();
                let made = Candidate::of(task, &sketch.trace, &mut random()).unwrap();
                assert_eq!(found.trace, made.trace);
                assert_eq!(found.features.as_ref(), Some(made.features()));
                assert_eq!(found.candidate(&search).unwrap().scheduled, made.scheduled);
                looked_up += usize::from(Arc::strong_count(&found) > 1);
            }
        }
        assert!(looked_up > 0);
        replays.forget();
        assert!(replays.lock().is_empty());
    }

    #[test]
    fn a_model_of_traces_gets_the_same_traces_without_programs() {
        let search = Search::new(task(matmul(32, 48, 24)));
        for sketch in search.sketches.clone() {
            for seed in 0..10 {
                let random = || StdRng::seed_from_u64(seed);
                let of = |needs| Replays::new(needs).of(&search, &sketch.trace, &mut random());
                let (made, unmade) = (of(Needs::Program).unwrap(), of(Needs::Trace).unwrap());
                assert_eq!(made.trace, unmade.trace);
                assert!(unmade.features.is_none() && made.features.is_some());
                let candidate = unmade.candidate(&search).unwrap();
                assert_eq!(candidate.program, made.id);
            }
        }
    }
}
