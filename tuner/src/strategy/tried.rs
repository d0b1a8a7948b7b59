//! Traces that were replayed before. One with all its decisions makes the same program every time:
//! who wants new ones need not replay it again.

use std::collections::HashSet;

use ansc_sketch::Trace;
use xxhash_rust::xxh3::xxh3_128;

#[derive(Default)]
pub(super) struct Tried(HashSet<u128>);

impl Tried {
    /// Whether a replay may give what none of before gave.
    pub(super) fn may_be_new(&self, trace: &Trace) -> bool {
        !trace.is_decided() || !self.0.contains(&key(trace))
    }

    /// As [`Self::may_be_new`], and from now on it was tried.
    pub(super) fn insert(&mut self, trace: &Trace) -> bool {
        !trace.is_decided() || self.0.insert(key(trace))
    }
}

/// The same for traces that are the same, and, but for chance, for no others.
pub(super) fn key(trace: &Trace) -> u128 {
    xxh3_128(&serde_json::to_vec(trace).expect("a trace is plain data"))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::candidate::Candidate;
    use crate::testing::{matmul, task};

    #[test]
    fn decided_traces_are_new_once() {
        let task = task(matmul(32, 48, 24));
        let mut tried = Tried::default();
        for sketch in task.sketches() {
            let random = &mut StdRng::seed_from_u64(0);
            let decided = Candidate::of(&task, &sketch.trace, random).unwrap().trace;
            for trace in [&sketch.trace, &sketch.trace] {
                assert!(tried.may_be_new(trace) && tried.insert(trace));
            }
            assert!(tried.may_be_new(&decided) && tried.insert(&decided));
            assert!(!tried.may_be_new(&decided) && !tried.insert(&decided));
        }
    }
}
