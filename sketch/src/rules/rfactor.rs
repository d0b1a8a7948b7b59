//! A reduction with too little to do in parallel is done in two steps.
//!
//! ```text
//! s = sum[k] a[k]   =>   s_rf[ko] = sum[ki] a[ko, ki];  s = sum[ko] s_rf[ko]
//! ```

use super::analysis::{needs_tiling, reduction_of};
use super::tiling::sample_lengths;
use super::{Outcome, Rule, Space, State};
use crate::program::IterKind;
use crate::trace::{LoopVar, Recorder, StepError};

pub(super) struct AddRfactor;

impl Rule for AddRfactor {
    fn name(&self) -> &str {
        "rfactor"
    }

    fn apply(&self, space: &Space, state: &State) -> Result<Outcome, StepError> {
        let is_cached = state.cached.iter().any(|c| c == state.stage());
        if is_cached || !needs_rfactor(space, state) {
            return Ok(Outcome::Skip);
        }
        let states: Vec<State> = [false, true]
            .into_iter()
            .filter_map(|inner| factored(space, state, inner).ok())
            .collect();
        Ok(if states.is_empty() { Outcome::Skip } else { Outcome::Apply(states) })
    }
}

fn needs_rfactor(space: &Space, state: &State) -> bool {
    let Some((spatial, reduced)) = reduction_of(state.recorder.schedule(), state.stage()) else {
        return false;
    };
    if needs_tiling(state.recorder.schedule(), state.stage()) {
        return spatial <= reduced && spatial <= 16 * space.cores;
    }
    reduced > space.cores
}

/// Factors the outer part of the reduction, or the inner one, which then is the innermost loop.
fn factored(space: &Space, state: &State, inner: bool) -> Result<State, StepError> {
    let mut next = state.clone();
    let recorder = &mut next.recorder;
    let block = recorder.get_block(state.stage())?;
    let (spatial, reduced) = loops_of(recorder, state.stage())?;
    let fused = match &reduced[..] {
        [one] => *one,
        several => recorder.fuse(several)?,
    };
    let lengths = sample_lengths(space, recorder, fused, 2)?;
    let parts = recorder.split(fused, &lengths)?;
    recorder.rfactor(block, parts[usize::from(inner)], spatial)?;
    if inner {
        recorder.reorder(&parts)?;
    }
    let partial = recorder.schedule().producers(state.stage())?.pop();
    let at = next.left - 1;
    next.stages.insert(at, partial.ok_or(StepError::NoChoice)?);
    next.left = at;
    Ok(next)
}

/// The number of spatial loops around the block, and those of its reduction.
fn loops_of(recorder: &mut Recorder, block: &str) -> Result<(usize, Vec<LoopVar>), StepError> {
    let reduces = recorder
        .schedule()
        .loops(block)?
        .into_iter()
        .map(|l| recorder.schedule().loop_serves(l, IterKind::Reduce))
        .collect::<Result<Vec<bool>, _>>()?;
    let var = recorder.get_block(block)?;
    let loops = recorder.get_loops(var)?;
    let reduced = loops.into_iter().zip(&reduces).filter(|(_, r)| **r).map(|(l, _)| l).collect();
    Ok((reduces.iter().filter(|r| !**r).count(), reduced))
}
