//! Long reductions with few results: the threads of a block share the terms of each.
//!
//! ```text
//! y[j] = sum[k: 2048] x[k] * w[k, j]
//! =>
//! for b in 0..32 block_x {
//!   for t in 0..32 thread_x { for u in 0..32 thread_y {
//!     part[t, u] = sum[64] x[k] * w[k, b * 32 + t]  with k = r * 32 + u
//!   } }
//!   for t in 0..32 thread_x { y[b * 32 + t] = sum[32] part[t, u] }
//! }
//! ```
//!
//! Neighbouring threads take what lies side by side in the largest operand: results, as here, or
//! terms.

use ansc_graph::{BufId, Expr, VarId};

use super::{Result, bind_threads, choose, consumer, fused, loops, parts, written};
use crate::gpu::GpuLimits;
use crate::program::{Body, IterKind, Scope, ThreadAxis};
use crate::schedule::Schedule;
use crate::trace::{LoopVar, Number, Recorder, StepError};

/// More results than this keep a GPU busy with a thread for each.
const MOST_RESULTS: usize = 1 << 14;
/// Shorter reductions are done sooner than they are shared.
const LEAST_TERMS: usize = 64;
/// Terms that one thread sums up at least.
const LEAST_OWN: usize = 4;
/// Threads that share a reduction whose results lie side by side.
const SHARING: usize = 16;
/// Results of a block whose terms lie side by side.
const ROWS: usize = 4;
/// Other numbers of threads.
const OTHERS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Threads of a block, and which of them are neighbours.
struct Shape {
    results: usize,
    terms: usize,
    along: Along,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Along {
    Results,
    Terms,
}

/// Shares the block's reduction if that is worthwhile, and tells whether it did; otherwise the
/// block stays as it is.
pub(super) fn apply(r: &mut Recorder, block: &str, limits: &GpuLimits) -> bool {
    let Some(shape) = shape(r.schedule(), block, limits) else { return false };
    let (results, terms) = counts(r.schedule(), block).unwrap_or((1, 1));
    let blocks = results.div_ceil(shape.results);
    let most = terms / (LEAST_OWN * shape.terms);
    let parts = parts::count(r.schedule(), block, blocks, most);
    let by = |r: &mut Recorder, block: &str| shared(r, block, &shape);
    parts::apply(r, block, parts, limits, by) || parts::apply(r, block, 1, limits, by)
}

fn shape(schedule: &Schedule, block: &str, limits: &GpuLimits) -> Option<Shape> {
    let b = schedule.block(block).ok()?;
    let of = |kind| b.iters.iter().filter(move |i| i.kind == kind);
    let (results, terms) = counts(schedule, block)?;
    let is_plain = matches!(b.body, Body::Reduce { init: true, .. });
    if !is_plain || results == 0 || results > MOST_RESULTS || terms < LEAST_TERMS {
        return None;
    }
    let last_of = |kind| of(kind).filter(|i| i.extent > 1).map(|i| i.var).next_back();
    let along = match (last_of(IterKind::Spatial), last_of(IterKind::Reduce)?) {
        (None, _) => Along::Terms,
        (Some(result), term) => along(schedule, block, result, term),
    };
    let most = (terms / LEAST_OWN).max(1);
    let power = |n: usize| if n.is_power_of_two() { n } else { n.next_power_of_two() / 2 };
    Some(match along {
        Along::Results => Shape {
            results: limits.warp.min(results.next_power_of_two()),
            terms: power(SHARING.min(most)),
            along,
        },
        Along::Terms => {
            let threads = power((8 * limits.warp).min(most)).max(1);
            let results = if threads > limits.warp { 1 } else { ROWS.min(results) };
            Shape { results, terms: threads, along }
        }
    })
}

/// Results, and terms of each.
fn counts(schedule: &Schedule, block: &str) -> Option<(usize, usize)> {
    let b = schedule.block(block).ok()?;
    let of = |kind| b.iters.iter().filter(|i| i.kind == kind).map(|i| i.extent).product();
    Some((of(IterKind::Spatial), of(IterKind::Reduce)))
}

/// Along which axis the largest operand's elements lie side by side.
fn along(schedule: &Schedule, block: &str, result: VarId, term: VarId) -> Along {
    let Ok(b) = schedule.block(block) else { return Along::Results };
    let size = |b: &BufId| schedule.program().buffer(*b).ty.len();
    let largest = b.body.value().loads().into_iter().max_by_key(|(b, _)| size(b));
    let last = largest.and_then(|(_, indices)| indices.last()).map(Expr::vars).unwrap_or_default();
    if last.contains(&term) && !last.contains(&result) { Along::Terms } else { Along::Results }
}

fn shared(r: &mut Recorder, name: &str, shape: &Shape) -> Result<()> {
    let (results, terms) = counts(r.schedule(), name).ok_or(StepError::NoChoice)?;
    let of_results = choose(r, shape.results, &OTHERS, |n| n <= results)?;
    let of_terms = choose(r, shape.terms, &OTHERS, |n| n > 1 && n <= terms)?;
    let (results_axis, terms_axis) = match shape.along {
        Along::Results => (ThreadAxis::ThreadX, ThreadAxis::ThreadY),
        Along::Terms => (ThreadAxis::ThreadY, ThreadAxis::ThreadX),
    };
    let copy = consumer(r, name)?;
    let block = r.get_block(name)?;
    let (_, reduced) = loops(r, block)?;
    let all = fused(r, &reduced)?;
    // Several loads of a thread are on their way at once.
    let whole = |n: usize| terms.is_multiple_of(shape.terms * n);
    let first = [8, 4, 2].into_iter().find(|&n| whole(n)).unwrap_or(1);
    let in_a_row = choose(r, first, &[1, 2, 4, 8, 16], whole)?;
    let parts = r.split(all, &[0.into(), in_a_row, of_terms])?;
    r.unroll(parts[1])?;
    let (spatial, _) = loops_of(r, name)?;
    let partial = r.rfactor(block, parts[2], spatial)?;
    // The block is the sum of partial results now.
    let own = r.get_loops(block)?;
    let all = fused(r, &own[..spatial])?;
    let of_block = r.split(all, &[0.into(), of_results])?;
    r.bind(of_block[0], ThreadAxis::BlockX)?;
    r.bind(of_block[1], results_axis)?;
    // Each thread sums up in registers, and leaves what it has in shared memory.
    let partial_name = r.name_of(partial)?;
    let buffer = written(r.schedule(), &partial_name)?;
    let store = r.cache_read(block, &buffer, Scope::Shared)?;
    r.compute_at(store, of_block[0])?;
    let own = r.get_loops(store)?.split_off(1);
    let [results, thread] = [&own[..spatial], &own[spatial..]];
    let [thread] = thread else { return Err(StepError::NoChoice) };
    if r.extent(*thread)? != shape.terms {
        return Err(StepError::NoChoice);
    }
    let own_results = fused(r, results)?;
    bind_along(r, own_results, of_results, results_axis)?;
    r.bind(*thread, terms_axis)?;
    r.set_scope(&buffer, Scope::Local)?;
    r.compute_at(partial, *thread)?;
    r.reverse_compute_at(copy, of_block[1])
}

/// How many axes results have, and terms.
fn loops_of(r: &Recorder, name: &str) -> Result<(usize, usize)> {
    let iters = &r.schedule().block(name)?.iters;
    let spatial = iters.iter().filter(|i| i.kind == IterKind::Spatial).count();
    Ok((spatial, iters.len() - spatial))
}

fn bind_along(r: &mut Recorder, l: LoopVar, threads: Number, axis: ThreadAxis) -> Result<()> {
    if axis == ThreadAxis::ThreadX {
        return bind_threads(r, l, &[threads]);
    }
    r.bind(l, axis)
}
