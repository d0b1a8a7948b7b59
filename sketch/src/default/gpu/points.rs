//! A thread for each element of the result, or for a vector of them.
//!
//! ```text
//! for i in 0..64 { for j in 0..100 { y[i, j] = .. } }
//! => for b in 0..7 block_x { for t in 0..256 thread_x { vectorized l in 0..4 { y[..] = ..  where b * 256 + t < 1600 } } }
//! ```
//! The running values of a reduction are in registers of its thread.

use crate::gpu::GpuLimits;
use crate::program::{Body, IterKind, Scope, ThreadAxis};
use crate::schedule::{LoopRef, Result, Schedule};

/// Threads of a block, and of one where there are few elements.
const THREADS: (usize, usize) = (256, 64);
/// Vectors of fewer elements in all leave multiprocessors without work.
const ENOUGH: usize = 1 << 14;

/// A block that no loop around is bound of; primitives that do not apply are left out.
pub(super) fn schedule(schedule: &mut Schedule, block: &str, limits: &GpuLimits) {
    let mut changed = schedule.clone();
    if bound(&mut changed, block, limits).is_ok() {
        *schedule = changed;
    }
}

fn bound(schedule: &mut Schedule, block: &str, limits: &GpuLimits) -> Result<()> {
    let spatial = outer_spatial(schedule, block)?;
    if spatial.is_empty() {
        // One element: the only thread computes it.
        return Ok(());
    }
    let lanes = lanes(schedule, block, &spatial, limits)?;
    let fused = schedule.fuse(&spatial)?;
    accumulate(schedule, block, fused);
    let (points, vector) = match lanes {
        1 => (fused, None),
        _ => {
            let parts = schedule.split(fused, &[0, lanes])?;
            (parts[0], Some(parts[1]))
        }
    };
    let count = schedule.extent(points)?;
    let most = if count < ENOUGH { THREADS.1 } else { THREADS.0 };
    let threads = most.min(count.next_multiple_of(limits.warp));
    let parts = schedule.split(points, &[0, threads])?;
    schedule.bind(parts[0], ThreadAxis::BlockX)?;
    schedule.bind(parts[1], ThreadAxis::ThreadX)?;
    if let Some(vector) = vector {
        schedule.vectorize(vector)?;
    }
    Ok(())
}

/// The loops of the result's axes, which are outside of those of the reduction.
fn outer_spatial(schedule: &Schedule, block: &str) -> Result<Vec<LoopRef>> {
    let reduces = schedule.reduction_loops(block)?;
    let is_unit = |l: &LoopRef| schedule.extent(*l).is_ok_and(|e| e == 1);
    let loops = schedule.loops(block)?;
    let spatial: Vec<LoopRef> = loops.into_iter().take_while(|l| !reduces.contains(l)).collect();
    Ok(if spatial.iter().all(is_unit) { vec![] } else { spatial })
}

/// Elements that one thread takes at once.
fn lanes(
    schedule: &Schedule,
    block: &str,
    spatial: &[LoopRef],
    limits: &GpuLimits,
) -> Result<usize> {
    let b = schedule.block(block)?;
    if b.iters.iter().any(|i| i.kind == IterKind::Reduce) {
        return Ok(1);
    }
    let written = b.body.writes()[0].buffer;
    let bytes = schedule.program().buffer(written).ty.dtype.size();
    let lanes = limits.vector_bytes / bytes.max(4);
    let innermost = spatial.last().map_or(Ok(1), |&l| schedule.extent(l))?;
    let total: usize =
        spatial.iter().map(|&l| schedule.extent(l)).collect::<Result<Vec<_>>>()?.iter().product();
    Ok(if innermost.is_multiple_of(lanes) && total >= ENOUGH { lanes } else { 1 })
}

/// Running values of a reduction under the thread's loop.
fn accumulate(schedule: &mut Schedule, block: &str, thread: LoopRef) {
    let is_reduction = schedule.block(block).is_ok_and(|b| !matches!(b.body, Body::Assign { .. }));
    let mut changed = schedule.clone();
    if !is_reduction || local(&mut changed, block, thread).is_err() {
        return;
    }
    *schedule = changed;
}

fn local(schedule: &mut Schedule, block: &str, thread: LoopRef) -> Result<()> {
    let copy = schedule.cache_write(block, Scope::Local)?;
    schedule.reverse_compute_at(&copy, thread)?;
    for buffer in internal_results(schedule, block) {
        // Best values of an arg-reduction that something else reads stay where they are.
        let _ = schedule.set_scope(&buffer, Scope::Local);
    }
    Ok(())
}

fn internal_results(schedule: &Schedule, block: &str) -> Vec<String> {
    let Ok(b) = schedule.block(block) else { return vec![] };
    let program = schedule.program();
    let all = b.body.writes().into_iter().map(|a| a.buffer);
    all.filter(|b| super::is_internal(program, *b))
        .map(|b| program.buffer(b).name.clone())
        .collect()
}
