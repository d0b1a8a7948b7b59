//! The effect of each instruction on the schedule.

use std::sync::Arc;

use rand::Rng;

use super::instruction::{BlockVar, Decision, LoopVar, Note, Number, Outputs, ValueVar};
use super::near::{is_near_tile, sample_near_tile};
use super::record::{Place, Recorder};
use super::sample::{locations, sample_index, sample_tile};
use super::table::{Instruction, decides_nothing};
use super::{StepError, Unfit};
use crate::algorithm::Algorithm;
use crate::budget::{self, BUDGET};
use crate::choices;
use crate::finish;
use crate::gpu::lower;
use crate::index_map::IndexMap;
use crate::notes;
use crate::packed::in_turn;
use crate::program::{ForKind, Program};
use crate::schedule::{self, Annotation, LoopRef, Panels, Schedule};
use crate::tree;

type Result<T> = std::result::Result<T, StepError>;

/// The value of the variables of an instruction that decides nothing.
pub(super) enum Made {
    Nothing,
    Block(String),
    Loop(LoopRef),
    Loops(Vec<LoopRef>),
}

impl From<()> for Made {
    fn from((): ()) -> Made {
        Made::Nothing
    }
}

impl From<String> for Made {
    fn from(name: String) -> Made {
        Made::Block(name)
    }
}

impl From<LoopRef> for Made {
    fn from(l: LoopRef) -> Made {
        Made::Loop(l)
    }
}

impl From<Vec<LoopRef>> for Made {
    fn from(loops: Vec<LoopRef>) -> Made {
        Made::Loops(loops)
    }
}

impl Recorder {
    /// Executes one instruction of a trace and appends it, with the decision that was made.
    pub(super) fn step(
        &mut self,
        mut instruction: Instruction,
        unfit: Unfit,
        random: &mut dyn Rng,
    ) -> Result<()> {
        self.reserve(&instruction);
        self.found.set(None);
        match instruction.decision() {
            _ if !instruction.is_sampling() => self.plain(instruction),
            Some(made) if self.fits(&instruction, made)? => self.plain(instruction),
            Some(_) if unfit == Unfit::Refuse => Err(StepError::Unfit),
            Some(made)
                if unfit == Unfit::Adapt
                    && let Some(adapted) = self.adapt(&instruction, made)? =>
            {
                instruction.set_decision(Some(adapted));
                self.plain(instruction)
            }
            _ => self.sample(instruction, random),
        }
    }

    /// Executes an instruction that decides nothing, or whose decision is made.
    pub(super) fn plain(&mut self, instruction: Instruction) -> Result<()> {
        self.execute(&instruction)?;
        self.trace.steps.push(instruction);
        Ok(())
    }

    /// Executes a sampling instruction with a decision drawn anew.
    pub(super) fn sample(
        &mut self,
        mut instruction: Instruction,
        random: &mut dyn Rng,
    ) -> Result<()> {
        let decision = self.draw(&instruction, random)?.ok_or(StepError::NoChoice)?;
        instruction.set_decision(Some(decision));
        self.plain(instruction)
    }

    /// Later variables are not mistaken for those of a replayed instruction.
    fn reserve(&mut self, instruction: &Instruction) {
        let last = instruction.outputs().last();
        self.next = self.next.max(last.map_or(0, |v| v + 1));
    }
}

/// The effects of instructions.
impl Recorder {
    pub(super) fn on_loop<T>(
        &mut self,
        target: LoopVar,
        apply: impl FnOnce(&mut Schedule, LoopRef) -> schedule::Result<T>,
    ) -> Result<T> {
        let target = self.loop_ref(target)?;
        Ok(apply(&mut self.schedule, target)?)
    }

    /// The same of two loops.
    pub(super) fn on_two_loops<T>(
        &mut self,
        first: LoopVar,
        second: LoopVar,
        apply: impl FnOnce(&mut Schedule, LoopRef, LoopRef) -> schedule::Result<T>,
    ) -> Result<T> {
        let second = self.loop_ref(second)?;
        self.on_loop(first, |schedule, first| apply(schedule, first, second))
    }

    pub(super) fn on_block<T>(
        &mut self,
        block: BlockVar,
        apply: impl FnOnce(&mut Schedule, &str) -> schedule::Result<T>,
    ) -> Result<T> {
        let name = self.block_name(block)?.to_owned();
        Ok(apply(&mut self.schedule, &name)?)
    }

    /// Something is done to a block at a loop.
    pub(super) fn at_loop<T>(
        &mut self,
        block: BlockVar,
        target: LoopVar,
        apply: impl FnOnce(&mut Schedule, &str, LoopRef) -> schedule::Result<T>,
    ) -> Result<T> {
        let target = self.loop_ref(target)?;
        self.on_block(block, |schedule, name| apply(schedule, name, target))
    }

    pub(super) fn scan_at(
        &mut self,
        block: BlockVar,
        target: LoopVar,
        place: LoopVar,
    ) -> Result<String> {
        let place = self.loop_ref(place)?;
        self.at_loop(block, target, |schedule, name, l| schedule.scan(name, l, place))
    }

    pub(super) fn find_block(&mut self, name: &str) -> Result<String> {
        self.schedule.block(name)?;
        Ok(name.to_owned())
    }

    pub(super) fn find_loops(&mut self, block: BlockVar) -> Result<Vec<LoopRef>> {
        Ok(self.schedule.loops(self.block_name(block)?)?)
    }

    pub(super) fn split_loop(
        &mut self,
        target: LoopVar,
        factors: &[Number],
    ) -> Result<Vec<LoopRef>> {
        let factors = factors.iter().map(|&f| self.length(f)).collect::<Result<Vec<_>>>()?;
        Ok(self.schedule.split(self.loop_ref(target)?, &factors)?)
    }

    pub(super) fn split_loop_by(
        &mut self,
        target: LoopVar,
        inner: &[Number],
    ) -> Result<Vec<LoopRef>> {
        let inner = self.product(inner)?;
        Ok(self.schedule.split(self.loop_ref(target)?, &[0, inner])?)
    }

    pub(super) fn inline_for(&mut self, block: BlockVar, reader: BlockVar) -> Result<()> {
        let reader = self.block_name(reader)?.to_owned();
        self.on_block(block, |s, name| s.inline_into(name, &reader))
    }

    pub(super) fn pad_iter(
        &mut self,
        block: BlockVar,
        iter: usize,
        factors: &[Number],
    ) -> Result<()> {
        let factors = factors.iter().map(|&f| self.length(f)).collect::<Result<Vec<_>>>()?;
        let multiple = factors.into_iter().try_fold(1usize, usize::checked_mul);
        // A product that overflows becomes `usize::MAX`, which is too large for an iterator.
        self.on_block(block, |s, name| s.pad(name, iter, multiple.unwrap_or(usize::MAX)))
    }

    pub(super) fn pack_for(
        &mut self,
        block: BlockVar,
        buffer: &str,
        map: &IndexMap,
        (axis, width): (usize, &[Number]),
    ) -> Result<String> {
        let panels = Panels { axis, width: self.product(width)? };
        self.on_block(block, |s, name| s.pack_panels(name, buffer, map, panels))
    }

    pub(super) fn pack_constant(
        &mut self,
        buffer: &str,
        map: &IndexMap,
        (axis, width): (usize, &[Number]),
    ) -> Result<()> {
        let panels = Panels { axis, width: self.product(width)? };
        let packing = self.schedule.pack_input_panels(buffer, map, panels)?;
        let task = self.task.as_ref().ok_or(StepError::NoTask)?;
        if !task.constant.get(packing.param).copied().unwrap_or(false) {
            return Err(StepError::Unfit);
        }
        self.packed = in_turn(std::mem::take(&mut self.packed), vec![packing]);
        Ok(())
    }

    pub(super) fn fuse_nests_of(
        &mut self,
        outer: &str,
        more: &str,
        few: Number,
        kind: ForKind,
    ) -> Result<()> {
        let few = self.length(few)?;
        match kind {
            ForKind::Parallel => self.schedule.parallel_nests(outer, more, few)?,
            _ => self.schedule.fuse_nests(outer, more, few)?,
        }
        Ok(())
    }

    pub(super) fn slice_by(&mut self, lengths: &[Number], key: &str) -> Result<()> {
        let lengths = lengths.iter().map(|&n| self.length(n)).collect::<Result<Vec<_>>>()?;
        Ok(self.schedule.slice(&lengths, key)?)
    }

    pub(super) fn fuse_loops(&mut self, loops: &[LoopVar]) -> Result<LoopRef> {
        Ok(self.schedule.fuse(&self.loop_refs(loops)?)?)
    }

    pub(super) fn reorder_loops(&mut self, loops: &[LoopVar]) -> Result<()> {
        Ok(self.schedule.reorder(&self.loop_refs(loops)?)?)
    }

    pub(super) fn annotate_at_loop(
        &mut self,
        target: LoopVar,
        key: &str,
        value: Number,
    ) -> Result<()> {
        let value = Annotation::Int(self.number(value)?);
        self.on_loop(target, |s, l| s.annotate_loop(l, key, value))
    }

    pub(super) fn annotate_block(
        &mut self,
        block: BlockVar,
        key: &str,
        value: &Note,
    ) -> Result<()> {
        let value = match value {
            Note::Number(number) => Annotation::Int(self.number(*number)?),
            Note::Fixed(value) => value.clone(),
        };
        self.on_block(block, |s, name| s.annotate(name, key, value))
    }

    /// Notes of loops are not kept: this comes last.
    pub(super) fn part_choices(&mut self) -> Result<()> {
        let task = self.task.clone().ok_or(StepError::NoTask)?;
        let parted = choices::apart(self.schedule.program().clone(), &task.machine);
        self.schedule = Schedule::new(parted);
        Ok(())
    }

    /// If that becomes no more code than a kernel may have, and a GPU takes it.
    pub(super) fn complete_program(&mut self) -> Result<()> {
        let task = self.task.clone().ok_or(StepError::NoTask)?;
        if task.gpu.is_some() {
            notes::pipeline_all(&mut self.schedule);
        }
        let mut program = finish(self.schedule.program().clone());
        match &task.gpu {
            None => {
                if budget::check(&program, &task.machine).is_err() {
                    program = budget::fitted(program, &task.machine, BUDGET);
                }
                budget::check(&program, &task.machine)?;
            }
            Some(limits) => {
                // Code that is not written out becomes no less in any other way.
                if writes_out(&program) {
                    budget::check(&program, &budget::GPU)?;
                }
                lower(&program, limits)?;
            }
        }
        self.schedule = Schedule::new(program);
        self.packings.get_or_insert_with(|| self.packed.clone());
        Ok(())
    }

    pub(super) fn compute_by(&mut self, algorithm: Algorithm) -> Result<()> {
        let task = self.task.clone().ok_or(StepError::NoTask)?;
        let made = algorithm.rewrite(&task).ok_or(StepError::DoesNotApply(algorithm))?;
        self.schedule = Schedule::new(made.task.naive());
        self.task = Some(Arc::new(made.task));
        self.prepared = in_turn(std::mem::take(&mut self.prepared), made.prepared);
        self.packed = vec![];
        self.packings = None;
        Ok(())
    }

    pub(super) fn compute_at_place(&mut self, block: BlockVar, target: LoopVar) -> Result<()> {
        let name = self.block_name(block)?.to_owned();
        match self.place(target)? {
            Place::Root => {}
            Place::Inline => self.schedule.compute_inline(&name)?,
            Place::Loop(l) => self.schedule.compute_at(&name, l)?,
        }
        Ok(())
    }
}

/// Decisions.
impl Recorder {
    pub(super) fn fits(&self, instruction: &Instruction, decision: &Decision) -> Result<bool> {
        use Instruction::*;
        Ok(match (instruction, decision) {
            (SamplePerfectTile { target, max_innermost, out, .. }, Decision::Tile(tile)) => {
                let extent = self.schedule.extent(self.loop_ref(*target)?)?;
                let product = tile.iter().try_fold(1usize, |n, &length| n.checked_mul(length));
                tile.len() == out.len()
                    && product == Some(extent)
                    && tile.last().is_some_and(|inner| inner <= max_innermost)
            }
            (SampleTile { target, max_innermost, out, .. }, Decision::Tile(tile)) => {
                let extent = self.schedule.extent(self.loop_ref(*target)?)?;
                tile.len() == out.len() && is_near_tile(tile, extent, *max_innermost)
            }
            (SampleCategorical { candidates, .. }, Decision::Choice(index)) => {
                usize::try_from(*index).is_ok_and(|index| index < candidates.len())
            }
            (SampleComputeLocation { block, .. }, Decision::Choice(choice)) => {
                let place = self.location(*block, *choice)?;
                self.found.set(place.map(|place| (*block, *choice, place)));
                place.is_some()
            }
            _ => false,
        })
    }

    fn draw(&self, instruction: &Instruction, random: &mut dyn Rng) -> Result<Option<Decision>> {
        use Instruction::*;
        let choice = |index: usize| Decision::Choice(index as i64);
        Ok(match instruction {
            SamplePerfectTile { target, max_innermost, out, .. } => {
                let extent = self.schedule.extent(self.loop_ref(*target)?)?;
                sample_tile(extent, out.len(), *max_innermost, random).map(Decision::Tile)
            }
            SampleTile { target, max_innermost, out, .. } => {
                let extent = self.schedule.extent(self.loop_ref(*target)?)?;
                sample_near_tile(extent, out.len(), *max_innermost, random).map(Decision::Tile)
            }
            SampleCategorical { candidates, weights, .. } => {
                let (candidates, weights_given) = (candidates.len(), weights.len());
                if candidates != weights_given {
                    return Err(StepError::Weights { candidates, weights: weights_given });
                }
                sample_index(weights, random).map(choice)
            }
            SampleComputeLocation { block, .. } => {
                let loops: Vec<LoopRef> =
                    locations(&self.schedule, self.block_name(*block)?).collect();
                let candidates = loops.len();
                let inlinable = self.can_inline(*block)?;
                let options = candidates + 1 + usize::from(inlinable);
                let drawn = sample_index(&vec![1.0; options], random).map(|i| i as i64);
                let choice = drawn.map(|i| i - options as i64 + candidates as i64);
                let at = choice.and_then(|choice| loops.get(usize::try_from(choice).ok()?));
                self.found.set(choice.zip(at).map(|(c, l)| (*block, c, Place::Loop(*l))));
                choice.map(Decision::Choice)
            }
            decides_nothing!() => None,
        })
    }

    pub(super) fn can_inline(&self, block: BlockVar) -> Result<bool> {
        Ok(self.schedule.clone().compute_inline(self.block_name(block)?).is_ok())
    }

    fn location(&self, block: BlockVar, choice: i64) -> Result<Option<Place>> {
        Ok(match choice {
            Decision::ROOT => Some(Place::Root),
            Decision::INLINE => self.can_inline(block)?.then_some(Place::Inline),
            index => {
                let mut all = locations(&self.schedule, self.block_name(block)?);
                usize::try_from(index).ok().and_then(|i| all.nth(i)).map(Place::Loop)
            }
        })
    }

    pub(super) fn define_decision(&mut self, instruction: &Instruction) -> Result<()> {
        use Instruction::*;
        match (instruction, instruction.decision()) {
            (
                SamplePerfectTile { out, .. } | SampleTile { out, .. },
                Some(Decision::Tile(tile)),
            ) => {
                for (var, &length) in out.iter().zip(tile) {
                    define(&mut self.values, var.0, length as i64);
                }
            }
            (SampleCategorical { candidates, out, .. }, Some(Decision::Choice(index))) => {
                define(&mut self.values, out.0, candidates[*index as usize]);
            }
            (SampleComputeLocation { block, out, .. }, Some(Decision::Choice(choice))) => {
                let place = match self.found.take() {
                    Some((b, c, place)) if (b, c) == (*block, *choice) => place,
                    _ => self.location(*block, *choice)?.ok_or(StepError::Unfit)?,
                };
                define(&mut self.loops, out.0, place);
            }
            _ => return Err(StepError::Unfit),
        }
        Ok(())
    }
}

/// Variables.
impl Recorder {
    pub(super) fn block_name(&self, var: BlockVar) -> Result<&str> {
        let name = self.blocks.get(var.0 as usize).and_then(Option::as_deref);
        name.ok_or_else(|| StepError::Undefined(var.to_string()))
    }

    fn place(&self, var: LoopVar) -> Result<Place> {
        let place = self.loops.get(var.0 as usize).copied().flatten();
        place.ok_or_else(|| StepError::Undefined(var.to_string()))
    }

    pub(crate) fn loop_ref(&self, var: LoopVar) -> Result<LoopRef> {
        match self.place(var)? {
            Place::Loop(l) => Ok(l),
            Place::Root | Place::Inline => Err(StepError::NotALoop),
        }
    }

    fn loop_refs(&self, vars: &[LoopVar]) -> Result<Vec<LoopRef>> {
        vars.iter().map(|&v| self.loop_ref(v)).collect()
    }

    fn value(&self, var: ValueVar) -> Result<i64> {
        let value = self.values.get(var.0 as usize).copied().flatten();
        value.ok_or_else(|| StepError::Undefined(var.to_string()))
    }

    pub(super) fn number(&self, number: Number) -> Result<i64> {
        match number {
            Number::Known(value) => Ok(value),
            Number::Var { var } => self.value(var),
        }
    }

    /// The product of the numbers. A product that overflows is too large for any buffer.
    fn product(&self, numbers: &[Number]) -> Result<usize> {
        let numbers = numbers.iter().map(|&n| self.length(n)).collect::<Result<Vec<_>>>()?;
        let product = numbers.into_iter().try_fold(1usize, usize::checked_mul);
        product.ok_or(StepError::Unfit)
    }

    fn length(&self, number: Number) -> Result<usize> {
        let value = self.number(number)?;
        usize::try_from(value).map_err(|_| StepError::NotALength(value))
    }

    /// Gives the variables of an instruction the values that it made.
    pub(super) fn define(&mut self, outputs: Outputs<'_>, made: Made) -> Result<()> {
        match (outputs, made) {
            (Outputs::None, Made::Nothing) => Ok(()),
            (Outputs::Block(var), Made::Block(name)) => {
                define(&mut self.blocks, var.0, name);
                Ok(())
            }
            (Outputs::Loop(var), Made::Loop(l)) => self.define_loops(&[var], &[l]),
            (Outputs::Loops(vars), Made::Loops(loops)) => self.define_loops(vars, &loops),
            _ => Err(StepError::Unfit),
        }
    }

    /// The loops must be as many as the variables: a trace from another program may expect others.
    pub(super) fn define_loops(&mut self, vars: &[LoopVar], loops: &[LoopRef]) -> Result<()> {
        if vars.len() != loops.len() {
            return Err(StepError::Unfit);
        }
        for (var, &l) in vars.iter().zip(loops) {
            define(&mut self.loops, var.0, Place::Loop(l));
        }
        Ok(())
    }
}

/// Whether loops are vectors, or written out.
fn writes_out(program: &Program) -> bool {
    let mut found = false;
    tree::visit_loops(&program.body, &mut |l| {
        found |= matches!(l.kind, ForKind::Unrolled | ForKind::Vectorized);
    });
    found
}

pub(super) fn define<T: Clone>(table: &mut Vec<Option<T>>, index: u32, value: T) {
    let index = index as usize;
    if table.len() <= index {
        table.resize(index + 1, None);
    }
    table[index] = Some(value);
}
