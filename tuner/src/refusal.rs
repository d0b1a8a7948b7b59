//! Why traces that a strategy tries make no program.
//!
//! Such a trace is never a candidate, and costs no measurement. How many there are of each kind
//! tells whether a space fits its task.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicUsize, Ordering};

use ansc_sketch::trace::{StepError, TraceError};
use serde::{Deserialize, Serialize};

/// Why a trace makes no program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// One of its decisions does not fit the program.
    Decision,
    /// One of its steps cannot be done to the program.
    Step,
    /// The program becomes more code than a kernel may have.
    Code,
    /// The GPU does not allow the program.
    Gpu,
}

impl Refusal {
    /// Every reason once, in the order of the variants.
    pub const ALL: [Refusal; 4] = [Refusal::Decision, Refusal::Step, Refusal::Code, Refusal::Gpu];

    /// The reason behind an error.
    pub fn of(error: &TraceError) -> Refusal {
        match error.cause.as_ref() {
            StepError::Unfit | StepError::NoChoice | StepError::Weights { .. } => Refusal::Decision,
            StepError::TooLarge(_) => Refusal::Code,
            StepError::Gpu(_) | StepError::NoGpu => Refusal::Gpu,
            StepError::Schedule(_)
            | StepError::Undefined(_)
            | StepError::NotALoop
            | StepError::NotALength(_)
            | StepError::NoTask
            | StepError::DoesNotApply(_) => Refusal::Step,
        }
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Decision => "a decision does not fit",
            Refusal::Step => "a step cannot be done",
            Refusal::Code => "it would be too much code",
            Refusal::Gpu => "the GPU does not allow it",
        })
    }
}

/// How many traces were tried, and how many of them were refused for each reason. Several threads
/// count at once.
#[derive(Default, Debug)]
pub struct Refusals {
    tried: AtomicUsize,
    refused: [AtomicUsize; Refusal::ALL.len()],
}

impl Refusals {
    /// Counts one trace.
    pub fn count<T>(&self, made: Result<T, TraceError>) -> Option<T> {
        self.tried.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = &made {
            self.refused[Refusal::of(error) as usize].fetch_add(1, Ordering::Relaxed);
        }
        made.ok()
    }

    /// Traces that were tried.
    pub fn tried(&self) -> usize {
        self.tried.load(Ordering::Relaxed)
    }

    /// The reasons that there were, and how often.
    pub fn by_reason(&self) -> Vec<(Refusal, usize)> {
        let count =
            |reason: Refusal| (reason, self.refused[reason as usize].load(Ordering::Relaxed));
        Refusal::ALL.map(count).into_iter().filter(|(_, n)| *n > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use ansc_sketch::trace::Unfit;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::testing::{matmul, task};

    #[test]
    fn refusals_are_counted_by_reason() {
        let task = task(matmul(32, 48, 24));
        let refusals = Refusals::default();
        let random = &mut StdRng::seed_from_u64(0);
        let tiled = task.sketches().into_iter().find(|s| s.rules.iter().any(|r| r == "tile"));
        let trace = tiled.unwrap().trace;
        let decided = refusals.count(task.sample(&trace, Unfit::Resample, random)).unwrap().trace;
        assert_eq!((refusals.tried(), refusals.by_reason()), (1, vec![]));
        // Decisions of another shape do not fit, and a program without loops has none to split.
        let other = crate::testing::task(matmul(31, 47, 23));
        assert!(refusals.count(other.sample(&decided, Unfit::Refuse, random)).is_none());
        let text = serde_json::to_string(&decided).unwrap().replace("mm", "nn");
        let renamed = serde_json::from_str(&text).unwrap();
        assert!(refusals.count(task.sample(&renamed, Unfit::Refuse, random)).is_none());
        let expected = vec![(Refusal::Decision, 1), (Refusal::Step, 1)];
        assert_eq!((refusals.tried(), refusals.by_reason()), (3, expected));
    }
}
