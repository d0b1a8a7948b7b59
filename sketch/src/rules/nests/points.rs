//! Points: a stage whose elements do not depend on one another, in vectors along its last axis.
//!
//! ```text
//! y[v0, v1] = exp(x[v0, v1]), f32[64, 100], 8 lanes
//! =>
//! parallel p in 0..64 {
//!   for i in 0..12 { vectorized l in 0..8 { y[p, i * 8 + l] = exp(..) } }
//!   vectorized l in 0..4 { y[p, 96 + l] = exp(..) }
//! }
//! ```
//!
//! Outer axes run in parallel, as many as give enough iterations. Where they give few, the last
//! axis is cut into chunks, which do.

use std::ops::Range;

use ansc_graph::Stage;

use super::parts::in_vectors;
use super::squares::is_transposed;
use super::{Nests, Way};
use crate::doubling::Doubling;
use crate::schedule::Rest;
use crate::switch::Squares;
use crate::trace::{LoopVar, StepError};
use crate::walk::{self, PARALLEL_ITERATIONS, is_worthwhile, merged};

pub(super) fn apply(
    nests: &mut Nests,
    stage: usize,
    way: &Way,
) -> Result<Option<usize>, StepError> {
    let s = nests.stage(stage);
    let is_step = Doubling::of_stage(s).is_some() && way.number() == 0;
    let done: Vec<bool> = (0..nests.compute.stages.len()).map(|other| other < stage).collect();
    let is_square = Squares::of(&nests.compute, stage, &done).is_some();
    let is_other = is_square || is_step || is_transposed(&nests.compute, &nests.task.machine, s);
    if s.reduce.is_some() || s.ty.is_empty() || is_other {
        return Ok(None);
    }
    let (worthwhile, lanes) = (is_worthwhile(s), nests.lanes(stage));
    let groups = walk::groups(&nests.compute, s, 0..s.ty.rank(), nests.task.wishes.apart);
    let plan = Plan::of(s, &groups, lanes);
    let block = nests.block(stage)?;
    let loops = nests.loops(block)?;
    let mut axes = nests.merged(&loops, &groups)?;
    let Some(last) = axes.pop() else { return Ok(Some(1)) };
    let outer = match plan.chunks {
        None => {
            in_vectors(nests, last, lanes)?;
            axes[..plan.outer].to_vec()
        }
        Some(chunks) => in_chunks(nests, &axes[..plan.outer], last, &chunks, lanes)?,
    };
    if outer.is_empty() {
        return Ok(Some(1));
    }
    let outer = nests.recorder.fuse(&outer)?;
    if worthwhile {
        nests.parallel(outer)?;
    }
    Ok(Some(1))
}

/// The loops outside of chunks, that over chunks among them. Where it leaves a rest, it is the
/// outermost one, so that the rest is a nest beside all of them.
fn in_chunks(
    nests: &mut Nests,
    outer: &[LoopVar],
    axis: LoopVar,
    chunks: &[i64],
    lanes: usize,
) -> Result<Vec<LoopVar>, StepError> {
    let extent = nests.recorder.extent(axis)?;
    let is_whole = chunks.iter().all(|&vectors| extent.is_multiple_of(vectors as usize * lanes));
    let vectors = nests.choose(chunks)?;
    let r = &mut nests.recorder;
    let parts = r.split(axis, &[0.into(), vectors, lanes.into()])?;
    r.vectorize(parts[2])?;
    let around = match is_whole || outer.is_empty() {
        true => [outer, &parts[..1]].concat(),
        false => {
            let around = [&parts[..1], outer].concat();
            r.reorder(&[&around[..], &parts[1..]].concat())?;
            around
        }
    };
    r.peel(parts[0], Rest::Overlap)?;
    Ok(around)
}

/// Which loops run in parallel.
struct Plan {
    /// How many axes do.
    outer: usize,
    /// Vectors of a chunk of the last axis, if chunks do, too.
    chunks: Option<Vec<i64>>,
}

impl Plan {
    fn of(s: &Stage, groups: &[Range<usize>], lanes: usize) -> Plan {
        let outer = outer_axes(s, groups);
        let total: usize = groups[..outer].iter().map(|g| merged(s, g)).product();
        let last = groups.last().filter(|_| outer + 1 == groups.len());
        let vectors = last.map_or(0, |last| merged(s, last) / lanes);
        let few = total < PARALLEL_ITERATIONS && vectors >= 2 * PARALLEL_ITERATIONS;
        Plan { outer, chunks: few.then(|| chunks(vectors)).flatten() }
    }
}

/// All but the last axis, which is for vectors; none more than give enough iterations.
pub(super) fn outer_axes(s: &Stage, groups: &[Range<usize>]) -> usize {
    let mut total = 1;
    for (i, group) in groups.iter().enumerate() {
        if i + 1 == groups.len() || total >= 4 * PARALLEL_ITERATIONS {
            return i;
        }
        total *= merged(s, group);
    }
    0
}

/// Vectors of a chunk: such that all chunks have as many, and as many chunks as threads want; or
/// half as many, or twice.
fn chunks(vectors: usize) -> Option<Vec<i64>> {
    let count = (2..=2 * PARALLEL_ITERATIONS).rev().find(|c| vectors.is_multiple_of(*c))?;
    let vectors = (vectors / count) as i64;
    let mut all = vec![vectors, vectors * 2, vectors / 2];
    all.retain(|&n| n > 0);
    Some(all)
}
