//! A machine that is only computed: what tests of searches measure on.
//!
//! **A simulation, not a prediction.** The time of a program is a fixed function of its loops,
//! which rewards what real machines reward: full vectors along contiguous axes, independent sums in
//! flight, tiles that fit the registers and each cache, few turns of loops, work for every core. It
//! knows nothing of instructions, and its numbers mean nothing on real hardware; but it is quick,
//! has no noise unless asked for, and is the same everywhere.
//!
//! ```text
//! program -> for each block: cycles of arithmetic, of turns of loops, of traffic at each cache -> seconds
//! ```

mod cost;

use std::sync::Arc;

use ansc_sketch::{Program, Task};
use xxhash_rust::xxh3::xxh3_64;

use super::{MeasureError, Measurer};
use crate::candidate::Candidate;
use crate::outcome::{Failure, Outcome};

/// Times of each candidate.
const REPEATS: u64 = 3;

/// A machine that is computed, for tests and comparisons that must be the same everywhere.
#[derive(Clone, PartialEq, Debug)]
pub struct Simulated {
    /// Cores that run parallel loops.
    pub cores: usize,
    /// Bytes of a vector.
    pub vector_bytes: usize,
    /// Vectors that a core holds at once.
    pub registers: usize,
    /// Cycles in a second.
    pub hertz: f64,
    /// The smallest first; the last level is memory, which has no end.
    pub caches: Vec<Cache>,
    /// Cycles to wake the other cores.
    pub dispatch: f64,
    /// Instructions of a loop's body that the code generator takes.
    pub longest_body: f64,
    /// Times differ from run to run by up to this share, in a way that depends on the program only.
    pub noise: f64,
    /// Candidates that were measured.
    pub measured: usize,
}

/// A level of memory, and what it costs to fetch from the next one.
#[derive(Clone, PartialEq, Debug)]
pub struct Cache {
    /// The size that a working set may have; infinite for memory.
    pub bytes: f64,
    /// From the next level, for each core.
    pub bytes_per_cycle: f64,
}

impl Default for Simulated {
    /// Two cores with 16 registers of 32 bytes.
    fn default() -> Simulated {
        let cache = |bytes, bytes_per_cycle| Cache { bytes, bytes_per_cycle };
        Simulated {
            cores: 2,
            vector_bytes: 32,
            registers: 16,
            hertz: 3e9,
            caches: vec![cache(32e3, 32.0), cache(1e6, 16.0), cache(16e6, 4.0)],
            dispatch: 10_000.0,
            longest_body: 8192.0,
            noise: 0.0,
            measured: 0,
        }
    }
}

impl Simulated {
    /// The outcome of a program. It is the same every time.
    pub fn outcome(&self, program: &Program) -> Outcome {
        let kernels: Vec<cost::Kernel> =
            program.body.iter().map(|stmt| cost::kernel(self, program, stmt)).collect();
        if kernels.iter().any(|k| k.longest_body > self.longest_body) {
            return Outcome::Failed(Failure::BuildTimeout);
        }
        let cycles: f64 = kernels.iter().map(|k| k.cycles).sum();
        let seconds = cycles.max(1.0) / self.hertz;
        Outcome::Seconds((0..REPEATS).map(|i| seconds * self.disturbed(program, i)).collect())
    }

    fn disturbed(&self, program: &Program, run: u64) -> f64 {
        if self.noise == 0.0 {
            return 1.0;
        }
        let text = format!("{run}{program}");
        let unit = xxh3_64(text.as_bytes()) as f64 / u64::MAX as f64;
        1.0 + self.noise * unit
    }
}

impl Measurer for Simulated {
    fn measure(
        &mut self,
        _task: &Arc<Task>,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, MeasureError> {
        self.measured += candidates.len();
        Ok(candidates.iter().map(|c| self.outcome(&c.scheduled.program)).collect())
    }
}

#[cfg(test)]
mod tests;
