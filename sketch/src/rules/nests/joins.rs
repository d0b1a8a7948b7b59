//! Joins: a map that chooses among what it reads by its place along some axes, as a nest for each
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
//! are walked with it. A choice that reads across the rows of what it writes goes in squares.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ansc_graph::{Expr, Stage, VarId};

use super::parts::in_vectors;
use super::squares::{self, Turned};
use super::{Nests, Way};
use crate::affine::{self, Digit, Extents, Source};
use crate::region;
use crate::trace::{BlockVar, LoopVar, StepError};
use crate::tree;
use crate::walk::{self, is_worthwhile};

/// Vectors that are written out in a row at most.
const MOST_IN_A_ROW: usize = 4;
/// More choices would be much code.
const MOST_PARTS: usize = 32;

pub(super) fn apply(nests: &mut Nests, stage: usize, _: &Way) -> Result<Option<usize>, StepError> {
    let s = nests.stage(stage).clone();
    let Some(cuts) = borders(&s).filter(|cuts| !cuts.is_empty() && s.reduce.is_none()) else {
        return Ok(None);
    };
    let worthwhile = is_worthwhile(&s);
    let block = nests.block(stage)?;
    let loops = nests.recorder.get_loops(block)?;
    let axis = cuts[0].axis;
    let parts = Part { stage, whole: &s, lanes: nests.lanes(stage) };
    for first in parts.cut(nests, block, &cuts, &[])? {
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

/// Where along an axis choices change.
struct Cut {
    axis: usize,
    points: Vec<usize>,
}

/// Some of a stage's places.
struct Part<'a> {
    stage: usize,
    whole: &'a Stage,
    lanes: usize,
}

impl Part<'_> {
    /// Parts what the block computes, which are the places within `ranges` along the axes before
    /// those of the cuts. Tells which loop of each part is outermost, if that has several
    /// iterations whatever is decided.
    fn cut(
        &self,
        nests: &mut Nests,
        block: BlockVar,
        cuts: &[Cut],
        ranges: &[(usize, Range<usize>)],
    ) -> Result<Vec<Option<LoopVar>>, StepError> {
        let (Cut { axis, points }, rest) = cuts.split_first().ok_or(StepError::NoChoice)?;
        let loops = nests.recorder.get_loops(block)?;
        let parts = nests.recorder.loop_partition(loops[*axis], points)?;
        let starts = [&[0], &points[..]].concat();
        let ends = [&points[..], &[self.whole.ty.shape[*axis]]].concat();
        let mut outermost = vec![];
        for (&part, (&start, &end)) in parts.iter().zip(starts.iter().zip(&ends)) {
            let name = nests.recorder.block_under(part)?;
            let block = nests.recorder.get_block(&name)?;
            let ranges = [ranges, &[(*axis, start..end)]].concat();
            outermost.push(match rest {
                [] => self.in_vectors(nests, block, *axis, &ranges)?,
                rest => {
                    self.cut(nests, block, rest, &ranges)?;
                    Some(part).filter(|_| end - start > 1)
                }
            });
        }
        Ok(outermost)
    }

    /// The axes from `axis` on that all accesses walk as one, in vectors.
    fn in_vectors(
        &self,
        nests: &mut Nests,
        block: BlockVar,
        axis: usize,
        ranges: &[(usize, Range<usize>)],
    ) -> Result<Option<LoopVar>, StepError> {
        let walked = self.walked(nests, ranges);
        let groups = walk::groups(
            &nests.compute,
            &walked,
            axis..self.whole.ty.rank(),
            nests.task.wishes.apart,
        );
        let loops = nests.recorder.get_loops(block)?;
        let axes = nests.merged(&loops, &groups)?;
        if let Some(across) = squares::across(&walked, &groups, self.lanes) {
            let turned = Turned::of(&walked, &groups, across, self.lanes);
            let first = squares::nest(nests, &turned, axes)?;
            return Ok(first.first().copied());
        }
        let last = *axes.last().ok_or(StepError::NoChoice)?;
        let extent = nests.recorder.extent(last)?;
        let chunks = in_vectors(nests, last, self.lanes)?;
        Ok(match axes.len() {
            1 => Some(chunks).filter(|_| extent >= 2 * MOST_IN_A_ROW * self.lanes),
            _ => Some(axes[0]),
        })
    }

    /// The part as a stage that reads what it writes, too: for how it goes through memory.
    fn walked(&self, nests: &Nests, ranges: &[(usize, Range<usize>)]) -> Stage {
        let (mut part, rank) = (self.whole.clone(), self.whole.ty.rank());
        ranges.iter().for_each(|(axis, range)| part.ty.shape[*axis] = range.len());
        let mut extents = Extents::default();
        (0..rank).for_each(|i| extents.set(VarId::new(i), part.ty.shape[i]));
        let start = |i: usize| ranges.iter().find(|(axis, _)| *axis == i).map(|(_, r)| r.start);
        let place = |i: usize| match start(i) {
            None | Some(0) => Expr::var(i),
            Some(start) => Expr::var(i) + Expr::index(start),
        };
        let value = self.whole.body.substitute(&|v| Some(place(v.index())));
        let value = affine::simplify(&value, &extents);
        let own =
            Expr::Load(nests.compute.stage_buffer(self.stage), (0..rank).map(place).collect());
        part.body = value.max(own);
        part
    }
}

/// Axes on which choices depend, in their order, and where along them they change. Where there
/// would be too many parts, outer axes stay whole: a vector does not cross them. None if a choice
/// depends on anything else.
fn borders(s: &Stage) -> Option<Vec<Cut>> {
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
    let (mut cuts, mut parts) = (vec![], 1);
    for (axis, points) in found.into_iter().rev() {
        let inside = |point: &usize| (1..s.ty.shape[axis]).contains(point);
        let points: Vec<usize> = points.into_iter().filter(inside).collect();
        parts *= points.len() + 1;
        if parts > MOST_PARTS {
            break;
        }
        if !points.is_empty() {
            cuts.push(Cut { axis, points });
        }
    }
    cuts.reverse();
    is_plain.then_some(cuts)
}

/// The axis by which a condition is decided, and the place from which on it holds or fails.
fn border(s: &Stage, condition: &Expr) -> Option<(usize, usize)> {
    let slack = region::slack(condition, &Extents::default())?;
    let constant = slack.constant;
    let (digit, &coefficient) = slack.terms.first_key_value().filter(|_| slack.terms.len() == 1)?;
    let axis = (0..s.ty.rank()).find(|i| *digit == Digit::whole(Source::Var(VarId::new(*i))))?;
    let point = match coefficient {
        1 => constant.checked_neg()?,
        -1 => constant.checked_add(1)?,
        _ => return None,
    };
    Some((axis, usize::try_from(point).ok()?))
}
