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
    let mut parts = Parts::of(nests, stage, &s, &cuts);
    if !parts.is_turned() && s.ty.shape[..parts.shared].iter().all(|extent| *extent == 1) {
        // A loop of one iteration around all parts would leave nothing to run in parallel.
        nests.recorder.fuse(&loops[..=parts.shared])?;
        parts.units = std::mem::take(&mut parts.shared);
    }
    let shared = parts.shared;
    if parts.is_turned() {
        let order: Vec<LoopVar> = parts.order.iter().map(|&axis| loops[axis]).collect();
        nests.recorder.reorder(&order[shared..])?;
    }
    for first in parts.cut(nests, block, &cuts, &[])? {
        if shared == 0 && worthwhile {
            nests.recorder.parallel(first)?;
        }
    }
    if shared > 0 {
        let outer = nests.recorder.fuse(&loops[..shared])?;
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

impl Cut {
    /// The places of each part along the axis.
    fn ranges(&self, whole: &Stage) -> Vec<(usize, Range<usize>)> {
        let ends = [&self.points[..], &[whole.ty.shape[self.axis]]].concat();
        let starts = [&[0], &self.points[..]].concat();
        starts.into_iter().zip(ends).map(|(start, end)| (self.axis, start..end)).collect()
    }
}

/// The places within a range along each axis that was cut.
type Ranges<'a> = &'a [(usize, Range<usize>)];

/// The parts of a stage.
struct Parts<'a> {
    stage: usize,
    whole: &'a Stage,
    lanes: usize,
    /// So many loops, the outermost ones, go over all parts. Each part has the others for itself.
    shared: usize,
    /// Axes in the order of their loops while parts are cut.
    order: Vec<usize>,
    /// The first so many axes have one element each, and no loop.
    units: usize,
}

impl<'a> Parts<'a> {
    /// All parts share the axes outside of the first one that is cut, unless a part goes in squares
    /// along one of them. Then axes that are cut come before it.
    fn of(nests: &Nests, stage: usize, whole: &'a Stage, cuts: &[Cut]) -> Parts<'a> {
        let (first, rank) = (cuts[0].axis, whole.ty.rank());
        let lanes = nests.lanes(stage);
        let mut parts = Parts { stage, whole, lanes, shared: first, order: vec![], units: 0 };
        parts.shared = parts.outside_of_squares(nests, cuts, &[]);
        let mut order: Vec<usize> = (0..parts.shared).collect();
        if parts.shared < first {
            order.extend(cuts.iter().map(|cut| cut.axis));
        }
        order.extend((0..rank).filter(|axis| !order.contains(axis)).collect::<Vec<_>>());
        Parts { order, ..parts }
    }

    /// Whether axes that are cut come first.
    fn is_turned(&self) -> bool {
        !self.order.is_sorted()
    }

    /// So many axes are shared where no part goes in squares along one of them.
    fn outside_of_squares(&self, nests: &Nests, cuts: &[Cut], ranges: Ranges) -> usize {
        if let Some((cut, rest)) = cuts.split_first() {
            let parts = cut.ranges(self.whole).into_iter();
            let outside = |part| self.outside_of_squares(nests, rest, &[ranges, &[part]].concat());
            return parts.map(outside).min().unwrap_or(self.shared);
        }
        let walked = self.walked(nests, ranges);
        let groups = self.groups(nests, &walked, 0);
        let turned = Turned::of(&walked, &groups, self.lanes);
        turned.map_or(self.shared, |turned| self.shared.min(groups[turned.across].start))
    }

    /// Axes of a part from this one on that all accesses walk as one.
    fn groups(&self, nests: &Nests, walked: &Stage, from: usize) -> Vec<Range<usize>> {
        walk::groups(&nests.compute, walked, from..self.whole.ty.rank(), nests.task.wishes.apart)
    }

    /// The loops around a block, by axis. An axis without a loop has that of the next one.
    fn loops(&self, nests: &mut Nests, block: BlockVar) -> Result<Vec<LoopVar>, StepError> {
        let loops = nests.recorder.get_loops(block)?;
        let first = *loops.first().ok_or(StepError::NoChoice)?;
        Ok([vec![first; self.units], loops].concat())
    }

    /// Cuts what the block computes, which are the places within `ranges` along the axes before
    /// those of the cuts. Gives the loops of parts that can run in parallel.
    fn cut(
        &self,
        nests: &mut Nests,
        block: BlockVar,
        cuts: &[Cut],
        ranges: Ranges,
    ) -> Result<Vec<LoopVar>, StepError> {
        let (cut, rest) = cuts.split_first().ok_or(StepError::NoChoice)?;
        let loops = self.loops(nests, block)?;
        let place = self.order.iter().position(|axis| *axis == cut.axis);
        let whole = loops[place.ok_or(StepError::NoChoice)?];
        let parts = nests.recorder.loop_partition(whole, &cut.points)?;
        let mut parallel = vec![];
        for (&part, range) in parts.iter().zip(cut.ranges(self.whole)) {
            let name = nests.recorder.block_under(part)?;
            let block = nests.recorder.get_block(&name)?;
            let is_long = range.1.len() > 1;
            let ranges = [ranges, &[range]].concat();
            if rest.is_empty() {
                parallel.extend(self.in_vectors(nests, block, cut.axis, &ranges)?);
            } else {
                self.cut(nests, block, rest, &ranges)?;
                parallel.extend(Some(part).filter(|_| is_long));
            }
        }
        Ok(parallel)
    }

    /// The axes of a part that are its own, in vectors. Gives the loops that can run in parallel:
    /// those that have several iterations whatever is decided.
    fn in_vectors(
        &self,
        nests: &mut Nests,
        block: BlockVar,
        axis: usize,
        ranges: Ranges,
    ) -> Result<Vec<LoopVar>, StepError> {
        let walked = self.walked(nests, ranges);
        let mut loops = self.loops(nests, block)?;
        if self.is_turned() {
            let mut places: Vec<usize> = (0..loops.len()).collect();
            places.sort_by_key(|place| self.order[*place]);
            loops = places.into_iter().map(|place| loops[place]).collect();
            nests.recorder.reorder(&loops[self.shared..])?;
        }
        let own = if self.is_turned() { self.shared } else { axis };
        let groups = self.groups(nests, &walked, own);
        let axes = nests.merged(&loops, &groups)?;
        if let Some(turned) = Turned::of(&walked, &groups, self.lanes) {
            return squares::nest(nests, &turned, axes);
        }
        let (&last, outer) = axes.split_last().ok_or(StepError::NoChoice)?;
        let extent = nests.recorder.extent(last)?;
        let chunks = in_vectors(nests, last, self.lanes)?;
        Ok(match outer {
            [] if extent >= 2 * MOST_IN_A_ROW * self.lanes => vec![chunks],
            [] => vec![],
            [first, ..] => vec![*first],
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
/// would be too many parts, outer axes stay whole: a vector does not cross them. Choices by values
/// alone are left to the vectors. None if another one depends on anything else.
fn borders(s: &Stage) -> Option<Vec<Cut>> {
    let mut found: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut is_plain = true;
    s.body.visit(&mut |e| {
        let Expr::Select(condition, ..) = e else { return };
        if !squares::is_of_place(condition) {
            return;
        }
        for part in condition.conjuncts() {
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
    let (digit, coefficient) = slack.terms.only()?;
    let axis = (0..s.ty.rank()).find(|i| *digit == Digit::whole(Source::Var(VarId::new(*i))))?;
    let point = match coefficient {
        1 => constant.checked_neg()?,
        -1 => constant.checked_add(1)?,
        _ => return None,
    };
    Some((axis, usize::try_from(point).ok()?))
}

#[cfg(test)]
mod tests {
    use crate::testing::{compare_scheduled, task};

    /// Padding of one image, and of several.
    #[test]
    fn parts_run_in_parallel_whatever_is_around_them() {
        for images in [1, 3] {
            let text = format!(
                "compute(in0: f32[{images}, 40, 30, 16]) -> p {{
                  p: f32[{images}, 42, 32, 16] = select(and(and(le(1, i1), lt(i1, 41)), and(le(1, i2), lt(i2, 31))), in0[i0, sub(i1, 1), sub(i2, 1), i3], 0.0_f32)
                }}"
            );
            let task = task(&text);
            for (sketch, made) in super::super::sketches(&task, None) {
                assert!(sketch.rules.contains(&"joins".to_owned()), "{:?}", sketch.rules);
                let parallel = made.program.to_string().matches(" parallel {").count();
                assert_eq!(parallel, 1, "{}", made.program);
                compare_scheduled(&task.compute, &made).unwrap();
            }
        }
    }
}
