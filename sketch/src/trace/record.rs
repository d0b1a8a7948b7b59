//! A schedule that writes down what is done to it.
//!
//! The methods are those of [`Schedule`], on variables in place of names and loops. Those of
//! instructions that decide nothing come from their table (`table`).

use std::cell::Cell;
use std::sync::Arc;

use rand::Rng;

use super::instruction::{BlockVar, Decision, LoopVar, ValueVar};
use super::table::Instruction;
use super::{StepError, Trace};
use crate::packed::Packing;
use crate::program::{Program, Scope};
use crate::schedule::{LoopRef, Schedule};
use crate::task::Task;

type Result<T> = std::result::Result<T, StepError>;

/// The place that a loop variable stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Loop(LoopRef),
    Root,
    Inline,
}

/// A schedule, its trace, and the values of the trace's variables.
#[derive(Clone, PartialEq, Debug)]
pub struct Recorder {
    pub(super) schedule: Schedule,
    pub(super) trace: Trace,
    pub(super) blocks: Vec<Option<String>>,
    pub(super) loops: Vec<Option<Place>>,
    pub(super) values: Vec<Option<i64>>,
    /// The number of the next variable of any kind.
    pub(super) next: u32,
    /// The task that is scheduled, if it is known. An `Algorithm` instruction replaces it by the
    /// task that it makes.
    pub(crate) task: Option<Arc<Task>>,
    /// How the constants of `task` are made from the original ones.
    pub(super) prepared: Vec<Packing>,
    /// Constants that instructions packed.
    pub(super) packed: Vec<Packing>,
    /// Constants that are packed, once nothing more follows from the trace.
    pub(super) packings: Option<Vec<Packing>>,
    /// The place that the decision about a block stands for, found when it was made or checked.
    pub(super) found: Cell<Option<(BlockVar, i64, Place)>>,
}

impl Recorder {
    pub fn new(program: Program) -> Recorder {
        Recorder::resume(Schedule::new(program))
    }

    /// A recorder of the task's naive program; it alone can compute it by an algorithm.
    pub fn of_task(task: Arc<Task>) -> Recorder {
        let mut recorder = Recorder::new(task.naive());
        recorder.task = Some(task);
        recorder
    }

    /// Goes on with a schedule that something was done to, which the trace does not tell.
    pub(crate) fn resume(schedule: Schedule) -> Recorder {
        Recorder {
            schedule,
            trace: Trace::default(),
            blocks: vec![],
            loops: vec![],
            values: vec![],
            next: 0,
            task: None,
            prepared: vec![],
            packed: vec![],
            packings: None,
            found: Cell::new(None),
        }
    }

    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The packed constants of a program that is complete, and is not to be postprocessed.
    pub fn packings(&self) -> Option<&Vec<Packing>> {
        self.packings.as_ref()
    }

    /// How an algorithm prepares constants, before they are packed.
    pub fn prepared(&self) -> &[Packing] {
        &self.prepared
    }

    /// Constants that instructions have packed so far.
    pub(crate) fn packed(&self) -> &[Packing] {
        &self.packed
    }

    pub fn into_parts(self) -> (Schedule, Trace) {
        (self.schedule, self.trace)
    }

    pub(super) fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }
}

impl Recorder {
    /// How many of the loops around a block are of its reduction.
    pub(crate) fn reduced(&self, block: BlockVar) -> Result<usize> {
        Ok(self.schedule.reduction_loops(self.block_name(block)?)?.len())
    }

    /// Names of the workspaces in memory that a block writes.
    pub(crate) fn workspaces(&self, block: BlockVar) -> Result<Vec<String>> {
        let program = self.schedule.program();
        let written = self.schedule.block(self.block_name(block)?)?.body.writes();
        let buffers = written.into_iter().map(|access| program.buffer(access.buffer));
        let shared = buffers.filter(|buffer| buffer.scope == Scope::Global);
        Ok(shared.map(|buffer| buffer.name.clone()).collect())
    }

    /// The name of the block that a variable stands for.
    pub(crate) fn name_of(&self, block: BlockVar) -> Result<String> {
        Ok(self.block_name(block)?.to_owned())
    }

    /// The name of the only block under a loop.
    pub(crate) fn block_under(&self, target: LoopVar) -> Result<String> {
        let mut names = vec![];
        let l = self.schedule.for_loop(self.loop_ref(target)?)?;
        l.body.iter().for_each(|s| s.visit_blocks(&mut |b| names.push(b.name.clone())));
        match names.len() {
            1 => Ok(names.swap_remove(0)),
            _ => Err(StepError::NoChoice),
        }
    }

    pub fn extent(&self, target: LoopVar) -> Result<usize> {
        Ok(self.schedule.extent(self.loop_ref(target)?)?)
    }
}

/// Sampling.
impl Recorder {
    pub fn sample_perfect_tile(
        &mut self,
        target: LoopVar,
        parts: usize,
        max_innermost: usize,
        random: &mut dyn Rng,
    ) -> Result<Vec<ValueVar>> {
        let out: Vec<ValueVar> = (0..parts).map(|_| ValueVar(self.fresh())).collect();
        let instruction = Instruction::SamplePerfectTile {
            target,
            max_innermost,
            out: out.clone(),
            decision: None,
        };
        self.sample(instruction, random)?;
        Ok(out)
    }

    /// Like [`sample_perfect_tile`](Self::sample_perfect_tile), but the lengths may cover a little
    /// more than the extent.
    pub fn sample_tile(
        &mut self,
        target: LoopVar,
        parts: usize,
        max_innermost: usize,
        random: &mut dyn Rng,
    ) -> Result<Vec<ValueVar>> {
        let out: Vec<ValueVar> = (0..parts).map(|_| ValueVar(self.fresh())).collect();
        let instruction =
            Instruction::SampleTile { target, max_innermost, out: out.clone(), decision: None };
        self.sample(instruction, random)?;
        Ok(out)
    }

    pub fn sample_categorical(
        &mut self,
        candidates: &[i64],
        weights: &[f64],
        random: &mut dyn Rng,
    ) -> Result<ValueVar> {
        let out = ValueVar(self.fresh());
        let (candidates, weights) = (candidates.to_vec(), weights.to_vec());
        let instruction =
            Instruction::SampleCategorical { candidates, weights, out, decision: None };
        self.sample(instruction, random)?;
        Ok(out)
    }

    /// The first of the candidates, any of which may be chosen later.
    pub fn sample_first(&mut self, candidates: &[i64]) -> Result<ValueVar> {
        let out = ValueVar(self.fresh());
        let weights = vec![1.0 / candidates.len() as f64; candidates.len()];
        let decision = Some(Decision::Choice(0));
        let candidates = candidates.to_vec();
        self.plain(Instruction::SampleCategorical { candidates, weights, out, decision })?;
        Ok(out)
    }

    pub fn sample_compute_location(
        &mut self,
        block: BlockVar,
        random: &mut dyn Rng,
    ) -> Result<LoopVar> {
        let out = LoopVar(self.fresh());
        let instruction = Instruction::SampleComputeLocation { block, out, decision: None };
        self.sample(instruction, random)?;
        Ok(out)
    }

    /// The decision of the sampling instruction that was executed last.
    pub fn last_decision(&self) -> Option<&Decision> {
        self.trace.steps.iter().rev().find_map(Instruction::decision)
    }
}

/// Variables that no instruction defined before.
pub(super) trait Fresh {
    /// A list has `count` of them.
    fn fresh(recorder: &mut Recorder, count: usize) -> Self;
}

impl Fresh for BlockVar {
    fn fresh(recorder: &mut Recorder, _: usize) -> BlockVar {
        BlockVar(recorder.fresh())
    }
}

impl Fresh for LoopVar {
    fn fresh(recorder: &mut Recorder, _: usize) -> LoopVar {
        LoopVar(recorder.fresh())
    }
}

impl Fresh for Vec<LoopVar> {
    fn fresh(recorder: &mut Recorder, count: usize) -> Vec<LoopVar> {
        (0..count).map(|_| LoopVar(recorder.fresh())).collect()
    }
}
