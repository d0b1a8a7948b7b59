//! Joins: a map that chooses among what it reads by its place along one axis, as a nest for each
//! choice.
//!
//! ```text
//! y[v0, v1] = select(v1 < 64, a[v0, v1], b[v0, v1 - 64]), f32[9, 96], 8 lanes
//! =>
//! parallel p in 0..9 {
//!   for i in 0..8 { vectorized l in 0..8 { y[p, i * 8 + l] = a[p, i * 8 + l] } }
//!   for i in 0..4 { vectorized l in 0..8 { y[p, 64 + i * 8 + l] = b[p, i * 8 + l] } }
//! }
//! ```
//!
//! Each nest has tails of its own, so no vector chooses, and axes inside of the one that is parted
//! are walked with it.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{Expr, Stage};

use super::Nests;
use super::parts::in_vectors;
use crate::affine::{self, Digit, Extents, Source};
use crate::region;
use crate::trace::{LoopVar, StepError};
use crate::tree;
use crate::walk::{self, is_worthwhile};

/// Vectors that are written out in a row at most.
const MOST_IN_A_ROW: usize = 4;
/// More choices would be much code.
const MOST_PARTS: usize = 32;

pub(super) fn apply(nests: &mut Nests, stage: usize, _: usize) -> Result<Option<usize>, StepError> {
    let s = nests.stage(stage).clone();
    let Some((axis, points)) = borders(&s) else { return Ok(None) };
    if s.reduce.is_some() || points.is_empty() || points.len() >= MOST_PARTS {
        return Ok(None);
    }
    let worthwhile = is_worthwhile(&s);
    let block = nests.block(stage)?;
    let loops = nests.recorder.get_loops(block)?;
    let parts = nests.recorder.loop_partition(loops[axis], &points)?;
    let starts = [&[0], &points[..]].concat();
    for (place, &part) in parts.iter().enumerate() {
        let end = starts.get(place + 1).copied().unwrap_or(s.ty.shape[axis]);
        let first = part_in_vectors(nests, stage, &s, axis, part, starts[place]..end)?;
        let first = first.filter(|_| axis == 0 && worthwhile);
        first.map_or(Ok(()), |first| nests.recorder.parallel(first))?;
    }
    if axis > 0 {
        let outer = nests.recorder.fuse(&loops[..axis])?;
        if worthwhile {
            nests.recorder.parallel(outer)?;
        }
    }
    Ok(Some(1))
}

/// One choice: its axes that all accesses walk as one, in vectors. Tells which loop is outermost,
/// if that has several iterations whatever is decided.
fn part_in_vectors(
    nests: &mut Nests,
    stage: usize,
    whole: &Stage,
    axis: usize,
    part: LoopVar,
    range: std::ops::Range<usize>,
) -> Result<Option<LoopVar>, StepError> {
    let walked = walked(nests, stage, whole, axis, range);
    let groups = walk::groups(&nests.compute, &walked, axis..whole.ty.rank());
    let lanes = nests.lanes(stage);
    let name = nests.recorder.block_under(part)?;
    let block = nests.recorder.get_block(&name)?;
    let loops = nests.recorder.get_loops(block)?;
    let axes = nests.merged(&loops, &groups)?;
    let last = *axes.last().ok_or(StepError::NoChoice)?;
    let extent = nests.recorder.extent(last)?;
    let chunks = in_vectors(nests, last, lanes)?;
    Ok(match axes.len() {
        1 => Some(chunks).filter(|_| extent >= 2 * MOST_IN_A_ROW * lanes),
        _ => Some(axes[0]),
    })
}

/// The part as a stage that reads what it writes, too: for how it goes through memory.
fn walked(
    nests: &Nests,
    stage: usize,
    whole: &Stage,
    axis: usize,
    range: std::ops::Range<usize>,
) -> Stage {
    let mut part = whole.clone();
    part.ty.shape[axis] = range.len();
    let mut extents = Extents::default();
    (0..whole.ty.rank()).for_each(|i| extents.set(ansc_graph::VarId::new(i), part.ty.shape[i]));
    let place = |i: usize| match i == axis && range.start > 0 {
        true => Expr::var(i) + Expr::index(range.start),
        false => Expr::var(i),
    };
    let value = whole.body.substitute(&|v| Some(place(v.index())));
    let value = affine::simplify(&value, &extents);
    let own =
        Expr::Load(nests.compute.stage_buffer(stage), (0..whole.ty.rank()).map(place).collect());
    part.body = value.max(own);
    part
}

/// The only axis on which choices depend, and where along it they change. None if one depends on
/// anything else.
fn borders(s: &Stage) -> Option<(usize, Vec<usize>)> {
    let mut found: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut is_plain = true;
    s.body.visit(&mut |e| {
        let Expr::Select(condition, ..) = e else { return };
        for part in tree::conjuncts(condition) {
            match border(s, part) {
                Some((axis, point)) => _ = found.entry(axis).or_default().insert(point),
                None => is_plain = false,
            }
        }
    });
    let (axis, points) = found.pop_first().filter(|_| is_plain && found.is_empty())?;
    let inside = |point: &usize| (1..s.ty.shape[axis]).contains(point);
    Some((axis, points.into_iter().filter(inside).collect()))
}

/// The axis by which a condition is decided, and the place from which on it holds or fails.
fn border(s: &Stage, condition: &Expr) -> Option<(usize, usize)> {
    let slack = region::slack(condition, &Extents::default())?;
    let constant = slack.constant;
    let (digit, &coefficient) = slack.terms.first_key_value().filter(|_| slack.terms.len() == 1)?;
    let axis = (0..s.ty.rank())
        .find(|i| *digit == Digit::whole(Source::Var(ansc_graph::VarId::new(*i))))?;
    let point = match coefficient {
        1 => constant.checked_neg()?,
        -1 => constant.checked_add(1)?,
        _ => return None,
    };
    Some((axis, usize::try_from(point).ok()?))
}
