//! The free decisions that every sketch ends with: where blocks that no rule placed are computed,
//! how far reductions are written out, how many registers vectors take, and how many loops of a
//! nest run in parallel.

use super::{Space, State};
use crate::notes::{PARALLEL, UNROLL, VECTORS};
use crate::program::{IterKind, Stmt};
use crate::trace::{Recorder, StepError};

pub(super) fn annotate(space: &Space, state: &mut State) {
    let blocks = state.recorder.schedule().blocks();
    // On a GPU the rules have placed every block: what is inlined is not there any more.
    let free = if space.gpu.is_some() { &[] } else { &blocks[..] };
    let free = free.iter().filter(|block| !state.tiled.contains(block) && is_alone(state, block));
    let free: Vec<&String> = free.collect();
    // Before blocks move: one that is inlined is not there afterwards. The vectors of tiles are
    // decided with the tiles.
    for block in &free {
        let mut changed = state.recorder.clone();
        if one_of(space, &mut changed, block, VECTORS, &space.vector_registers).is_ok() {
            state.recorder = changed;
        }
    }
    for block in free.iter().rev() {
        let mut changed = state.recorder.clone();
        if locate(space, &mut changed, block).is_ok() {
            state.recorder = changed;
        }
    }
    for block in &blocks {
        let mut changed = state.recorder.clone();
        if unroll(space, &mut changed, block).is_ok() {
            state.recorder = changed;
        }
    }
    if space.gpu.is_none() {
        for block in last_of_nests(state) {
            let mut changed = state.recorder.clone();
            if parallel(space, &mut changed, &block).is_ok() {
                state.recorder = changed;
            }
        }
    }
}

/// The last block of each nest, at which all that moves there is computed.
fn last_of_nests(state: &State) -> Vec<String> {
    let nests = state.recorder.schedule().program().body.iter();
    let last = |nest: &Stmt| {
        let mut last = None;
        nest.visit_blocks(&mut |block| last = Some(block.name.clone()));
        last
    };
    nests.filter_map(last).collect()
}

/// Whether the block is alone in a nest of its own: only such a one is free to move.
fn is_alone(state: &State, block: &str) -> bool {
    let schedule = state.recorder.schedule();
    let alone = |l| schedule.for_loop(l).is_ok_and(|l| l.body.len() == 1);
    schedule.loops(block).is_ok_and(|loops| loops.into_iter().all(alone))
}

fn locate(space: &Space, recorder: &mut Recorder, block: &str) -> Result<(), StepError> {
    if recorder.schedule().consumers(block)?.len() != 1 {
        return Err(StepError::NoChoice);
    }
    let var = recorder.get_block(block)?;
    let at = recorder.sample_compute_location(var, &mut space.random())?;
    recorder.compute_at(var, at)
}

fn unroll(space: &Space, recorder: &mut Recorder, block: &str) -> Result<(), StepError> {
    let reduces = |i: &crate::program::Iter| i.kind == IterKind::Reduce;
    if !recorder.schedule().block(block)?.iters.iter().any(reduces) {
        return Err(StepError::NoChoice);
    }
    one_of(space, recorder, block, UNROLL, &space.unroll_steps)
}

/// The block is annotated with one of the numbers, each as likely as the others.
fn one_of(
    space: &Space,
    recorder: &mut Recorder,
    block: &str,
    key: &str,
    numbers: &[i64],
) -> Result<(), StepError> {
    if numbers.is_empty() {
        return Err(StepError::NoChoice);
    }
    let var = recorder.get_block(block)?;
    let weights = vec![1.0 / numbers.len() as f64; numbers.len()];
    let chosen = recorder.sample_categorical(numbers, &weights, &mut space.random())?;
    recorder.annotate(var, key, chosen.into())
}

/// Loops that may run in parallel at most. More than these are never outermost and spatial in a
/// tiled nest of a convolution.
const MOST_PARALLEL: i64 = 6;

/// Samples take as many loops as give enough iterations; only mutations choose otherwise, as in
/// Ansor.
fn parallel(space: &Space, recorder: &mut Recorder, block: &str) -> Result<(), StepError> {
    let mut weights = vec![0.0; MOST_PARALLEL as usize + 1];
    weights[0] = 1.0;
    let loops: Vec<i64> = (0..=MOST_PARALLEL).collect();
    let var = recorder.get_block(block)?;
    let n = recorder.sample_categorical(&loops, &weights, &mut space.random())?;
    recorder.annotate(var, PARALLEL, n.into())
}
