//! Reductions that use their operands more than once, with tiles in shared memory and in registers.
//!
//! ```text
//! c[i, j] = sum[k] a[i, k] * b[k, j];  y[i, j] = max(c[i, j], 0)
//! =>
//! block_x (io, jo) { virtual jv { thread_x (it, jt) {
//!   c_tile[8, 4] = 0
//!   for ko {
//!     a' = a[.., ko];  b' = b[ko, ..]
//!     for ki { unrolled 8 x 4 { c_tile[..] += a'[..] * b'[..] } }
//!   }
//!   y[..] = max(c_tile[..], 0)
//! } } }
//! ```
//!
//! Neighbouring threads have neighbouring vectors of the innermost axis, so that what they load and
//! store lies side by side; the vectors of one thread are apart, as those of virtual threads.
//!
//! Axes that one operand lacks and axes that the other lacks are the two sides of the tile; an axis
//! that no operand lacks is one of a batch; [`groups`] of channels are such axes. Where tiles are
//! too few for the multiprocessors, sums are cut into [`parts`].

use std::collections::BTreeSet;

use ansc_graph::{BufId, Expr, VarId};

use super::parts::{self, ENOUGH};
use super::{
    Result, bind_threads, choose, consumer, fused, groups, is_unbound, loops, terms, written,
};
use crate::gpu::GpuLimits;
use crate::notes::PIPELINE;
use crate::program::{Body, IterKind, Scope, ThreadAxis};
use crate::rules::needs_tiling;
use crate::schedule::Schedule;
use crate::trace::{BlockVar, LoopVar, Number, Recorder, StepError};

/// Elements of a tile along a side, those of one thread, and terms of the reduction in shared
/// memory.
struct Shape {
    side: usize,
    register: usize,
    terms: usize,
}

/// From the best to what fits with large halos.
const SHAPES: [Shape; 8] = [
    Shape { side: 128, register: 8, terms: 8 },
    Shape { side: 64, register: 4, terms: 16 },
    Shape { side: 32, register: 4, terms: 32 },
    Shape { side: 32, register: 4, terms: 8 },
    Shape { side: 32, register: 4, terms: 4 },
    Shape { side: 16, register: 2, terms: 32 },
    Shape { side: 16, register: 2, terms: 8 },
    Shape { side: 16, register: 2, terms: 1 },
];
/// Updates of the register tile that are written out in a row.
pub(super) const MAX_UNROLLED: usize = 512;
/// Rounds of each part of a sum, at least.
const LEAST_ROUNDS: usize = 4;
/// Rounds that copies are begun early.
const AHEAD: i64 = 2;
/// Elements that a thread copies at once.
const VECTOR: usize = 4;

/// Tiles the block if that is worthwhile and fits, and tells whether it did; otherwise the block
/// stays as it is.
pub(super) fn apply(r: &mut Recorder, block: &str, limits: &GpuLimits) -> bool {
    let mut apart = r.clone();
    if groups::apart(&mut apart, block).is_ok() && in_tiles(&mut apart, block, limits) {
        *r = apart;
        return true;
    }
    in_tiles(r, block, limits)
}

fn in_tiles(r: &mut Recorder, block: &str, limits: &GpuLimits) -> bool {
    if !is_tileable(r.schedule(), block) {
        return false;
    }
    for (i, shape) in SHAPES.iter().enumerate() {
        let tiles = tiles(r.schedule(), block, shape);
        let longest = parts::longest(r.schedule(), block).unwrap_or(1);
        let parts =
            parts::count(r.schedule(), block, tiles, longest / (LEAST_ROUNDS * shape.terms));
        // There may be no smaller ones. Only the last shape does without shared memory.
        let is_small = SHAPES[i..].iter().all(|other| other.side == shape.side);
        let last = (i + 1 == SHAPES.len()).then_some(None);
        for ahead in [AHEAD, 1, 0].map(Some).into_iter().chain(last) {
            let by = |r: &mut Recorder, block: &str| tiled(r, block, shape, ahead);
            // Parts of sums are further work: with them, half of the multiprocessors are enough.
            let in_parts = parts > 1 && (is_small || tiles * parts >= ENOUGH / 2);
            if in_parts && parts::apply(r, block, parts, limits, by)
                || (is_small || tiles >= ENOUGH) && parts::apply(r, block, 1, limits, by)
            {
                return true;
            }
        }
    }
    false
}

fn is_tileable(schedule: &Schedule, block: &str) -> bool {
    let Ok(b) = schedule.block(block) else { return false };
    matches!(b.body, Body::Reduce { init: true, .. })
        && needs_tiling(schedule, block)
        && has_two_sides(schedule, block)
        && b.iters.iter().any(|i| i.kind == IterKind::Reduce)
        && b.iters.iter().all(|i| i.extent > 0)
}

/// Whether two operands are used more than once, along different axes. If only one is, threads that
/// lie side by side read it through the cache.
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

/// An axis of the result: how many threads it has and how many elements each, in how many vectors,
/// and the loops over blocks, vectors, threads, and elements.
struct Axis {
    threads: Number,
    vectors: Number,
    elements: Number,
    loops: Vec<LoopVar>,
}

/// Tiles of this shape.
fn tiles(schedule: &Schedule, block: &str, shape: &Shape) -> usize {
    let extents = spatial_extents(schedule, block);
    let sides = sides(schedule, block, extents.len());
    let along = |side: Option<usize>| -> usize {
        sides.iter().zip(&extents).filter(|(s, _)| **s == side).map(|(_, extent)| extent).product()
    };
    let tiles = [0, 1].map(|side| along(Some(side)).div_ceil(shape.side));
    along(None) * tiles[0] * tiles[1]
}

/// Tiles whose operands come through shared memory, so many rounds ahead, or from where they are.
fn tiled(r: &mut Recorder, name: &str, shape: &Shape, ahead: Option<i64>) -> Result<()> {
    let (consumer, block) = (consumer(r, name)?, r.get_block(name)?);
    let (spatial, reduced) = loops(r, block)?;
    let sides = sides(r.schedule(), name, spatial.len());
    let lengths = lengths(r, &spatial, &sides, shape)?;
    let axes = axes(r, block, &spatial, &lengths)?;
    let elements =
        lengths.iter().map(|Length { vectors, elements, .. }| vectors * elements).product();
    let terms = terms::cut(r, &reduced, shape.terms, elements)?;
    let of = |part: usize| axes.iter().map(|axis| axis.loops[part]).collect::<Vec<_>>();
    let (blocks, vectors, threads, registers) = (of(0), of(1), of(2), of(3));
    let outer = [&blocks[..], &vectors, &threads].concat();
    r.reorder(&[&outer[..], &[terms.outer], &terms.inner, &registers].concat())?;
    let (grid, thread) = (fused(r, &blocks)?, fused(r, &threads)?);
    r.bind(grid, ThreadAxis::BlockX)?;
    r.bind(thread, ThreadAxis::ThreadX)?;
    vectors.into_iter().try_for_each(|l| r.bind(l, ThreadAxis::Virtual))?;
    r.reverse_compute_at(consumer, thread)?;
    if let Some(ahead) = ahead {
        let threads: Vec<Number> = axes.iter().map(|axis| axis.threads).collect();
        for operand in operands(r.schedule(), name)? {
            fetch(r, block, operand, terms.outer, &threads)?;
        }
        let mut all = vec![ahead];
        all.extend([2, 1, 0, 3].into_iter().filter(|&other| other != ahead));
        let ahead = r.sample_first(&all)?;
        r.annotate_loop(terms.outer, PIPELINE, ahead.into())?;
    }
    let written_out = axes.iter().filter(|axis| axis.elements != Number::Known(1));
    written_out.map(|axis| axis.loops[3]).try_for_each(|l| r.unroll(l))?;
    terms.written_out.iter().try_for_each(|&l| r.unroll(l))?;
    let columns = spatial_extents(r.schedule(), &r.name_of(consumer)?).last().copied();
    let is_whole = columns.is_some_and(|n| n.is_multiple_of(VECTOR));
    write_out(r, consumer, thread, is_whole)
}

/// Cuts the loops of the result's axes.
fn axes(
    r: &mut Recorder,
    block: BlockVar,
    spatial: &[LoopVar],
    lengths: &[Length],
) -> Result<Vec<Axis>> {
    let mut axes = vec![];
    for (&l, &Length { threads, vectors, elements }) in spatial.iter().zip(lengths) {
        let is_cut = threads * elements > 1;
        let fits = |n: usize| is_cut && n <= r.extent(l).unwrap_or(1);
        let others = |n: usize| [n * 2, n / 2, n * 4, n / 4].map(|n| if fits(n) { n } else { 0 });
        let (of_threads, of_elements) = (others(threads), others(elements));
        let in_vectors = [1, 2].map(|n| if vectors > 1 { n } else { 0 });
        let threads = choose(r, threads, &of_threads, |n| n > 0)?;
        let vectors = choose(r, vectors, &in_vectors, |n| n > 0)?;
        let elements = choose(r, elements, &of_elements, |n| n > 0 && n <= 8)?;
        axes.push(Axis { threads, vectors, elements, loops: vec![] });
    }
    for (axis, Axis { threads, vectors, elements, .. }) in axes.iter().enumerate() {
        if [threads, vectors, elements].iter().any(|n| **n != Number::Known(1)) {
            // Tiles at the border compute too much rather than ask at every term; where they may
            // not, they ask.
            let _ = r.pad(block, axis, &[*vectors, *threads, *elements]);
        }
    }
    for (axis, &l) in axes.iter_mut().zip(spatial) {
        axis.loops = r.split(l, &[0.into(), axis.vectors, axis.threads, axis.elements])?;
    }
    Ok(axes)
}

/// For each axis the side of the tile that it belongs to, `None` for one of a batch. An axis that
/// no operand knows, as a batch of one, has no side either.
fn sides(schedule: &Schedule, block: &str, rank: usize) -> Vec<Option<usize>> {
    let Ok(b) = schedule.block(block) else { return vec![None; rank] };
    let spatial = b.iters.iter().filter(|i| i.kind == IterKind::Spatial);
    let vars: Vec<VarId> = spatial.map(|i| i.var).collect();
    let loads = b.body.value().loads();
    let lacks = |v: &VarId| -> Vec<BufId> {
        let used = |indices: &[Expr]| indices.iter().any(|e| e.vars().contains(v));
        loads.iter().filter(|(_, i)| !used(i)).map(|(b, _)| *b).collect()
    };
    let mut groups: Vec<Vec<BufId>> = vec![];
    vars.iter()
        .map(|v| {
            let lacked = lacks(v);
            if lacked.is_empty() || lacked.len() == loads.len() {
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

/// Threads along an axis, vectors of each thread, and elements of a vector.
#[derive(Clone, Copy)]
struct Length {
    threads: usize,
    vectors: usize,
    elements: usize,
}

/// The lengths along each axis: the inner axes of a side are filled first.
fn lengths(
    r: &Recorder,
    spatial: &[LoopVar],
    sides: &[Option<usize>],
    shape: &Shape,
) -> Result<Vec<Length>> {
    let mut left =
        vec![(shape.side, shape.register); 1 + sides.iter().flatten().max().copied().unwrap_or(0)];
    let mut lengths = vec![Length { threads: 1, vectors: 1, elements: 1 }; spatial.len()];
    for (axis, &l) in spatial.iter().enumerate().rev() {
        let (Some(side), extent) = (sides[axis], r.extent(l)?) else { continue };
        // Further sides, of a third operand, get no tile.
        let Some((elements, registers)) = left.get_mut(side).filter(|_| side < 2) else { continue };
        let tile = side_of(extent, *elements);
        let own = registers_of(tile, *registers);
        // Innermost elements lie side by side.
        let is_innermost = axis + 1 == spatial.len();
        let vectors = if is_innermost && own.is_multiple_of(VECTOR) { own / VECTOR } else { 1 };
        lengths[axis] = Length { threads: tile.div_ceil(own), vectors, elements: own / vectors };
        *elements /= tile;
        *registers /= own;
    }
    Ok(lengths)
}

/// The part of an axis that a tile with room for `room` elements takes. A divisor leaves nothing
/// over, but it is to be made of whole vectors if the axis is.
fn side_of(extent: usize, room: usize) -> usize {
    let part = terms::part(extent, room);
    let whole = |n: usize| n.is_multiple_of(VECTOR);
    if extent > room && whole(extent) && !whole(part) { room } else { part }
}

/// Elements of a thread, `most` at most, along a side of the tile: as many as leave threads the
/// least over.
fn registers_of(tile: usize, most: usize) -> usize {
    let cost = |own: &usize| (tile.div_ceil(*own) * own, std::cmp::Reverse(*own));
    if tile <= most { tile } else { (most.div_ceil(2)..=most).min_by_key(cost).unwrap_or(1) }
}

/// Where an operand comes from.
enum Operand {
    /// An input or a result of another kernel.
    Memory(String),
    /// A stage that nothing else reads.
    Stage(String),
}

fn operands(schedule: &Schedule, block: &str) -> Result<Vec<Operand>> {
    let program = schedule.program();
    let b = schedule.block(block)?;
    let loaded: BTreeSet<BufId> = b.body.value().loads().iter().map(|(b, _)| *b).collect();
    let operand = |buffer: BufId| {
        let writes = |w: &&crate::program::Block| {
            w.body.writes().iter().any(|access| access.buffer == buffer)
        };
        let writers: Vec<_> = program.blocks().into_iter().filter(writes).collect();
        match writers[..] {
            [stage] if is_own(schedule, &stage.name, block) => Operand::Stage(stage.name.clone()),
            _ => Operand::Memory(program.buffer(buffer).name.clone()),
        }
    };
    Ok(loaded.into_iter().map(operand).collect())
}

/// Whether the stage is elementwise and read by `block` only.
fn is_own(schedule: &Schedule, stage: &str, block: &str) -> bool {
    let assigns = schedule.block(stage).is_ok_and(|b| matches!(b.body, Body::Assign { .. }));
    assigns
        && is_unbound(schedule, stage)
        && schedule.consumers(stage).is_ok_and(|c| matches!(&c[..], [one] if one == block))
}

/// Brings the part of an operand that a round needs to shared memory, by all threads together.
fn fetch(
    r: &mut Recorder,
    block: BlockVar,
    operand: Operand,
    at: LoopVar,
    threads: &[Number],
) -> Result<()> {
    let copy = match operand {
        Operand::Memory(buffer) => r.cache_read(block, &buffer, Scope::Shared)?,
        Operand::Stage(stage) => {
            let buffer = written(r.schedule(), &stage)?;
            if r.set_scope(&buffer, Scope::Shared).is_err() {
                // A result of the program is in memory anyway.
                return fetch(r, block, Operand::Memory(buffer), at, threads);
            }
            r.get_block(&stage)?
        }
    };
    r.compute_at(copy, at)?;
    let own = inside(r, copy, at)?;
    // Elements that lie side by side are copied together.
    let side_by_side = own.last().map_or(Ok(1), |&l| r.extent(l))?;
    let fits = |n: usize| side_by_side.is_multiple_of(n);
    let first = if fits(VECTOR) { VECTOR } else { 1 };
    let vector = choose(r, first, &[1, VECTOR / 2, VECTOR], fits)?;
    let all = fused(r, &own)?;
    let parts = r.split(all, &[0.into(), vector])?;
    bind_threads(r, parts[0], threads)?;
    r.vectorize(parts[1])
}

/// Loops of a block inside of another loop around it.
fn inside(r: &mut Recorder, block: BlockVar, outer: LoopVar) -> Result<Vec<LoopVar>> {
    let outer = r.loop_ref(outer)?;
    let mut loops = r.get_loops(block)?;
    let refs = loops.iter().map(|&l| r.loop_ref(l)).collect::<Result<Vec<_>>>()?;
    let around = refs.iter().position(|l| *l == outer).ok_or(StepError::NoChoice)?;
    Ok(loops.split_off(around + 1))
}

/// Writes out what takes a tile out of registers, a vector at a time if rows are whole ones.
fn write_out(r: &mut Recorder, consumer: BlockVar, thread: LoopVar, is_whole: bool) -> Result<()> {
    let mut own = inside(r, consumer, thread)?;
    let extents = own.iter().map(|&l| r.extent(l)).collect::<Result<Vec<_>>>()?;
    if extents.iter().product::<usize>() > MAX_UNROLLED {
        return Ok(());
    }
    if is_whole
        && extents.last() == Some(&VECTOR)
        && let Some(vector) = own.pop()
    {
        r.vectorize(vector)?;
    }
    own.into_iter().try_for_each(|l| r.unroll(l))
}
