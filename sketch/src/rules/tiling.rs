//! A stage with data reuse is tiled in several levels.
//!
//! ```text
//! for i, j, k { .. }
//! => SSRSRS
//! for i0, j0, i1, j1, k0, i2, j2, k1, i3, j3 { .. }
//! ```

use super::analysis::needs_tiling;
use super::{Outcome, Rule, Space, State};
use crate::program::IterKind;
use crate::trace::{LoopVar, Number, Recorder, StepError, near_extents};

pub(super) struct MultiLevelTiling;

impl Rule for MultiLevelTiling {
    fn name(&self) -> &str {
        "tile"
    }

    fn apply(&self, space: &Space, state: &State) -> Result<Outcome, StepError> {
        if !needs_tiling(state.recorder.schedule(), state.stage()) {
            return Ok(Outcome::Skip);
        }
        let mut next = state.clone();
        tile(space, &mut next.recorder, state.stage())?;
        next.tiled.push(state.stage().to_owned());
        Ok(Outcome::ApplyAndSkipRest(vec![next.next()]))
    }
}

/// Splits every loop around the block into as many parts as the structure has letters of its kind,
/// and orders the parts letter by letter. Returns the loops of each letter.
pub fn tile(
    space: &Space,
    recorder: &mut Recorder,
    block: &str,
) -> Result<Vec<Vec<LoopVar>>, StepError> {
    let kinds = recorder
        .schedule()
        .loops(block)?
        .into_iter()
        .map(|l| recorder.schedule().loop_serves(l, IterKind::Reduce))
        .collect::<Result<Vec<bool>, _>>()?;
    let of = |letter: char| space.structure.chars().filter(|&c| c == letter).count();
    let var = recorder.get_block(block)?;
    let loops = recorder.get_loops(var)?;
    let mut parts = vec![];
    for (&l, &reduces) in loops.iter().zip(&kinds) {
        let n = of(if reduces { 'R' } else { 'S' });
        let lengths = sample_lengths(space, recorder, l, n)?;
        parts.push((reduces, recorder.split(l, &lengths)?));
    }
    let (mut spatial, mut reduced) = (0, 0);
    let mut levels = vec![];
    for letter in space.structure.chars() {
        let reduces = letter == 'R';
        let level = if reduces { &mut reduced } else { &mut spatial };
        let of_kind = parts.iter().filter(|(r, _)| *r == reduces);
        levels.push(of_kind.map(|(_, loops)| loops[*level]).collect::<Vec<_>>());
        *level += 1;
    }
    recorder.reorder(&levels.concat())?;
    Ok(levels)
}

/// Extents of whole tiles of this many iterations are divided by enough.
const SMOOTH: usize = 16;

/// Lengths for the parts of a loop: those that divide its extent, and where these may be few, some
/// that do not.
pub(super) fn sample_lengths(
    space: &Space,
    recorder: &mut Recorder,
    l: LoopVar,
    parts: usize,
) -> Result<Vec<Number>, StepError> {
    let random = &mut space.random();
    let extent = recorder.extent(l)?;
    let few = space.near_tiles && !extent.is_multiple_of(SMOOTH) && near_extents(extent).len() > 1;
    let lengths = if few {
        recorder.sample_tile(l, parts, space.max_innermost, random)?
    } else {
        recorder.sample_perfect_tile(l, parts, space.max_innermost, random)?
    };
    Ok(lengths.into_iter().map(Number::from).collect())
}
