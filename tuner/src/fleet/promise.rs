//! A candidate that a job promises: its trace, and the program that the trace is said to make.
//!
//! ```text
//! trace, program 00d1.. --first need: replay, compare--> candidate, or why it is refused
//! ```
//!
//! Nothing of it is built or run before it is replayed. A replay happens once, wherever it is
//! needed first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use ansc_sketch::trace::Unfit;
use ansc_sketch::{Task, Trace};
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::wire::{self, hex};
use crate::candidate::Candidate;
use crate::measure::Batch;

/// Instructions of a trace.
const MOST_STEPS: usize = 20_000;

#[derive(Debug)]
pub(super) struct Promise {
    pub(super) task: Arc<Task>,
    trace: Trace,
    program: u64,
    made: OnceLock<Result<Candidate, String>>,
}

impl Promise {
    /// The trace is bounded here, and the program is a hash. Everything else shows when it is
    /// replayed.
    pub(super) fn new(task: &Arc<Task>, trace: &Trace, program: &str) -> Result<Promise, String> {
        if trace.steps.len() > MOST_STEPS {
            return Err(format!(
                "its trace has {} steps; {MOST_STEPS} are the most",
                trace.steps.len()
            ));
        }
        let (task, program) = (task.clone(), wire::digits(program)?);
        Ok(Promise { task, trace: trace.clone(), program, made: OnceLock::new() })
    }

    /// Whether it is a promise of this trace and program.
    pub(super) fn is_of(&self, trace: &Trace, program: &str) -> bool {
        hex(self.program) == program && self.trace == *trace
    }

    /// The candidate, or why there is none.
    pub(super) fn candidate(&self) -> Result<&Candidate, &str> {
        self.made.get_or_init(|| self.replay()).as_ref().map_err(String::as_str)
    }

    /// The program of the trace, which must be the one that the tuner made of it.
    fn replay(&self) -> Result<Candidate, String> {
        let random = &mut StdRng::seed_from_u64(0);
        let sample = || self.task.sample(&self.trace, Unfit::Refuse, random);
        // A trace from the network must not end the worker, whatever it finds in the way.
        let replayed = catch_unwind(AssertUnwindSafe(sample));
        let sample = replayed.map_err(|_| "its trace cannot be replayed".to_owned())?;
        let candidate = sample.map_err(|e| format!("its trace: {e}"))?;
        let candidate = Candidate::new(&self.task, candidate);
        if candidate.program != self.program {
            return Err(format!(
                "its trace makes the program {} here and {} where the tuner runs",
                hex(candidate.program),
                hex(self.program)
            ));
        }
        Ok(candidate)
    }
}

/// Candidates that are measured in one go.
pub(super) struct Promises(pub(super) Vec<Arc<Promise>>);

impl Batch for Promises {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn program(&self, place: usize) -> u64 {
        self.0[place].program
    }

    fn candidate(&self, place: usize) -> Option<&Candidate> {
        self.0.get(place)?.candidate().ok()
    }
}
