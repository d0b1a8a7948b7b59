//! Long reductions with few results: the threads of a block share the terms of each.
//!
//! ```text
//! y[j] = sum[k: 2048] x[k] * w[k, j]
//! =>
//! for b in 0..32 block_x {
//!   for t in 0..32 thread_x { for u in 0..32 thread_y { part[t, u] = sum[64] x[k] * w[k, b * 32 + t]  with k = r * 32 + u } }
//!   for t in 0..32 thread_x { y[b * 32 + t] = sum[32] part[t, u] }
//! }
//! ```
//!
//! Neighbouring threads take what lies side by side in the largest operand: results, as here, or terms.

use ansc_graph::{Expr, VarId};

use super::bind_threads;
use super::tile::{consumer, loops};
use crate::finish::finish;
use crate::gpu::{GpuLimits, lower};
use crate::program::{Body, IterKind, Scope, ThreadAxis};
use crate::schedule::{LoopRef, Result, Schedule};

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

/// Shares the block's reduction if that is worthwhile; otherwise it stays as it is.
pub(super) fn schedule(schedule: &mut Schedule, block: &str, limits: &GpuLimits) {
    let Some(shape) = shape(schedule, block, limits) else { return };
    let mut changed = schedule.clone();
    let shared = shared(&mut changed, block, &shape);
    if shared == Ok(true) && lower(&finish(changed.program().clone()), limits).is_ok() {
        *schedule = changed;
    }
}

fn shape(schedule: &Schedule, block: &str, limits: &GpuLimits) -> Option<Shape> {
    let b = schedule.block(block).ok()?;
    let of = |kind| b.iters.iter().filter(move |i| i.kind == kind);
    let count = |kind| of(kind).map(|i| i.extent).product::<usize>();
    let (results, terms) = (count(IterKind::Spatial), count(IterKind::Reduce));
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

/// Along which axis the largest operand's elements lie side by side.
fn along(schedule: &Schedule, block: &str, result: VarId, term: VarId) -> Along {
    let Ok(b) = schedule.block(block) else { return Along::Results };
    let size = |b: &ansc_graph::BufId| schedule.program().buffer(*b).ty.len();
    let largest = b.body.value().loads().into_iter().max_by_key(|(b, _)| size(b));
    let last = largest.and_then(|(_, indices)| indices.last()).map(Expr::vars).unwrap_or_default();
    if last.contains(&term) && !last.contains(&result) { Along::Terms } else { Along::Results }
}

/// Whether it could be done.
fn shared(s: &mut Schedule, block: &str, shape: &Shape) -> Result<bool> {
    let copy = consumer(s, block)?;
    let (_, reduced) = loops(s, block)?;
    let terms = fused(s, &reduced)?;
    let parts = s.split(terms, &[0, shape.terms])?;
    let rank = loops(s, block)?.0.len();
    let partial = s.rfactor(block, parts[1], rank)?;
    let (of_results, of_terms) = match shape.along {
        Along::Results => (ThreadAxis::ThreadX, ThreadAxis::ThreadY),
        Along::Terms => (ThreadAxis::ThreadY, ThreadAxis::ThreadX),
    };
    // What the block is now: the sum of partial results.
    let (spatial, _) = loops(s, block)?;
    let results = fused(s, &spatial)?;
    let of_block = s.split(results, &[0, shape.results])?;
    s.bind(of_block[0], ThreadAxis::BlockX)?;
    s.bind(of_block[1], of_results)?;
    // Each thread sums up in registers, and leaves what it has in shared memory.
    let written = s.block(&partial)?.body.writes()[0].buffer;
    let name = s.program().buffer(written).name.clone();
    let store = s.cache_read(block, &name, Scope::Shared)?;
    s.compute_at(&store, of_block[0])?;
    let own = s.loops(&store)?.split_off(1);
    if own.len() != rank + 1 || s.extent(own[rank])? != shape.terms {
        return Ok(false);
    }
    let thread = own[rank];
    let own_results = fused(s, &own[..rank])?;
    bind_all(s, own_results, shape.results, of_results)?;
    s.bind(thread, of_terms)?;
    s.set_scope(&name, Scope::Local)?;
    s.compute_at(&partial, thread)?;
    s.reverse_compute_at(&copy, of_block[1])?;
    Ok(true)
}

fn bind_all(s: &mut Schedule, l: LoopRef, threads: usize, axis: ThreadAxis) -> Result<()> {
    if axis == ThreadAxis::ThreadX {
        return bind_threads(s, l, threads);
    }
    s.bind(l, axis)
}

fn fused(s: &mut Schedule, loops: &[LoopRef]) -> Result<LoopRef> {
    match loops {
        [one] => Ok(*one),
        several => s.fuse(several),
    }
}
