//! Scans: a chain of cumulative sums as one pass with running values.
//!
//! ```text
//! s[v0, v1] = sum of x[0..v0 + 1, v1], f32[64, 96], 8 lanes
//! =>
//! parallel jo in 0..3 { run[0..32] = 0
//!   for i in 0..64 {
//!     4 vectors of run[..] += x[i, jo * 32 + ..];  the same of s[i, jo * 32 + ..] = run[..] } }
//! ```
//!
//! Vectors lie along the axes inside of the one that is run along, in pieces of a chunk where it
//! has several; where these axes are too short, several rows go on side by side. A map that only
//! the first sum reads, and the stage that reads the result at its own place, if nothing else does,
//! are computed in the same pass.

use ansc_graph::Expr;

use super::parts::at_most;
use super::{Nests, Way};
use crate::doubling::{self, Doubling};
use crate::schedule::Rest;
use crate::trace::{BlockVar, LoopVar, StepError};
use crate::usage::readers;
use crate::walk::{self, PARALLEL_ITERATIONS, is_worthwhile, merged};

/// Vectors of running values.
const VECTORS: [i64; 4] = [8, 4, 2, 1];
/// So many times as many are kept in memory, piece by piece.
const PIECES: [i64; 4] = [1, 4, 8, 2];
/// The same where rows are apart by whole pages. They meet in the same sets of a cache, which throw
/// out lines that were fetched ahead, unless most of them were asked for by then.
const PIECES_OF_PAGES: [i64; 4] = [4, 8, 2, 1];
const PAGE: usize = 4096;
/// Rows that go on side by side.
const ROWS: [i64; 4] = [4, 8, 2, 1];

/// Loops of the first block of a chain, in their order at last: those that run in parallel, the one
/// over chunks of lanes, and, inside of the axis, that over pieces and those that are written out.
struct Order {
    outer: Vec<LoopVar>,
    chunks: Option<LoopVar>,
    /// That over pieces of a chunk, inside of the axis.
    pieces: Option<LoopVar>,
    /// Whether there are whole chunks.
    remain: bool,
    inside: Vec<LoopVar>,
    /// Whether the last one of these is a vector.
    vector: bool,
    /// Whether chunks leave no rest.
    whole: bool,
}

/// The other way leaves the steps to [`points`](super::points): a row of few elements doubles fast.
pub(super) fn apply(nests: &mut Nests, from: usize, way: &Way) -> Result<Option<usize>, StepError> {
    let feeder = feeds(nests, from).then_some(from);
    let first = from + usize::from(feeder.is_some());
    let Some((steps, Doubling { axis, .. })) = doubling::chain(&nests.compute, first) else {
        return Ok(None);
    };
    if way.number() > 0 {
        return Ok(None);
    }
    let last = first + steps - 1;
    let worthwhile = is_worthwhile(nests.stage(first));
    let block = nests.block(first)?;
    let mut loops = nests.recorder.get_loops(block)?;
    let along = loops[axis];
    let order = match is_wide(nests, first, axis) {
        true => in_vectors(nests, first, axis, &loops)?,
        false => {
            loops.remove(axis);
            side_by_side(nests, first, axis, loops)?
        }
    };
    let (chunks, pieces) = (order.chunks.as_slice(), order.pieces.as_slice());
    let around = [&order.outer[..], chunks, &[along], pieces, &order.inside].concat();
    nests.recorder.reorder(&around)?;
    let written_out = order.inside.len() - usize::from(order.vector);
    order.inside[..written_out].iter().try_for_each(|&l| nests.recorder.unroll(l))?;
    let store = match order.pieces {
        Some(pieces) => nests.recorder.scan_in(block, along, pieces)?,
        None => nests.recorder.scan(block, along)?,
    };
    let reader = reader(nests, last);
    let stored = match reader {
        Some(reader) => join(nests, reader, store, along, order.inside.len())?,
        None => store,
    };
    if let Some(feeder) = feeder {
        feed(nests, feeder, block, along, order.inside.len())?;
    }
    let init = nests.init_of(block)?;
    if order.vector {
        [init, block, stored].into_iter().try_for_each(|block| in_vector(nests, block))?;
    }
    if let Some(chunks) = order.chunks {
        nests.recorder.peel(chunks, Rest::Pieces)?;
    }
    in_parallel(nests, &order, worthwhile)?;
    Ok(Some(steps + usize::from(feeder.is_some()) + usize::from(reader.is_some())))
}

/// Whether the stage is a map that only the first sum of a chain reads, which comes next.
fn feeds(nests: &Nests, stage: usize) -> bool {
    let compute = &nests.compute;
    let (own, next) = (compute.stage_buffer(stage), stage + 1);
    let chain = || doubling::chain(compute, next).is_some_and(|(_, step)| step.source == own);
    let alone = || readers(compute, own) == [next] && !compute.outputs.contains(&stage);
    compute.stages[stage].reduce.is_none() && next < compute.stages.len() && alone() && chain()
}

/// The map is computed element by element, before an element is added.
fn feed(
    nests: &mut Nests,
    feeder: usize,
    block: BlockVar,
    along: LoopVar,
    inside: usize,
) -> Result<(), StepError> {
    let map = nests.block(feeder)?;
    let r = &mut nests.recorder;
    let loops = r.get_loops(block)?;
    let place = if inside == 0 { along } else { loops[loops.len() - 1] };
    r.compute_at(map, place)?;
    nests.keep_local(map)
}

/// Whether vectors lie along the axes inside of the one that is run along.
fn is_wide(nests: &Nests, stage: usize, axis: usize) -> bool {
    let s = nests.stage(stage);
    let inner = walk::groups(&nests.compute, s, axis + 1..s.ty.rank(), false);
    inner.last().is_some_and(|last| merged(s, last) >= nests.lanes(stage).min(4))
}

fn in_vectors(
    nests: &mut Nests,
    stage: usize,
    axis: usize,
    loops: &[LoopVar],
) -> Result<Order, StepError> {
    let s = nests.stage(stage);
    let lanes = nests.lanes(stage);
    let groups = walk::groups(&nests.compute, s, axis + 1..s.ty.rank(), false);
    let extent = groups.last().map_or(1, |last| merged(s, last));
    let candidates = at_most(&VECTORS, extent / lanes);
    // Enough iterations stay for all threads.
    let width = candidates[0] as usize * lanes;
    let others: usize = s.ty.shape[..axis].iter().product();
    let row = s.ty.shape[axis + 1..].iter().product::<usize>() * s.ty.dtype.size();
    let pieces = if row.is_multiple_of(PAGE) { &PIECES_OF_PAGES } else { &PIECES };
    let pieces = at_most(pieces, others * (extent / width) / PARALLEL_ITERATIONS);
    let most = *pieces.iter().max().unwrap_or(&1) as usize;
    let mut inner = nests.merged(loops, &groups)?;
    let vectors = nests.choose(&candidates)?;
    let last = inner.pop().ok_or(StepError::NoChoice)?;
    let pieces = nests.choose(&pieces)?;
    let parts = nests.recorder.split(last, &[0.into(), pieces, vectors, lanes.into()])?;
    Ok(Order {
        outer: [&loops[..axis], &inner].concat(),
        chunks: Some(parts[0]),
        remain: extent >= lanes,
        pieces: Some(parts[1]),
        inside: parts[2..].to_vec(),
        vector: true,
        whole: candidates.iter().all(|&n| extent.is_multiple_of(most * n as usize * lanes)),
    })
}

/// The last axis but that which is run along has several rows in each iteration.
fn side_by_side(
    nests: &mut Nests,
    stage: usize,
    axis: usize,
    mut others: Vec<LoopVar>,
) -> Result<Order, StepError> {
    let mut shape = nests.stage(stage).ty.shape.clone();
    shape.remove(axis);
    let several = |extent: &usize| extent.is_multiple_of(ROWS[0] as usize);
    let rows = match shape.iter().rposition(several) {
        Some(at) => {
            let mut rows = ROWS.to_vec();
            rows.retain(|n| shape[at].is_multiple_of(*n as usize));
            let rows = nests.choose(&rows)?;
            let parts = nests.recorder.split(others[at], &[0.into(), rows])?;
            others[at] = parts[0];
            vec![parts[1]]
        }
        None => vec![],
    };
    let (vector, remain, whole) = (false, false, true);
    Ok(Order { outer: others, chunks: None, pieces: None, inside: rows, vector, remain, whole })
}

/// The only reader of the stage, if it comes next and reads it at its own place.
fn reader(nests: &Nests, last: usize) -> Option<usize> {
    let compute = &nests.compute;
    let own = compute.stage_buffer(last);
    let next = last + 1;
    let reader = compute.stages.get(next)?;
    let here: Vec<Expr> = (0..reader.ty.rank()).map(Expr::var).collect();
    let mut of_own = reader.body.loads().into_iter().filter(|(buffer, _)| *buffer == own);
    let at_own_place = of_own.all(|(_, at)| at == here);
    let alone = readers(compute, own) == [next] && !compute.outputs.contains(&last);
    let alike = reader.reduce.is_none() && reader.ty.shape == compute.stages[last].ty.shape;
    (alone && alike && at_own_place).then_some(next)
}

/// The reader follows the block that stores running values in the innermost of its loops.
fn join(
    nests: &mut Nests,
    reader: usize,
    store: BlockVar,
    along: LoopVar,
    inside: usize,
) -> Result<BlockVar, StepError> {
    let block = nests.block(reader)?;
    let r = &mut nests.recorder;
    let loops = r.get_loops(store)?;
    let place = if inside == 0 { along } else { loops[loops.len() - 1] };
    r.reverse_compute_at(block, place)?;
    nests.keep_local(store)?;
    Ok(store)
}

/// The innermost loop of a block is one over lanes.
fn in_vector(nests: &mut Nests, block: BlockVar) -> Result<(), StepError> {
    let loops = nests.recorder.get_loops(block)?;
    nests.recorder.vectorize(*loops.last().ok_or(StepError::NoChoice)?)
}

fn in_parallel(nests: &mut Nests, order: &Order, worthwhile: bool) -> Result<(), StepError> {
    let r = &mut nests.recorder;
    let counts = order.outer.iter().map(|&l| r.extent(l)).collect::<Result<Vec<_>, _>>()?;
    let few = counts.iter().product::<usize>() < PARALLEL_ITERATIONS;
    let alone = order.outer.is_empty();
    let chunks = order.chunks.filter(|_| order.remain && (alone || (few && order.whole)));
    let all = [&order.outer[..], chunks.as_slice()].concat();
    if all.is_empty() {
        return Ok(());
    }
    let all = r.fuse(&all)?;
    if worthwhile { r.parallel(all) } else { Ok(()) }
}
