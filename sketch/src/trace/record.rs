//! A schedule that writes down what is done to it.
//!
//! The methods are those of [`Schedule`], on variables in place of names and loops.

use std::cell::Cell;
use std::sync::Arc;

use rand::Rng;

use super::instruction::{BlockVar, Decision, Instruction, LoopVar, Note, Number, ValueVar};
use super::{StepError, Trace};
use crate::algorithm::Algorithm;
use crate::default::Knob;
use crate::packed::Packing;
use crate::program::{Program, Scope, ThreadAxis};
use crate::schedule::{LoopRef, Schedule};
use crate::task::Task;

type Result<T> = std::result::Result<T, StepError>;

/// What a loop variable stands for.
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
    /// What is scheduled, where that is known; after an [`Algorithm`], what that made of it.
    pub(crate) task: Option<Arc<Task>>,
    /// What the constants of `task` are made of.
    pub(super) prepared: Vec<Packing>,
    /// Constants that the default schedule packs, once it was applied.
    pub(super) packings: Option<Vec<Packing>>,
    /// What the decision about a block's place means, found when it was made or checked.
    pub(super) found: Cell<Option<(BlockVar, i64, Place)>>,
}

impl Recorder {
    pub fn new(program: Program) -> Recorder {
        Recorder {
            schedule: Schedule::new(program),
            trace: Trace::default(),
            blocks: vec![],
            loops: vec![],
            values: vec![],
            next: 0,
            task: None,
            prepared: vec![],
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

    /// What an algorithm makes of constants, before they are packed.
    pub fn prepared(&self) -> &[Packing] {
        &self.prepared
    }

    pub fn into_parts(self) -> (Schedule, Trace) {
        (self.schedule, self.trace)
    }

    pub(super) fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn new_loops(&mut self, n: usize) -> Vec<LoopVar> {
        (0..n).map(|_| LoopVar(self.fresh())).collect()
    }
}

/// Questions.
impl Recorder {
    pub fn get_block(&mut self, name: &str) -> Result<BlockVar> {
        let out = BlockVar(self.fresh());
        self.plain(Instruction::GetBlock { name: name.to_owned(), out })?;
        Ok(out)
    }

    pub fn get_loops(&mut self, block: BlockVar) -> Result<Vec<LoopVar>> {
        let name = self.block_name(block)?.to_owned();
        let n = self.schedule.loops(&name)?.len();
        let out = self.new_loops(n);
        self.plain(Instruction::GetLoops { block, out: out.clone() })?;
        Ok(out)
    }
}

impl Recorder {
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

    /// Like [`sample_perfect_tile`](Self::sample_perfect_tile), but the lengths may cover a little more than
    /// the extent.
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

/// Loops.
impl Recorder {
    pub fn split(&mut self, target: LoopVar, factors: &[Number]) -> Result<Vec<LoopVar>> {
        let out = self.new_loops(factors.len());
        let factors = factors.to_vec();
        self.plain(Instruction::Split { target, factors, out: out.clone() })?;
        Ok(out)
    }

    pub fn fuse(&mut self, loops: &[LoopVar]) -> Result<LoopVar> {
        let out = LoopVar(self.fresh());
        self.plain(Instruction::Fuse { loops: loops.to_vec(), out })?;
        Ok(out)
    }

    pub fn reorder(&mut self, loops: &[LoopVar]) -> Result<()> {
        self.plain(Instruction::Reorder { loops: loops.to_vec() })
    }

    pub fn parallel(&mut self, target: LoopVar) -> Result<()> {
        self.plain(Instruction::Parallel { target })
    }

    pub fn vectorize(&mut self, target: LoopVar) -> Result<()> {
        self.plain(Instruction::Vectorize { target })
    }

    pub fn unroll(&mut self, target: LoopVar) -> Result<()> {
        self.plain(Instruction::Unroll { target })
    }

    pub fn bind(&mut self, target: LoopVar, axis: ThreadAxis) -> Result<()> {
        self.plain(Instruction::Bind { target, axis })
    }

    pub fn add_unit_loop(&mut self, block: BlockVar) -> Result<LoopVar> {
        let out = LoopVar(self.fresh());
        self.plain(Instruction::AddUnitLoop { block, out })?;
        Ok(out)
    }

    pub fn annotate_loop(&mut self, target: LoopVar, key: &str, value: Number) -> Result<()> {
        self.plain(Instruction::AnnotateLoop { target, key: key.to_owned(), value })
    }
}

/// Blocks.
impl Recorder {
    pub fn cache_read(&mut self, block: BlockVar, buffer: &str, scope: Scope) -> Result<BlockVar> {
        let out = BlockVar(self.fresh());
        self.plain(Instruction::CacheRead { block, buffer: buffer.to_owned(), scope, out })?;
        Ok(out)
    }

    pub fn cache_write(&mut self, block: BlockVar, scope: Scope) -> Result<BlockVar> {
        let out = BlockVar(self.fresh());
        self.plain(Instruction::CacheWrite { block, scope, out })?;
        Ok(out)
    }

    pub fn set_scope(&mut self, buffer: &str, scope: Scope) -> Result<()> {
        self.plain(Instruction::SetScope { buffer: buffer.to_owned(), scope })
    }

    /// At a sampled location this may leave the block where it is, or inline it.
    pub fn compute_at(&mut self, block: BlockVar, target: LoopVar) -> Result<()> {
        self.plain(Instruction::ComputeAt { block, target })
    }

    pub fn reverse_compute_at(&mut self, block: BlockVar, target: LoopVar) -> Result<()> {
        self.plain(Instruction::ReverseComputeAt { block, target })
    }

    pub fn compute_inline(&mut self, block: BlockVar) -> Result<()> {
        self.plain(Instruction::ComputeInline { block })
    }

    pub fn reverse_compute_inline(&mut self, block: BlockVar) -> Result<()> {
        self.plain(Instruction::ReverseComputeInline { block })
    }

    pub fn decompose_reduction(&mut self, block: BlockVar, target: LoopVar) -> Result<BlockVar> {
        let out = BlockVar(self.fresh());
        self.plain(Instruction::DecomposeReduction { block, target, out })?;
        Ok(out)
    }

    /// The block that reduces partially; `block` goes on to name the one that does the rest.
    pub fn rfactor(&mut self, block: BlockVar, target: LoopVar, axis: usize) -> Result<BlockVar> {
        let out = BlockVar(self.fresh());
        self.plain(Instruction::Rfactor { block, target, axis, out })?;
        Ok(out)
    }

    pub fn pad(&mut self, block: BlockVar, iter: usize, multiple: usize) -> Result<()> {
        self.plain(Instruction::Pad { block, iter, multiple })
    }

    pub fn annotate(&mut self, block: BlockVar, key: &str, value: Note) -> Result<()> {
        self.plain(Instruction::Annotate { block, key: key.to_owned(), value })
    }

    /// Goes on with the naive program of the subgraph computed by another algorithm.
    pub fn algorithm(&mut self, algorithm: Algorithm) -> Result<()> {
        self.plain(Instruction::Algorithm { algorithm })
    }

    pub fn default_schedule(&mut self, knobs: &[(Knob, Number)]) -> Result<()> {
        self.plain(Instruction::DefaultSchedule { knobs: knobs.to_vec() })
    }

    pub fn unannotate(&mut self, block: BlockVar, key: &str) -> Result<()> {
        self.plain(Instruction::Unannotate { block, key: key.to_owned() })
    }
}
