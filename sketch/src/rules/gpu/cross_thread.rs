//! A reduction with few results is shared by the threads of a block.
//!
//! ```text
//! s[i] = sum[k] a[i, k]
//! =>
//! block_x i { thread_x t { s_rf[t] = sum[ko] a[i, ko * 64 + t] }   s[i] = sum[t] s_rf[t] }
//! ```
//! How many threads is a free decision. The partial results are in shared memory.

use crate::program::{IterKind, Scope, ThreadAxis};
use crate::rules::analysis::{reduction_of, written_buffer};
use crate::rules::{Outcome, Rule, Space, State, elementwise_consumer, needs_tiling};
use crate::trace::{BlockVar, LoopVar, Number, Recorder, StepError};

const THREADS: [i64; 8] = [4, 8, 16, 32, 64, 128, 256, 512];

pub(super) struct CrossThreadReduction;

impl Rule for CrossThreadReduction {
    fn name(&self) -> &str {
        "cross-thread reduction"
    }

    fn apply(&self, space: &Space, state: &State) -> Result<Outcome, StepError> {
        let is_cached = state.cached.iter().any(|c| c == state.stage());
        if is_cached || !is_worthwhile(space, state) {
            return Ok(Outcome::Skip);
        }
        Ok(match shared(space, state) {
            Ok(next) => Outcome::Apply(vec![next]),
            Err(_) => Outcome::Skip,
        })
    }
}

fn is_worthwhile(space: &Space, state: &State) -> bool {
    let schedule = state.recorder.schedule();
    let Some((spatial, reduced)) = reduction_of(schedule, state.stage()) else { return false };
    let Some(limits) = &space.gpu else { return false };
    if needs_tiling(schedule, state.stage()) {
        return spatial <= limits.threads_per_block && spatial < reduced;
    }
    reduced > limits.warp
}

fn shared(space: &Space, state: &State) -> Result<State, StepError> {
    let (mut next, stage) = (state.clone(), state.stage());
    let consumer = elementwise_consumer(state.recorder.schedule(), stage);
    let recorder = &mut next.recorder;
    let block = recorder.get_block(stage)?;
    let (spatial, reduced) = loops_of(recorder, block, stage)?;
    let fused = fused(recorder, &reduced)?;
    let (_, terms) = reduction_of(recorder.schedule(), stage).ok_or(StepError::NoChoice)?;
    let choices: Vec<i64> = THREADS.into_iter().filter(|&n| (n as usize) < terms).collect();
    let weights = vec![1.0 / choices.len() as f64; choices.len()];
    let threads = recorder.sample_categorical(&choices, &weights, &mut space.random())?;
    let parts = recorder.split(fused, &[Number::Known(0), threads.into()])?;
    let partial = recorder.rfactor(block, parts[1], spatial.len())?;
    // The block that takes the name: what is left to reduce.
    let last = recorder.get_block(stage)?;
    let row = row(recorder, last, stage)?;
    recorder.bind(row, ThreadAxis::BlockX)?;
    let partial_name = partial_of(recorder, stage)?;
    let buffer = written_buffer(recorder.schedule(), &partial_name);
    recorder.set_scope(&buffer, Scope::Shared)?;
    recorder.compute_at(partial, row)?;
    bind_threads(recorder, partial, &partial_name)?;
    if let Some(consumer) = consumer {
        fuse_consumer(recorder, &consumer, row);
    }
    Ok(next.next())
}

/// The loops of the result's axes around the block, and those of its reduction.
fn loops_of(
    recorder: &mut Recorder,
    block: BlockVar,
    name: &str,
) -> Result<(Vec<LoopVar>, Vec<LoopVar>), StepError> {
    let kinds: Vec<bool> =
        recorder.schedule().block(name)?.iters.iter().map(|i| i.kind == IterKind::Reduce).collect();
    let loops = recorder.get_loops(block)?;
    if kinds.len() != loops.len() {
        return Err(StepError::NoChoice);
    }
    let of =
        |kind| loops.iter().zip(&kinds).filter(|(_, k)| **k == kind).map(|(l, _)| *l).collect();
    Ok((of(false), of(true)))
}

fn fused(recorder: &mut Recorder, loops: &[LoopVar]) -> Result<LoopVar, StepError> {
    match loops {
        [] => Err(StepError::NoChoice),
        [one] => Ok(*one),
        several => recorder.fuse(several),
    }
}

/// The loop over results, each of which a thread block computes.
fn row(recorder: &mut Recorder, last: BlockVar, name: &str) -> Result<LoopVar, StepError> {
    let (spatial, _) = loops_of(recorder, last, name)?;
    if spatial.is_empty() {
        return recorder.add_unit_loop(last);
    }
    fused(recorder, &spatial)
}

fn partial_of(recorder: &Recorder, stage: &str) -> Result<String, StepError> {
    recorder.schedule().producers(stage)?.pop().ok_or(StepError::NoChoice)
}

/// The loop of the partial block along the factored axis: its last spatial one.
fn bind_threads(recorder: &mut Recorder, partial: BlockVar, name: &str) -> Result<(), StepError> {
    let iters = &recorder.schedule().block(name)?.iters;
    let factored = iters.iter().rposition(|i| i.kind == IterKind::Spatial);
    let around = recorder.schedule().loops(name)?.len() - iters.len();
    let place = around + factored.ok_or(StepError::NoChoice)?;
    let loops = recorder.get_loops(partial)?;
    let l = loops.get(place).copied().ok_or(StepError::NoChoice)?;
    recorder.bind(l, ThreadAxis::ThreadX)
}

/// Moves the consumer into the same kernel, if that is possible.
fn fuse_consumer(recorder: &mut Recorder, consumer: &str, row: LoopVar) {
    let mut changed = recorder.clone();
    let moved =
        changed.get_block(consumer).and_then(|block| changed.reverse_compute_at(block, row));
    if moved.is_ok() {
        *recorder = changed;
    }
}
