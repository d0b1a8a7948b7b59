//! The free decisions that every sketch ends with: where blocks that no rule placed are computed, and how
//! far reductions are written out.

use super::{Space, State};
use crate::postprocess::UNROLL;
use crate::program::IterKind;
use crate::trace::{Recorder, StepError};

pub(super) fn annotate(space: &Space, state: &mut State) {
    let blocks = state.recorder.schedule().blocks();
    // On a GPU the rules have placed every block: what is inlined is not there any more.
    let free = if space.gpu.is_some() { &[] } else { &blocks[..] };
    for block in free.iter().rev() {
        let mut changed = state.recorder.clone();
        if !state.tiled.contains(block) && locate(space, &mut changed, block).is_ok() {
            state.recorder = changed;
        }
    }
    for block in &blocks {
        let mut changed = state.recorder.clone();
        if unroll(space, &mut changed, block).is_ok() {
            state.recorder = changed;
        }
    }
}

/// Only a block alone at the root is free to move.
fn locate(space: &Space, recorder: &mut Recorder, block: &str) -> Result<(), StepError> {
    let schedule = recorder.schedule();
    let alone = |l| schedule.for_loop(l).is_ok_and(|l| l.body.len() == 1);
    let is_free = schedule.loops(block)?.into_iter().all(alone);
    if !is_free || schedule.consumers(block)?.len() != 1 {
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
    let var = recorder.get_block(block)?;
    let weights = vec![1.0 / space.unroll_steps.len() as f64; space.unroll_steps.len()];
    let steps = recorder.sample_categorical(&space.unroll_steps, &weights, &mut space.random())?;
    recorder.annotate(var, UNROLL, steps.into())
}
