//! The sketch of a subgraph for a GPU whose first candidates are what nobody tuned gets.
//!
//! 1. Stages that only move or cheaply transform elements vanish into their readers, as on a CPU.
//! 2. Neighbouring stages that agree on their leading axes (softmax, layer normalisation), and long
//!    reductions, have a block of threads for each row (`rows`).
//! 3. A reduction that uses elements more than once becomes a nest with tiles of the operands in
//!    shared memory and of the result in registers, with its epilogue (`tile`).
//! 4. Other long reductions with few results, such as of a matrix and a vector, are shared by
//!    threads (`split`).
//!
//! Where blocks of threads would be too few, both cut sums into parts (`parts`).
//!
//! 5. Everything else has a thread for each element, or for four (`points`).
//!
//! ```text
//! y[v0, v1] = exp(x[v0, v1] + b[v1])
//! =>
//! b0 = get_block("y"); l1, l2 = get_loops(b0); l3 = fuse([l1, l2])
//! v4 = sample_categorical([4, 2, 1]); l5, l6 = split(l3, [0, v4])
//! v7 = sample_categorical([256, 64, 128, 512]); l8, l9 = split(l5, [0, v7])
//! bind(l8, block_x); bind(l9, thread_x); vectorize(l6); complete()
//! ```
//!
//! A schedule that does not fit the device, or would become too much code, gives way to a simpler
//! one, at last to a thread for each element of each stage.

mod groups;
mod parts;
mod points;
mod rows;
mod split;
mod terms;
mod tile;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::{Nests, inline_all};
use crate::finish::finish;
use crate::gpu::{GpuLimits, lower};
use crate::inline::{self, Padding};
use crate::notes::pipeline_all;
use crate::program::{ForKind, IterKind, Scope, ThreadAxis};
use crate::rules::{Sketch, elementwise_consumer};
use crate::schedule::Schedule;
use crate::scheduled::Scheduled;
use crate::task::Task;
use crate::trace::{BlockVar, LoopVar, Number, Recorder, StepError};

pub(crate) use points::{Lengths, bind_points};

type Result<T> = std::result::Result<T, StepError>;

/// How much a schedule tries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// All that rules know.
    All,
    /// A thread for each element, or for several.
    Points,
    /// A thread for each element.
    Elements,
    /// The same for every stage, none of which vanishes.
    Stages,
}

/// The sketch, with the program that it is by its first candidates. An error tells what is in the
/// way of the simplest schedule.
pub(crate) fn sketch(task: &Arc<Task>) -> Result<(Sketch, Scheduled)> {
    let limits = task.gpu.as_ref().ok_or(StepError::NoGpu)?;
    attempt(task, limits, Effort::All)
        .or_else(|_| attempt(task, limits, Effort::Points))
        .or_else(|_| attempt(task, limits, Effort::Elements))
        .or_else(|_| attempt(task, limits, Effort::Stages))
}

fn attempt(task: &Arc<Task>, limits: &GpuLimits, effort: Effort) -> Result<(Sketch, Scheduled)> {
    let mut rules: Vec<String> = vec![];
    let mut recorder = Recorder::of_task(task.clone());
    if effort != Effort::Stages {
        inline_all(&mut recorder, &inline::inlined(&task.compute, Padding::Kept).1)?;
    }
    if effort == Effort::All {
        let (nests, count) = rows(Nests::of(recorder)?, limits);
        recorder = nests.recorder;
        rules = vec!["rows".to_owned(); count];
    }
    let lengths = match effort {
        Effort::All | Effort::Points => Lengths::Vectors,
        Effort::Elements | Effort::Stages => Lengths::Elements,
    };
    for block in recorder.schedule().blocks() {
        if !is_unbound(recorder.schedule(), &block) || is_empty(recorder.schedule(), &block) {
            continue;
        }
        let by_rule = |recorder: &mut Recorder| match effort {
            Effort::All if tile::apply(recorder, &block, limits) => Some("tile"),
            Effort::All if split::apply(recorder, &block, limits) => Some("split"),
            _ => bind_points(recorder, &block, limits, lengths).then_some("points"),
        };
        rules.extend(by_rule(&mut recorder).map(str::to_owned));
    }
    if rules.is_empty() {
        // There is one element, or none.
        rules.push("one thread".to_owned());
    }
    recorder.complete()?;
    let (schedule, trace) = recorder.into_parts();
    let scheduled = Scheduled { program: schedule.into_program(), packings: vec![] };
    Ok((Sketch { trace, rules }, scheduled))
}

/// Rows, wherever there are any, and how many nests of them.
fn rows(mut nests: Nests, limits: &GpuLimits) -> (Nests, usize) {
    let (mut stage, mut count) = (0, 0);
    while stage < nests.compute.stages.len() {
        let mut changed = nests.clone();
        match rows::apply(&mut changed, stage, limits) {
            Ok(Some(stages)) => {
                (nests, stage, count) = (changed, stage + stages, count + 1);
            }
            _ => stage += 1,
        }
    }
    (nests, count)
}

/// Whether no loop around the block is bound.
fn is_unbound(schedule: &Schedule, block: &str) -> bool {
    let is_bound = |l| schedule.for_loop(l).is_ok_and(|l| matches!(l.kind, ForKind::Bound(_)));
    schedule.loops(block).is_ok_and(|loops| !loops.into_iter().any(is_bound))
}

/// Whether the block computes nothing: its nest is no kernel.
fn is_empty(schedule: &Schedule, block: &str) -> bool {
    let is_none = |i: &crate::program::Iter| i.kind == IterKind::Spatial && i.extent == 0;
    schedule.block(block).is_ok_and(|b| b.iters.iter().any(is_none))
}

/// Whether a GPU takes the program as it is now.
fn fits(recorder: &Recorder, limits: &GpuLimits) -> bool {
    let mut schedule = recorder.schedule().clone();
    pipeline_all(&mut schedule);
    lower(&finish(schedule.into_program()), limits).is_ok()
}

/// The block that takes the results of a reduction out of registers: the only elementwise reader,
/// or a copy.
fn consumer(r: &mut Recorder, block: &str) -> Result<BlockVar> {
    if let Some(reader) = elementwise_consumer(r.schedule(), block)
        && is_unbound(r.schedule(), &reader)
    {
        let buffer = written(r.schedule(), block)?;
        r.set_scope(&buffer, Scope::Local)?;
        return r.get_block(&reader);
    }
    let block = r.get_block(block)?;
    r.cache_write(block, Scope::Local)
}

/// The name of the buffer that a block writes.
fn written(schedule: &Schedule, block: &str) -> Result<String> {
    let buffer = schedule.block(block)?.body.writes()[0].buffer;
    Ok(schedule.program().buffer(buffer).name.clone())
}

/// Loops of the result's axes, and of the reduction, of a nest with a loop for each iterator.
fn loops(r: &mut Recorder, block: BlockVar) -> Result<(Vec<LoopVar>, Vec<LoopVar>)> {
    let name = r.name_of(block)?;
    let iters = &r.schedule().block(&name)?.iters;
    let is_reduced: Vec<bool> = iters.iter().map(|i| i.kind == IterKind::Reduce).collect();
    let all = r.get_loops(block)?;
    let pairs = || all.iter().zip(&is_reduced);
    let of = |kind: bool| pairs().filter(|(_, r)| **r == kind).map(|(l, _)| *l).collect();
    Ok((of(false), of(true)))
}

/// One loop of several.
fn fused(r: &mut Recorder, loops: &[LoopVar]) -> Result<LoopVar> {
    match loops {
        [one] => Ok(*one),
        several => r.fuse(several),
    }
}

/// Spreads the iterations of a loop over as many threads as the product of the numbers.
fn bind_threads(r: &mut Recorder, l: LoopVar, threads: &[Number]) -> Result<()> {
    // One iteration is for one thread.
    let shared = match r.extent(l)? {
        1 => l,
        _ => r.split_by(l, threads)?[1],
    };
    r.bind(shared, ThreadAxis::ThreadX)
}

/// The first of the candidates, where nobody searches: `first`, and those of `others` that fit.
fn choose(
    r: &mut Recorder,
    first: usize,
    others: &[usize],
    fits: impl Fn(usize) -> bool,
) -> Result<Number> {
    let mut all = vec![first as i64];
    for &other in others.iter().filter(|&&other| fits(other)) {
        if !all.contains(&(other as i64)) {
            all.push(other as i64);
        }
    }
    match all.len() {
        1 => Ok(first.into()),
        _ => Ok(r.sample_first(&all)?.into()),
    }
}
