//! A stage with data reuse is tiled, and its only elementwise consumer computed under its tiles.
//!
//! ```text
//! for i0, j0, i1, j1, k0, i2, j2, k1, i3, j3 { mm }   for i, j { relu }
//! => at level 2
//! for i0, j0, i1, j1 { for k0, i2, j2, k1, i3, j3 { mm }   for i, j { relu } }
//! ```

use super::analysis::{elementwise_consumer, needs_tiling, written_buffer};
use super::tiling::tile;
use super::{Outcome, Rule, Space, State};
use crate::program::Scope;
use crate::trace::StepError;

pub(super) struct TilingWithFusion {
    /// After how many levels of spatial tiles the consumer is computed: a sketch for each.
    pub(super) levels: Vec<usize>,
}

impl Rule for TilingWithFusion {
    fn name(&self) -> &str {
        "tile and fuse"
    }

    fn apply(&self, space: &Space, state: &State) -> Result<Outcome, StepError> {
        let (schedule, stage) = (state.recorder.schedule(), state.stage());
        let Some(consumer) = elementwise_consumer(schedule, stage) else {
            return Ok(Outcome::Skip);
        };
        if !needs_tiling(schedule, stage) {
            return Ok(Outcome::Skip);
        }
        let states = self
            .levels
            .iter()
            .filter(|&&level| space.structure.chars().nth(level - 1) == Some('S'))
            .filter_map(|&level| fused(space, state, &consumer, level).ok())
            .collect();
        let only = state.cached.iter().any(|c| c == stage);
        Ok(if only { Outcome::ApplyAndSkipRest(states) } else { Outcome::Apply(states) })
    }
}

fn fused(space: &Space, state: &State, consumer: &str, level: usize) -> Result<State, StepError> {
    let mut next = state.clone();
    let recorder = &mut next.recorder;
    let levels = tile(space, recorder, state.stage())?;
    let at = levels[..level].concat().last().copied().ok_or(StepError::NoChoice)?;
    let block = recorder.get_block(consumer)?;
    recorder.reverse_compute_at(block, at)?;
    let buffer = written_buffer(recorder.schedule(), state.stage());
    recorder.set_scope(&buffer, Scope::Local)?;
    next.tiled.push(state.stage().to_owned());
    Ok(next.next())
}
