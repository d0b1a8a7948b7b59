//! Rows: stages that agree on their leading axes, under one loop over these.
//!
//! ```text
//! m[v0] = max[8] x[v0, v1];  e[v0, v1] = exp(x[v0, v1] - m[v0])
//! s[v0] = sum[8] e[v0, v1];  y[v0, v1] = e[v0, v1] / s[v0]
//! => m, e and s are local to the row
//! parallel p in 0..n { m = ..; e[0..8] = ..; s = ..; y[p, 0..8] = .. }
//! ```
//!
//! Each stage waits for the last result of the one before. Short rows are done several at a time,
//! so that one goes on while the other waits.

use std::ops::Range;

use ansc_graph::Expr;

use super::parts::Part;
use super::points::outer_axes;
use super::{Nests, Way, contraction};
use crate::contraction::{goes_along_terms, is_tileable};
use crate::trace::{BlockVar, LoopVar, StepError};
use crate::usage::{has_reuse, readers};
use crate::walk::{PARALLEL_ITERATIONS, is_worthwhile};

/// Elements of a row beyond which what stages wait for is little.
const SHORT: usize = 4096;
/// Rows that are done at a time.
const TOGETHER: [i64; 3] = [2, 1, 4];

/// Each further way shares fewer axes, and so has longer rows; at last none.
pub(super) fn apply(
    nests: &mut Nests,
    first: usize,
    way: &Way,
) -> Result<Option<usize>, StepError> {
    let runs = runs(nests, first);
    let run = if runs.is_empty() { None } else { runs.into_iter().nth(way.number()) };
    let Some((stages, axes)) = run.or_else(|| alone(nests, first)) else {
        return Ok(None);
    };
    // A result in between has no reader under whose loop it moves.
    if stages.clone().rev().skip(1).any(|s| nests.compute.outputs.contains(&s)) {
        return Ok(None);
    }
    let worthwhile = stages.clone().any(|s| is_worthwhile(nests.stage(s)));
    let together = together(nests, stages.clone(), axes, worthwhile);
    let parts = stages.clone().map(|stage| Part::of(nests, stage, axes));
    let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
    let (several, row) = rows(nests, parts[parts.len() - 1].last, axes, &together)?;
    for (stage, part) in stages.clone().zip(&mut parts).rev() {
        if stage + 1 < stages.end {
            nests.recorder.compute_at(part.last, row.ok_or(StepError::NoChoice)?)?;
            nests.keep_local(part.last)?;
        }
        part.follow(nests, row)?;
    }
    parts.iter().try_for_each(|part| part.in_vectors(nests))?;
    if let (Some(row), Some(_)) = (row, several) {
        nests.recorder.unroll_jam(row)?;
    }
    let alone = (axes == 0).then(|| parts[0].over_vectors(nests, first)).flatten();
    let outer = several.or(row).or(alone);
    if let Some(outer) = outer.filter(|_| worthwhile) {
        nests.parallel(outer)?;
    }
    Ok(Some(stages.len()))
}

/// The loop over rows around the block, and one over several of them around that.
fn rows(
    nests: &mut Nests,
    block: BlockVar,
    axes: usize,
    together: &[i64],
) -> Result<(Option<LoopVar>, Option<LoopVar>), StepError> {
    if axes == 0 {
        return Ok((None, None));
    }
    let loops = nests.loops(block)?;
    let row = nests.recorder.fuse(&loops[..axes])?;
    if together.len() < 2 {
        return Ok((None, Some(row)));
    }
    let rows = nests.choose(together)?;
    let parts = nests.recorder.split(row, &[0.into(), rows])?;
    Ok((Some(parts[0]), Some(parts[1])))
}

/// A reduction of its own whose outer axes run in parallel. One that uses elements again is a
/// contraction, unless it has a single column, or its vectors would gather.
fn alone(nests: &Nests, stage: usize) -> Option<(Range<usize>, usize)> {
    let s = nests.stage(stage);
    let is_contraction = is_tileable(s) && !contraction::gathers(nests, stage);
    if s.reduce.is_none() || is_contraction || s.extents().contains(&0) {
        return None;
    }
    if goes_along_terms(s, nests.lanes(stage)) {
        return Some((stage..stage + 1, s.ty.rank()));
    }
    let axes: Vec<_> = (0..s.ty.rank()).map(|axis| axis..axis + 1).collect();
    let few = s.ty.shape.last().is_none_or(|&extent| extent < nests.lanes(stage).min(4));
    let outer = outer_axes(s, &axes);
    Some((stage..stage + 1, if few && outer + 1 == axes.len() { axes.len() } else { outer }))
}

/// How many rows may be done at a time: those numbers that leave enough iterations for all threads.
fn together(nests: &Nests, stages: Range<usize>, axes: usize, parallel: bool) -> Vec<i64> {
    let of_row = |s: usize| nests.stage(s).extents()[axes..].iter().product::<usize>();
    let rows: usize = nests.stage(stages.start).ty.shape[..axes].iter().product();
    let several = stages.len() > 1;
    let short = several && stages.into_iter().all(|s| of_row(s) <= SHORT);
    let enough = |n: usize| !parallel || rows / n >= PARALLEL_ITERATIONS;
    let fits = |n: &&i64| short && rows.is_multiple_of(**n as usize) && enough(**n as usize);
    TOGETHER.iter().filter(fits).copied().collect()
}

/// The longest runs of stages from `first` that agree on some number of leading axes, and that
/// number. Of several such numbers the largest comes first, with the shortest rows. After all of
/// them the stages are apart.
pub(super) fn runs(nests: &Nests, first: usize) -> Vec<(Range<usize>, usize)> {
    let rank = nests.stage(first).ty.rank();
    let mut runs: Vec<_> =
        (1..=rank).rev().map(|axes| (members(nests, first, axes), axes)).collect();
    let longest = runs.iter().map(|(stages, _)| stages.len()).max().unwrap_or(0);
    let reduces = |mut stages: Range<usize>| stages.any(|s| nests.stage(s).reduce.is_some());
    runs.retain(|(stages, _)| longest > 1 && stages.len() == longest && reduces(stages.clone()));
    runs
}

fn members(nests: &Nests, first: usize, axes: usize) -> Range<usize> {
    let shape = &nests.stage(first).ty.shape[..axes];
    let mut end = first;
    for (stage, s) in nests.compute.stages.iter().enumerate().skip(first) {
        let agrees = s.ty.shape.get(..axes) == Some(shape) && !has_reuse(s);
        if !agrees || !reads_own_row(nests, stage, first..end, axes) {
            break;
        }
        end = stage + 1;
    }
    // A stage that others read later must be in memory, as the last one is.
    let escapes = |stage: usize, end: usize| {
        let later = readers(&nests.compute, nests.compute.stage_buffer(stage));
        !nests.compute.outputs.contains(&stage) && later.iter().any(|&r| r >= end)
    };
    while end > first && (first..end - 1).any(|stage| escapes(stage, end)) {
        end -= 1;
    }
    first..end
}

fn reads_own_row(nests: &Nests, stage: usize, members: Range<usize>, axes: usize) -> bool {
    nests.stage(stage).body.loads().iter().all(|(buffer, indices)| {
        let inside = nests.compute.stage_of(*buffer).is_some_and(|s| members.contains(&s));
        let shape = &nests.compute.buffer_type(*buffer).shape;
        // Along an axis of one element every place is the row's own.
        let is_own = |axis: usize| indices[axis] == Expr::var(axis) || shape[axis] == 1;
        !inside || (0..axes).all(is_own)
    })
}
