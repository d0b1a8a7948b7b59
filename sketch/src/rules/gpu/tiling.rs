//! A stage with data reuse is tiled over thread blocks, virtual threads and threads; the consumer
//! is computed under the thread.
//!
//! ```text
//! for i, j, k { mm }   for i, j { relu }
//! =>
//! block_x (i0, j0) { virtual (i1, j1) { thread_x (i2, j2) {
//!   for k0 { a_shared = ..; b_shared = ..; for k1, i3, j3, k2, i4, j4 { mm_local } }
//!   relu
//! } } }
//! ```
//! Whether the copies of a round are begun during the one before is a free decision. A block of
//! threads has at least a warp, or else lanes idle; a small stage may have no use for one.

use super::cache_read::cache_reads;
use crate::notes::{FEWEST_THREADS, PIPELINE};
use crate::program::{IterKind, Scope, ThreadAxis};
use crate::rules::analysis::written_buffer;
use crate::rules::{Outcome, Rule, Space, State, elementwise_consumer, needs_tiling, tile};
use crate::trace::{LoopVar, StepError};

const BOUND: [ThreadAxis; 3] = [ThreadAxis::BlockX, ThreadAxis::Virtual, ThreadAxis::ThreadX];

/// Results for each lane of a warp up to which blocks of threads may have fewer. By Ansor's bound,
/// which is 2, one in a hundred samples of a stage of 128 results would do.
const FEW: usize = 32;

pub(super) struct Tiling;

impl Rule for Tiling {
    fn name(&self) -> &str {
        "tile and fuse"
    }

    fn apply(&self, space: &Space, state: &State) -> Result<Outcome, StepError> {
        let (schedule, stage) = (state.recorder.schedule(), state.stage());
        if !needs_tiling(schedule, stage) {
            return Ok(Outcome::Skip);
        }
        let Some(consumer) = elementwise_consumer(schedule, stage) else {
            return Ok(Outcome::Skip);
        };
        Ok(Outcome::ApplyAndSkipRest(vec![tiled(space, state, &consumer)?]))
    }
}

fn tiled(space: &Space, state: &State, consumer: &str) -> Result<State, StepError> {
    let stage = state.stage();
    let mut next = state.clone();
    let recorder = &mut next.recorder;
    let block = recorder.schedule().block(stage)?;
    let reduces = block.iters.iter().any(|i| i.kind == IterKind::Reduce);
    let spatial = block.iters.iter().filter(|i| i.kind == IterKind::Spatial);
    let results = spatial.fold(1, |n: usize, i| n.saturating_mul(i.extent));
    let levels = tile(space, recorder, stage)?;
    let mut thread: Option<LoopVar> = None;
    for (level, axis) in levels.iter().zip(BOUND) {
        let l = if level.len() > 1 {
            recorder.fuse(level)?
        } else {
            *level.first().ok_or(StepError::NoChoice)?
        };
        recorder.bind(l, axis)?;
        thread = Some(l);
    }
    let thread = thread.ok_or(StepError::NoChoice)?;
    let warp = space.gpu.as_ref().map_or(1, |limits| limits.warp);
    if results > FEW * warp {
        recorder.annotate_loop(thread, FEWEST_THREADS, warp.into())?;
    }
    let block = recorder.get_block(consumer)?;
    recorder.reverse_compute_at(block, thread)?;
    let buffer = written_buffer(recorder.schedule(), stage);
    recorder.set_scope(&buffer, Scope::Local)?;
    if reduces {
        let outer = levels[BOUND.len()].last().copied().ok_or(StepError::NoChoice)?;
        cache_reads(space, recorder, stage, outer)?;
        let early = recorder.sample_categorical(&[0, 1], &[0.5; 2], &mut space.random())?;
        recorder.annotate_loop(outer, PIPELINE, early.into())?;
    }
    next.tiled.push(stage.to_owned());
    Ok(next.next())
}
