//! Points of a round that need not be made again.
//!
//! Children of the same parents often have the same decisions, and what they make is looked up. Decisions that do not
//! depend on the program, such as the knobs of the default schedule, are drawn beforehand, so that they can be looked
//! up, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ansc_sketch::{Task, Trace};
use rand::Rng;

use super::super::tried::key;
use super::point::Point;
use crate::candidate::Candidate;

#[derive(Default)]
pub(super) struct Replays {
    /// By its trace's key: a trace with all its decisions makes one program only.
    known: Mutex<HashMap<u128, Arc<Point>>>,
}

impl Replays {
    /// As [`Candidate::of`]: whether a candidate is known decides how long it takes, never what it is.
    pub(super) fn of(
        &self,
        task: &Arc<Task>,
        trace: &Trace,
        random: &mut dyn Rng,
    ) -> Option<Arc<Point>> {
        let drawn = trace.drawn(random);
        let trace = drawn.as_ref().unwrap_or(trace);
        if !trace.is_decided() {
            return Candidate::of(task, trace, random).map(|c| Arc::new(Point::of(&c)));
        }
        let key = key(trace);
        let known = self.lock().get(&key).cloned();
        if known.is_some() {
            return known;
        }
        let point = Arc::new(Point::of(&Candidate::of(task, trace, random)?));
        // Else a decision did not fit and was drawn again: another time it may become something else.
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
    use crate::testing::{matmul, task};

    #[test]
    fn candidates_are_those_of_replays() {
        let task = task(matmul(32, 48, 24));
        let replays = Replays::default();
        let mut looked_up = 0;
        for sketch in task.sketches() {
            for seed in 0..60 {
                let random = || StdRng::seed_from_u64(seed % 30);
                let found = replays.of(&task, &sketch.trace, &mut random()).unwrap();
                let made = Candidate::of(&task, &sketch.trace, &mut random()).unwrap();
                assert_eq!(found.trace, made.trace);
                assert_eq!(found.features, made.features);
                assert_eq!(found.candidate(&task).unwrap().scheduled, made.scheduled);
                looked_up += usize::from(Arc::strong_count(&found) > 1);
            }
        }
        assert!(looked_up > 0);
        replays.forget();
        assert!(replays.lock().is_empty());
    }
}
