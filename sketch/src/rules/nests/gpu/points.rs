//! A thread for each element of the result, or for a vector of them.
//!
//! ```text
//! for i in 0..64 { for j in 0..100 { y[i, j] = .. } }
//! =>
//! for b in 0..7 block_x { for t in 0..256 thread_x {
//!   vectorized l in 0..4 { y[..] = ..  where b * 256 + t < 1600 }
//! } }
//! ```
//! The running values of a reduction are in registers of its thread.

use super::{Result, choose, consumer, fused, is_unbound};
use crate::gpu::GpuLimits;
use crate::program::{Body, IterKind, Scope, ThreadAxis};
use crate::schedule::Schedule;
use crate::trace::{BlockVar, LoopVar, Number, Recorder};

/// Threads of a block, and of one where there are few elements.
const THREADS: (usize, usize) = (256, 64);
/// Other numbers of threads.
const OTHERS: [usize; 5] = [64, 128, 256, 512, 32];
/// Vectors of fewer elements in all leave multiprocessors without work.
const ENOUGH: usize = 1 << 14;

/// Elements that a thread may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lengths {
    Elements,
    Vectors,
}

/// Binds the loops around a block of which none is bound, if there are several elements; tells
/// whether it did.
pub(crate) fn bind_points(
    r: &mut Recorder,
    block: &str,
    limits: &GpuLimits,
    lengths: Lengths,
) -> bool {
    let outer = outer_spatial(r.schedule(), block);
    // One element is computed by the only thread.
    let Some(outer) = outer.filter(|extents| extents.iter().product::<usize>() != 1) else {
        return false;
    };
    let mut changed = r.clone();
    let is_bound = is_unbound(r.schedule(), block)
        && bound(&mut changed, block, &outer, limits, lengths).is_ok();
    if is_bound {
        *r = changed;
    }
    is_bound
}

fn bound(
    r: &mut Recorder,
    name: &str,
    outer: &[usize],
    limits: &GpuLimits,
    lengths: Lengths,
) -> Result<()> {
    let vector = match lengths {
        Lengths::Vectors => vector(r, name, outer, limits)?,
        Lengths::Elements => None,
    };
    let block = r.get_block(name)?;
    let loops = r.get_loops(block)?;
    let all = fused(r, &loops[..outer.len()])?;
    accumulate(r, block, name, all);
    let (points, lanes) = match vector {
        None => (all, None),
        Some(vector) => {
            let parts = r.split(all, &[0.into(), vector])?;
            (parts[0], Some(parts[1]))
        }
    };
    let count = r.extent(points)?;
    let most = if count < ENOUGH { THREADS.1 } else { THREADS.0 };
    let first = most.min(count.next_multiple_of(limits.warp));
    let threads = choose(r, first, &OTHERS, |n| n <= limits.threads_per_block)?;
    let parts = r.split(points, &[0.into(), threads])?;
    r.bind(parts[0], ThreadAxis::BlockX)?;
    r.bind(parts[1], ThreadAxis::ThreadX)?;
    lanes.map_or(Ok(()), |lanes| r.vectorize(lanes))
}

/// The extents of the loops of the result's axes, which are outside of those of the reduction.
fn outer_spatial(schedule: &Schedule, block: &str) -> Option<Vec<usize>> {
    let reduces = schedule.reduction_loops(block).ok()?;
    let loops = schedule.loops(block).ok()?;
    let spatial = loops.into_iter().take_while(|l| !reduces.contains(l));
    spatial.map(|l| schedule.extent(l).ok()).collect()
}

/// Elements that one thread takes at once, where they may be several.
fn vector(
    r: &mut Recorder,
    name: &str,
    outer: &[usize],
    limits: &GpuLimits,
) -> Result<Option<Number>> {
    let block = r.schedule().block(name)?;
    if block.iters.iter().any(|i| i.kind == IterKind::Reduce) {
        return Ok(None);
    }
    let written = block.body.writes()[0].buffer;
    let bytes = r.schedule().program().buffer(written).ty.dtype.size();
    let most = limits.vector_bytes / bytes.max(4);
    let (total, innermost) = (outer.iter().product::<usize>(), outer.last().copied().unwrap_or(1));
    if most < 2 || !innermost.is_multiple_of(most) || total <= most {
        return Ok(None);
    }
    let first = if total >= ENOUGH { most } else { 1 };
    choose(r, first, &[most, most / 2, 1], |n| n > 0).map(Some)
}

/// Running values of a reduction under the loop over results.
fn accumulate(r: &mut Recorder, block: BlockVar, name: &str, results: LoopVar) {
    let is_reduction =
        r.schedule().block(name).is_ok_and(|b| !matches!(b.body, Body::Assign { .. }));
    if !is_reduction {
        return;
    }
    let readers: [fn(&mut Recorder, BlockVar) -> Result<BlockVar>; 2] =
        [|r, block| consumer(r, &r.name_of(block)?), |r, block| r.cache_write(block, Scope::Local)];
    for reader in readers {
        let mut changed = r.clone();
        let done = reader(&mut changed, block)
            .and_then(|reader| local(&mut changed, block, reader, results));
        if done.is_ok() {
            *r = changed;
            return;
        }
    }
}

/// `reader` takes the results of the block out of registers.
fn local(r: &mut Recorder, block: BlockVar, reader: BlockVar, results: LoopVar) -> Result<()> {
    r.reverse_compute_at(reader, results)?;
    for buffer in r.workspaces(block)? {
        // Best values of an arg-reduction that something else reads stay where they are.
        let _ = r.set_scope(&buffer, Scope::Local);
    }
    Ok(())
}
