//! Long sums with few results, in parts that different blocks of threads compute: the parts become
//! an axis of a batch, and a thread for each result adds them up.
//!
//! ```text
//! c[i, j] = sum[k: 4608] a[i, k] * b[k, j];  y[i, j] = max(c[i, j], 0)
//! =>
//! part[p, i, j] = sum[k: 1152] a[i, p * 1152 + k] * b[p * 1152 + k, j]      p: 4
//! c[i, j] = sum[p: 4] part[p, i, j];  y[i, j] = max(c[i, j], 0)
//! ```

use super::{Lengths, Result, bind_points, fits, loops};
use crate::gpu::GpuLimits;
use crate::program::IterKind;
use crate::schedule::Schedule;
use crate::trace::{Recorder, StepError};

/// Blocks of threads that give all multiprocessors something to do.
pub(super) const ENOUGH: usize = 128;
/// Parts of a sum, at most: their sums are further memory.
const MOST: usize = 16;

/// Parts of each sum, `most` at most, where there are `blocks` blocks of threads for whole sums.
pub(super) fn count(schedule: &Schedule, block: &str, blocks: usize, most: usize) -> usize {
    let Some(longest) = longest(schedule, block) else { return 1 };
    let most = (ENOUGH / blocks.max(1)).min(most).clamp(1, MOST);
    (1..=most).rev().find(|&n| longest.is_multiple_of(n)).unwrap_or(1)
}

/// Terms along the longest axis of a sum, which is the one that is cut.
pub(super) fn longest(schedule: &Schedule, block: &str) -> Option<usize> {
    let iters = &schedule.block(block).ok()?.iters;
    iters.iter().filter(|i| i.kind == IterKind::Reduce).map(|i| i.extent).max()
}

/// Cuts the sums of a block into parts and schedules these by `by`; tells whether a GPU takes them.
pub(super) fn apply(
    r: &mut Recorder,
    block: &str,
    parts: usize,
    limits: &GpuLimits,
    by: impl Fn(&mut Recorder, &str) -> Result<()>,
) -> bool {
    let mut changed = r.clone();
    let done = match parts {
        1 => by(&mut changed, block),
        _ => in_parts(&mut changed, block, parts, limits, by),
    };
    let taken = done.is_ok() && fits(&changed, limits);
    if taken {
        *r = changed;
    }
    taken
}

fn in_parts(
    r: &mut Recorder,
    name: &str,
    parts: usize,
    limits: &GpuLimits,
    by: impl Fn(&mut Recorder, &str) -> Result<()>,
) -> Result<()> {
    let block = r.get_block(name)?;
    let (_, reduced) = loops(r, block)?;
    let extents = reduced.iter().map(|&l| r.extent(l)).collect::<Result<Vec<_>>>()?;
    let most = extents.iter().max().copied().unwrap_or(1);
    let longest = extents.iter().position(|&n| n == most).ok_or(StepError::NoChoice)?;
    let cut = r.split(reduced[longest], &[parts.into(), 0.into()])?;
    let partial = r.rfactor(block, cut[0], 0)?;
    let partial = r.name_of(partial)?;
    by(r, &partial)?;
    // The only result is summed up by the only thread.
    bind_points(r, name, limits, Lengths::Elements);
    Ok(())
}
