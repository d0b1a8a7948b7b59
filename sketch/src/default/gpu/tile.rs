//! Reductions that use their operands more than once, with tiles in shared memory and in registers.
//!
//! ```text
//! c[i, j] = sum[k] a[i, k] * b[k, j];  y[i, j] = max(c[i, j], 0)
//! =>
//! block_x (io, jo) { thread_x (it, jt) {
//!   c_tile[8, 4] = 0
//!   for ko { a' = a[.., ko];  b' = b[ko, ..];  for ki { unrolled 8 x 4 { c_tile[..] += a'[..] * b'[..] } }
//!   y[..] = max(c_tile[..], 0)
//! } }
//! ```
//!
//! Axes that one operand lacks and axes that the other lacks are the two sides of the tile; an axis that no
//! operand lacks is one of a batch.

use std::collections::BTreeSet;

use ansc_graph::{BufId, VarId};

use super::{bind_threads, is_unbound};
use crate::finish::finish;
use crate::gpu::{GpuLimits, lower};
use crate::program::{Body, IterKind, Scope, ThreadAxis};
use crate::rules::{elementwise_consumer, needs_tiling};
use crate::schedule::{LoopRef, Result, Schedule};

/// Elements of a tile along a side, those of one thread, and terms of the reduction in shared memory.
struct Shape {
    side: usize,
    register: usize,
    terms: usize,
}

/// From the best to what fits with large halos.
const SHAPES: [Shape; 7] = [
    Shape { side: 128, register: 8, terms: 8 },
    Shape { side: 64, register: 4, terms: 16 },
    Shape { side: 32, register: 4, terms: 16 },
    Shape { side: 32, register: 4, terms: 8 },
    Shape { side: 32, register: 4, terms: 4 },
    Shape { side: 16, register: 2, terms: 8 },
    Shape { side: 16, register: 2, terms: 1 },
];
/// Tiles below which multiprocessors have nothing to do.
const ENOUGH_TILES: usize = 128;
/// Updates of the register tile that are written out in a row.
const MAX_UNROLLED: usize = 512;

/// Tiles the block if that is worthwhile and fits; otherwise it stays as it is.
pub(super) fn schedule(schedule: &mut Schedule, block: &str, limits: &GpuLimits) {
    if !is_tileable(schedule, block) {
        return;
    }
    let points: usize = spatial_extents(schedule, block).iter().product();
    for (i, shape) in SHAPES.iter().enumerate() {
        let too_large = points < ENOUGH_TILES * shape.side * shape.side;
        if too_large && i + 1 < SHAPES.len() && SHAPES[i + 1].side < shape.side {
            continue;
        }
        for shared in [true, false] {
            let mut changed = schedule.clone();
            let tiled = tiled(&mut changed, block, shape, shared).is_ok();
            if tiled && lower(&finish(changed.program().clone()), limits).is_ok() {
                *schedule = changed;
                return;
            }
            // Only the last shape does without shared memory.
            if i + 1 < SHAPES.len() {
                break;
            }
        }
    }
}

fn is_tileable(schedule: &Schedule, block: &str) -> bool {
    let Ok(b) = schedule.block(block) else { return false };
    matches!(b.body, Body::Reduce { init: true, .. })
        && needs_tiling(schedule, block)
        && has_two_sides(schedule, block)
        && b.iters.iter().any(|i| i.kind == IterKind::Reduce)
        && b.iters.iter().all(|i| i.extent > 0)
}

/// Whether two operands are used more than once, along different axes. If only one is, threads that lie side by side
/// read it through the cache.
fn has_two_sides(schedule: &Schedule, block: &str) -> bool {
    let extents = spatial_extents(schedule, block);
    let sides = sides(schedule, block, extents.len());
    let wide = sides.iter().zip(extents).filter(|(side, extent)| side.is_some() && *extent > 1);
    wide.map(|(side, _)| side).collect::<BTreeSet<_>>().len() > 1
}

fn spatial_extents(schedule: &Schedule, block: &str) -> Vec<usize> {
    let Ok(b) = schedule.block(block) else { return vec![] };
    b.iters.iter().filter(|i| i.kind == IterKind::Spatial).map(|i| i.extent).collect()
}

/// Loops of one axis: blocks, threads, registers.
struct Parts {
    block: LoopRef,
    thread: LoopRef,
    register: LoopRef,
}

fn tiled(s: &mut Schedule, block: &str, shape: &Shape, shared: bool) -> Result<()> {
    let consumer = consumer(s, block)?;
    let (spatial, reduced) = loops(s, block)?;
    let sides = sides(s, block, spatial.len());
    let lengths = lengths(s, &spatial, &sides, shape)?;
    for (axis, &(threads, registers)) in lengths.iter().enumerate() {
        // Tiles at the border compute too much rather than ask at every term; where they may not, they ask.
        let _ = s.pad(block, axis, threads * registers);
    }
    let mut parts = vec![];
    for (&l, &(threads, registers)) in spatial.iter().zip(&lengths) {
        let p = s.split(l, &[0, threads, registers])?;
        parts.push(Parts { block: p[0], thread: p[1], register: p[2] });
    }
    let (outer, inner) = reduction(s, &reduced, shape.terms)?;
    let of = |f: fn(&Parts) -> LoopRef| parts.iter().map(f).collect::<Vec<_>>();
    let (blocks, threads, registers) = (of(|p| p.block), of(|p| p.thread), of(|p| p.register));
    s.reorder(&[&blocks[..], &threads, &outer, &inner, &registers].concat())?;
    let (grid, thread) = (s.fuse(&blocks)?, s.fuse(&threads)?);
    s.bind(grid, ThreadAxis::BlockX)?;
    s.bind(thread, ThreadAxis::ThreadX)?;
    s.reverse_compute_at(&consumer, thread)?;
    if shared {
        let at = *outer.last().expect("a reduction has a loop");
        let count = s.extent(thread)?;
        for operand in operands(s, block)? {
            fetch(s, block, operand, at, count)?;
        }
    }
    let around = s.loops(&consumer)?.iter().position(|l| *l == thread).map_or(0, |i| i + 1);
    write_out(s, (&consumer, around), &inner, &registers)
}

/// The block that takes the tile out of registers: the only elementwise reader, or a copy.
pub(super) fn consumer(s: &mut Schedule, block: &str) -> Result<String> {
    if let Some(consumer) = elementwise_consumer(s, block)
        && is_unbound(s, &consumer)
    {
        let written = s.block(block)?.body.writes()[0].buffer;
        let name = s.program().buffer(written).name.clone();
        s.set_scope(&name, Scope::Local)?;
        return Ok(consumer);
    }
    s.cache_write(block, Scope::Local)
}

/// Loops of the result's axes, and of the reduction.
pub(super) fn loops(s: &Schedule, block: &str) -> Result<(Vec<LoopRef>, Vec<LoopRef>)> {
    let is_reduced = s.block(block)?.iters.iter().map(|i| i.kind == IterKind::Reduce);
    // The naive nest has one loop for each iterator, in their order.
    let pairs: Vec<(LoopRef, bool)> = s.loops(block)?.into_iter().zip(is_reduced).collect();
    let of = |kind: bool| pairs.iter().filter(|(_, r)| *r == kind).map(|(l, _)| *l).collect();
    Ok((of(false), of(true)))
}

/// For each axis the side of the tile that it belongs to, `None` for one of a batch.
fn sides(s: &Schedule, block: &str, rank: usize) -> Vec<Option<usize>> {
    let Ok(b) = s.block(block) else { return vec![None; rank] };
    let vars: Vec<VarId> = b.iters[..rank].iter().map(|i| i.var).collect();
    let loads = b.body.value().loads();
    let lacks = |v: &VarId| -> Vec<BufId> {
        let used = |indices: &[ansc_graph::Expr]| indices.iter().any(|e| e.vars().contains(v));
        loads.iter().filter(|(_, i)| !used(i)).map(|(b, _)| *b).collect()
    };
    let mut groups: Vec<Vec<BufId>> = vec![];
    vars.iter()
        .map(|v| {
            let lacked = lacks(v);
            if lacked.is_empty() {
                return None;
            }
            let known = groups.iter().position(|g| *g == lacked);
            Some(known.unwrap_or_else(|| {
                groups.push(lacked);
                groups.len() - 1
            }))
        })
        .collect()
}

/// Threads and registers along each axis: the inner axes of a side are filled first.
fn lengths(
    s: &Schedule,
    spatial: &[LoopRef],
    sides: &[Option<usize>],
    shape: &Shape,
) -> Result<Vec<(usize, usize)>> {
    let mut left =
        vec![(shape.side, shape.register); 1 + sides.iter().flatten().max().copied().unwrap_or(0)];
    let mut lengths = vec![(1, 1); spatial.len()];
    for (axis, &l) in spatial.iter().enumerate().rev() {
        let (Some(side), extent) = (sides[axis], s.extent(l)?) else { continue };
        // Further sides, of a third operand, get no tile.
        let Some((elements, registers)) = left.get_mut(side).filter(|_| side < 2) else { continue };
        let tile = cut(extent, *elements);
        let own = largest_divisor(tile, *registers);
        lengths[axis] = (tile / own, own);
        *elements /= tile;
        *registers /= own;
    }
    Ok(lengths)
}

/// The part of an axis that a tile with room for `room` elements takes: a divisor if that is half of it.
fn cut(extent: usize, room: usize) -> usize {
    let divisor = largest_divisor(extent, room);
    if extent <= room || 2 * divisor > room { divisor } else { room }
}

fn largest_divisor(n: usize, most: usize) -> usize {
    (1..=most.max(1).min(n)).rev().find(|&d| n.is_multiple_of(d)).unwrap_or(1)
}

/// The longest loop of the reduction in two parts; the outer loops, of which only the last one runs over more
/// than one iteration where all fits, and the inner ones.
fn reduction(
    s: &mut Schedule,
    reduced: &[LoopRef],
    terms: usize,
) -> Result<(Vec<LoopRef>, Vec<LoopRef>)> {
    let extents = reduced.iter().map(|&l| s.extent(l)).collect::<Result<Vec<_>>>()?;
    let longest = (0..extents.len()).max_by_key(|&i| (extents[i], usize::MAX - i)).unwrap_or(0);
    let mut inner: Vec<LoopRef> = reduced.to_vec();
    if extents[longest] == 1 {
        return Ok((vec![inner.remove(longest)], inner));
    }
    let length = cut(extents[longest], terms);
    let parts = s.split(reduced[longest], &[0, length])?;
    inner[longest] = parts[1];
    Ok((vec![parts[0]], inner))
}

/// Where an operand comes from.
enum Operand {
    /// An input or a result of another kernel.
    Memory(String),
    /// A stage that nothing else reads.
    Stage(String),
}

fn operands(s: &Schedule, block: &str) -> Result<Vec<Operand>> {
    let program = s.program();
    let b = s.block(block)?;
    let loaded: BTreeSet<BufId> = b.body.value().loads().iter().map(|(b, _)| *b).collect();
    let mut operands = vec![];
    for buffer in loaded {
        let name = program.buffer(buffer).name.clone();
        let writers: Vec<_> = program
            .blocks()
            .into_iter()
            .filter(|w| w.body.writes().iter().any(|a| a.buffer == buffer))
            .collect();
        operands.push(match writers[..] {
            [stage] if is_own(s, &stage.name, block) => Operand::Stage(stage.name.clone()),
            _ => Operand::Memory(name),
        });
    }
    Ok(operands)
}

/// Whether the stage is elementwise and read by `block` only.
fn is_own(s: &Schedule, stage: &str, block: &str) -> bool {
    let assigns = s.block(stage).is_ok_and(|b| matches!(b.body, Body::Assign { .. }));
    assigns
        && is_unbound(s, stage)
        && s.consumers(stage).is_ok_and(|c| matches!(&c[..], [one] if one == block))
}

/// Brings the part of an operand that a round needs to shared memory, by all threads together.
fn fetch(
    s: &mut Schedule,
    block: &str,
    operand: Operand,
    at: LoopRef,
    threads: usize,
) -> Result<()> {
    let copy = match operand {
        Operand::Memory(buffer) => s.cache_read(block, &buffer, Scope::Shared)?,
        Operand::Stage(stage) => {
            let written = s.block(&stage)?.body.writes()[0].buffer;
            let name = s.program().buffer(written).name.clone();
            if s.set_scope(&name, Scope::Shared).is_err() {
                // A result of the program is in memory anyway.
                return fetch(s, block, Operand::Memory(name), at, threads);
            }
            stage
        }
    };
    let around = s.loops(block)?.iter().position(|l| *l == at).map_or(0, |i| i + 1);
    s.compute_at(&copy, at)?;
    let own = s.loops(&copy)?.split_off(around);
    let fused = s.fuse(&own)?;
    bind_threads(s, fused, threads)
}

/// Writes out the loops over registers, and as many of the reduction as is reasonable.
/// The consumer is under `around` loops that are shared with the reduction.
fn write_out(
    s: &mut Schedule,
    (consumer, around): (&str, usize),
    inner: &[LoopRef],
    registers: &[LoopRef],
) -> Result<()> {
    let mut copies = 1;
    for &l in registers.iter().rev() {
        copies *= s.extent(l)?;
        s.unroll(l)?;
    }
    for &l in inner.iter().rev() {
        copies *= s.extent(l)?;
        if copies > MAX_UNROLLED {
            break;
        }
        s.unroll(l)?;
    }
    let own = s.loops(consumer)?.split_off(around);
    let count: usize =
        own.iter().map(|&l| s.extent(l)).collect::<Result<Vec<_>>>()?.iter().product();
    if count <= MAX_UNROLLED {
        own.into_iter().try_for_each(|l| s.unroll(l))?;
    }
    Ok(())
}
