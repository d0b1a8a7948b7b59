//! Candidates of a round that need not be replayed again.
//!
//! Decisions that do not depend on the program, such as the knobs of the default schedule, are drawn before the replay;
//! what they make is then looked up. Such spaces are small, so that a round meets the same points again and again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ansc_sketch::{Task, Trace};
use rand::Rng;

use crate::candidate::Candidate;

/// Candidates that are kept at most.
const MOST: usize = 1024;

#[derive(Default)]
pub(super) struct Replays {
    /// By the trace's text: a trace with all its decisions makes one program only.
    known: Mutex<HashMap<String, Arc<Candidate>>>,
}

impl Replays {
    /// As [`Candidate::of`]: whether a candidate is known decides how long it takes, never what it is.
    pub(super) fn of(
        &self,
        task: &Arc<Task>,
        trace: &Trace,
        random: &mut dyn Rng,
    ) -> Option<Arc<Candidate>> {
        let Some(drawn) = trace.drawn(random) else {
            return Candidate::of(task, trace, random).map(Arc::new);
        };
        let text = serde_json::to_string(&drawn).ok()?;
        let known = |text: &String| self.lock().get(text).cloned();
        if let Some(candidate) = known(&text) {
            return Some(candidate);
        }
        let candidate = Arc::new(Candidate::of(task, &drawn, random)?);
        let mut all = self.lock();
        if all.len() < MOST {
            all.insert(text, candidate.clone());
        }
        Some(candidate)
    }

    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Candidate>>> {
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
                assert_eq!(found.scheduled, made.scheduled);
                looked_up += usize::from(Arc::strong_count(&found) > 1);
            }
        }
        assert!(looked_up > 0);
        replays.forget();
        assert!(replays.lock().is_empty());
    }
}
