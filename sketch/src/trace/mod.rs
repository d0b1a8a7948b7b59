//! Traces: how a program was scheduled, as data.
//!
//! A [`Trace`] is the list of [`Instruction`]s that were applied to a naive program, with the
//! decisions that sampling instructions made. It replays on the same program, or, with decisions
//! that no longer fit sampled again, on a program of another shape. Search changes decisions and
//! replays.
//!
//! ```text
//! b0 = get_block("mm")
//! l1, l2, l3 = get_loops(b0)
//! v4, v5, v6, v7 = sample_perfect_tile(l1, parts=4, max_innermost=64)  # [8, 4, 2, 16]
//! l8, l9, l10, l11 = split(l1, [v4, v5, v6, v7])
//! ```
//!
//! Invariants: a variable is defined by one instruction, before it is used; a recorded sampling
//! instruction has a decision; replaying a trace on the program it was recorded on gives the same
//! program and the same trace.

mod adapt;
mod argument;
mod cross;
mod execute;
mod instruction;
mod mutate;
mod near;
mod options;
mod prior;
mod record;
mod sample;
mod sentence;
mod table;
mod text;
mod words;

#[cfg(test)]
mod tests;

pub use instruction::{BlockVar, Decision, LoopVar, Note, Number, ValueVar};
pub use mutate::mutate_tile;
pub use near::{count_near_tiles, near_extents};
pub use record::Recorder;
pub use sample::{count_tiles, sample_tile};
pub use sentence::{Sentence, Word};
pub use table::Instruction;

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::budget::CodeTooLarge;
use crate::gpu::GpuError;
use crate::program::Program;
use crate::schedule::ScheduleError;

/// The steps from the naive program to a scheduled one, with what was chosen on the way. It
/// replays.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Trace {
    /// In the order in which they were made.
    pub steps: Vec<Instruction>,
}

/// How a replay treats a decision that does not fit the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// The replay fails.
    Refuse,
    /// The instruction is sampled again.
    Resample,
    /// It becomes the most similar one that fits; if there is none, it is sampled again.
    Adapt,
}

/// Why a trace could not be replayed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("step {step}, `{instruction}`: {cause}")]
pub struct TraceError {
    /// The step that failed, counted from 0.
    pub step: usize,
    /// That step as text.
    pub instruction: String,
    /// Why it failed.
    #[source]
    pub cause: Box<StepError>,
}

/// Why a step of a trace could not be replayed. The texts of errors say what each means.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum StepError {
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error("the variable `{0}` is not defined")]
    Undefined(String),
    #[error("the location is not a loop")]
    NotALoop,
    #[error("the number {0} is not a length")]
    NotALength(i64),
    #[error("the decision does not fit the program")]
    Unfit,
    #[error("there is nothing to choose from")]
    NoChoice,
    #[error("{candidates} candidates have {weights} weights")]
    Weights { candidates: usize, weights: usize },
    #[error("this needs the subgraph, of which only the program is known")]
    NoTask,
    #[error("this is a schedule for a GPU, and the subgraph is to run on a CPU")]
    NoGpu,
    #[error("the subgraph cannot be computed by {0}")]
    DoesNotApply(Algorithm),
    #[error(transparent)]
    Gpu(#[from] GpuError),
    #[error(transparent)]
    TooLarge(#[from] CodeTooLarge),
}

impl Trace {
    /// The algorithm that computes the subgraph; `None` if its own expression does.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.steps.iter().find_map(|step| match step {
            Instruction::Algorithm { algorithm } => Some(*algorithm),
            _ => None,
        })
    }

    /// Applies the trace to a program.
    pub fn replay(
        &self,
        program: Program,
        unfit: Unfit,
        random: &mut dyn Rng,
    ) -> Result<Recorder, TraceError> {
        self.replay_on(Recorder::new(program), unfit, random)
    }

    /// Applies the trace to a recorder that did nothing yet.
    pub fn replay_on(
        &self,
        recorder: Recorder,
        unfit: Unfit,
        random: &mut dyn Rng,
    ) -> Result<Recorder, TraceError> {
        self.replay_watched(recorder, unfit, random, &mut |_, _| {})
    }

    /// The same; `after` sees each instruction and the program that it leaves.
    pub fn replay_watched(
        &self,
        mut recorder: Recorder,
        unfit: Unfit,
        random: &mut dyn Rng,
        after: &mut dyn FnMut(&Instruction, &Program),
    ) -> Result<Recorder, TraceError> {
        for (step, instruction) in self.steps.iter().enumerate() {
            recorder.step(instruction.clone(), unfit, random).map_err(|cause| TraceError {
                step,
                instruction: instruction.to_string(),
                cause: Box::new(cause),
            })?;
            after(instruction, recorder.schedule().program());
        }
        Ok(recorder)
    }

    /// Positions of the sampling instructions: what a search may change.
    pub fn choices(&self) -> Vec<usize> {
        (0..self.steps.len()).filter(|&i| self.steps[i].is_sampling()).collect()
    }

    /// Whether every choice has been made, so that a replay draws nothing at random.
    pub fn is_decided(&self) -> bool {
        self.choices().iter().all(|&step| self.steps[step].decision().is_some())
    }

    /// The trace with all its decisions made, where none depends on the program: what is undecided
    /// is drawn as a replay draws it. None for other traces, for which nothing is drawn.
    pub fn drawn(&self, random: &mut dyn Rng) -> Option<Trace> {
        let choices = self.choices();
        let is_fixed =
            |step: &usize| matches!(self.steps[*step], Instruction::SampleCategorical { .. });
        if !choices.iter().all(is_fixed) {
            return None;
        }
        let mut drawn = self.clone();
        for step in choices {
            let Instruction::SampleCategorical { candidates, weights, decision, .. } =
                &mut drawn.steps[step]
            else {
                continue;
            };
            let fits =
                |index: i64| usize::try_from(index).is_ok_and(|index| index < candidates.len());
            if !matches!(decision, Some(Decision::Choice(index)) if fits(*index)) {
                let drawn = sample::sample_index(weights, random).map(|index| index as i64);
                *decision = drawn.filter(|index| fits(*index)).map(Decision::Choice);
            }
        }
        Some(drawn)
    }

    /// The trace with no decision made.
    pub fn undecided(mut self) -> Trace {
        self.steps.iter_mut().for_each(|step| step.set_decision(None));
        self
    }

    /// The trace with no decision made at one step.
    pub fn undecide(mut self, step: usize) -> Trace {
        self.steps[step].set_decision(None);
        self
    }

    /// The trace with another decision at one step.
    pub fn decide(mut self, step: usize, decision: Decision) -> Trace {
        self.steps[step].set_decision(Some(decision));
        self
    }
}
