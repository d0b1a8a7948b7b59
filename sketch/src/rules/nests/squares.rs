//! Squares: a stage that reads across the rows of what it writes.
//!
//! ```text
//! y[v0, v1] = x[v1, v0], f32[64, 96], 8 lanes
//! =>
//! parallel p in 0..8 { for j in 0..12 { vectorized l in 0..8 { unrolled u in 0..8 { y[p * 8 + u, j * 8 + l] = x[j * 8 + l, p * 8 + u] } } } }
//! ```
//! Several squares along the rows of what is read may come before those below them. Where rows or
//! columns are no whole squares, a smaller square at the end begins in the one before.
//!
//! The vector lies along the last axis of the result, what is written out along the last axis of
//! what it reads: code generation loads rows of both and transposes in registers.

use std::collections::BTreeSet;
use std::ops::Range;

use ansc_graph::{Compute, Expr, Stage};

use super::{Nests, Way};
use crate::machine::Machine;
use crate::schedule::Rest;
use crate::trace::{LoopVar, Number, StepError};
use crate::walk::{self, PARALLEL_ITERATIONS, is_worthwhile, merged};

/// Bytes that a run of squares writes to, at most.
const RUN_BYTES: usize = 64 << 10;
/// Longer runs gain nothing.
const LONGEST: usize = 16;
/// Runs that are left for all threads, at least.
const RUNS: usize = 8;
/// Smaller squares are not transposed in registers.
const SMALLEST: usize = 4;
/// So few strips of rows are all done before the next columns.
const FEW: usize = 4;
/// Iterations for which a nest of what is left over runs in parallel.
const MANY: usize = 16;

pub(super) fn apply(nests: &mut Nests, stage: usize, _: &Way) -> Result<Option<usize>, StepError> {
    let s = nests.stage(stage).clone();
    let (lanes, worthwhile) = (nests.lanes(stage), is_worthwhile(&s));
    let groups = walk::groups(&nests.compute, &s, 0..s.ty.rank(), false);
    let Some(turned) = Turned::of(&s, &groups, lanes) else { return Ok(None) };
    let block = nests.block(stage)?;
    let loops = nests.loops(block)?;
    let axes = nests.merged(&loops, &groups)?;
    let first = nest(nests, &turned, axes)?;
    for (place, &l) in first.iter().enumerate().filter(|_| worthwhile) {
        if place == 0 || nests.recorder.extent(l)? >= MANY {
            nests.parallel(l)?;
        }
    }
    Ok(Some(1))
}

/// A result, and the axis of it that its source walks last.
pub(super) struct Turned {
    /// Extents of the result's axes, where those that are walked as one are one.
    pub(super) extents: Vec<usize>,
    /// The axis that the source walks last. The result's own is the last one.
    pub(super) across: usize,
    /// Bytes of an element.
    pub(super) bytes: usize,
    pub(super) lanes: usize,
    /// A note for the loops over columns, which are those along the last axis.
    pub(super) note: Option<&'static str>,
}

impl Turned {
    /// The result of a stage, if that reads across the rows of what it writes. Axes of a group are
    /// walked as one. Few rows or columns have squares that fit them.
    pub(super) fn of(s: &Stage, groups: &[Range<usize>], lanes: usize) -> Option<Turned> {
        let across = across(s, groups)?;
        let extents: Vec<usize> = groups.iter().map(|group| merged(s, group)).collect();
        let few = extents[across].min(*extents.last()?);
        let lanes = lanes.min(1 << few.checked_ilog2()?);
        let turned = Turned { extents, across, bytes: s.ty.dtype.size(), lanes, note: None };
        turned.is_wide().then_some(turned)
    }

    /// Whether either axis has a square.
    pub(super) fn is_wide(&self) -> bool {
        let sides = [Some(&self.extents[self.across]), self.extents.last()];
        self.lanes >= SMALLEST && sides.iter().all(|side| side.is_some_and(|&n| n >= self.lanes))
    }
}

/// The nest of a result, by the loops over its axes: the outermost loops of its parts.
pub(super) fn nest(
    nests: &mut Nests,
    turned: &Turned,
    mut outer: Vec<LoopVar>,
) -> Result<Vec<LoopVar>, StepError> {
    let Turned { extents, across, bytes, lanes, note } = turned;
    let (across, lanes, last) = (*across, *lanes, extents.len() - 1);
    let (extent, row_bytes) = (extents[across], extents[last] * bytes);
    let strips = extent / lanes;
    let few = strips < FEW && !extent.is_multiple_of(lanes);
    let runs = if few { vec![1] } else { runs(strips, lanes * row_bytes) };
    let others = extents.iter().enumerate().filter(|(place, _)| ![across, last].contains(place));
    let enough = others.map(|(_, n)| n).product::<usize>() >= PARALLEL_ITERATIONS;
    let squares = Squares { lanes, few, run: nests.choose(&runs)?, note: *note };
    let columns = outer.remove(last);
    let rows = outer.remove(across);
    nests.recorder.reorder(&[&outer[..], &[columns, rows]].concat())?;
    let mut first = vec![];
    for columns in squares.covered(nests, columns)? {
        first.extend(squares.strips(nests, columns)?);
    }
    // A single element that is left has a nest of its own beside it, under the same loops.
    let is_alone = extents[if few { last } else { across }] % lanes != 1;
    if let ([only], true, false) = (&first[..], is_alone && !outer.is_empty(), few && enough) {
        outer.push(*only);
        first.clear();
    }
    if !outer.is_empty() {
        first = vec![nests.recorder.fuse(&outer)?];
    }
    Ok(first)
}

/// How squares are done.
struct Squares {
    /// Elements of a side.
    lanes: usize,
    /// Whether all rows are done before the next columns: each line of what is read is read once.
    few: bool,
    /// Squares along the rows of what is read that are done before the next ones below.
    run: Number,
    note: Option<&'static str>,
}

/// A part of an axis that is sides of squares; or these and one element more, if it is not whole.
struct Part {
    l: LoopVar,
    side: usize,
    is_whole: bool,
}

impl Squares {
    /// Parts of an axis: as many whole squares as there are, and one for what is left, which may be
    /// smaller and begins in the one before. A single element is left to peeling.
    fn covered(&self, nests: &mut Nests, l: LoopVar) -> Result<Vec<Part>, StepError> {
        let rest = nests.recorder.extent(l)? % self.lanes;
        // A single row or column is no work for a square.
        if rest < 2 {
            return Ok(vec![Part { l, side: self.lanes, is_whole: rest == 0 }]);
        }
        let last = rest.next_power_of_two().max(SMALLEST);
        let parts = nests.recorder.loop_cover(l, self.lanes, last)?;
        let [whole, rest] = [0, 1].map(|part| parts[part]);
        let part = |l, side| Part { l, side, is_whole: true };
        Ok(vec![part(whole, self.lanes), part(rest, last)])
    }

    /// Nests of the rows in these columns, by their first loops.
    fn strips(&self, nests: &mut Nests, columns: Part) -> Result<Vec<LoopVar>, StepError> {
        let [l, rows] = innermost(nests, columns.l)?;
        if !self.few {
            nests.recorder.reorder(&[rows, l])?;
            let mut first = vec![];
            for rows in self.covered(nests, rows)? {
                first.push(self.run_of_squares(nests, rows, &columns)?);
            }
            return Ok(first);
        }
        let parts = nests.recorder.split(l, &[0.into(), columns.side.into()])?;
        nests.recorder.reorder(&[parts[0], rows, parts[1]])?;
        for part in self.covered(nests, rows)? {
            let [rows, column] = innermost(nests, part.l)?;
            let side = part.side.min(columns.side).into();
            let rows = nests.recorder.split(rows, &[0.into(), side])?;
            let column = nests.recorder.split(column, &[0.into(), side])?;
            square(nests, [rows[0], column[0]], [column[1], rows[1]])?;
            peel(nests, rows[0], part.is_whole)?;
        }
        self.mark(nests, parts[0])?;
        peel(nests, parts[0], columns.is_whole)?;
        Ok(vec![parts[0]])
    }

    /// Rows that are sides of squares, and columns: the first loop of the nest.
    fn run_of_squares(
        &self,
        nests: &mut Nests,
        rows: Part,
        columns: &Part,
    ) -> Result<LoopVar, StepError> {
        let side = rows.side.min(columns.side);
        let is_long = side == self.lanes && nests.recorder.extent(rows.l)? >= 2 * side;
        let run = if is_long { self.run } else { 1.into() };
        let [row, column] = innermost(nests, rows.l)?;
        let row = nests.recorder.split(row, &[0.into(), run, side.into()])?;
        let column = nests.recorder.split(column, &[0.into(), side.into()])?;
        square(nests, [row[0], column[0], row[1]], [column[1], row[2]])?;
        self.mark(nests, column[0])?;
        peel(nests, column[0], columns.is_whole)?;
        peel(nests, row[0], rows.is_whole)?;
        Ok(row[0])
    }

    fn mark(&self, nests: &mut Nests, columns: LoopVar) -> Result<(), StepError> {
        self.note.map_or(Ok(()), |note| nests.recorder.annotate_loop(columns, note, 0.into()))
    }
}

/// Parts the element that is left of a loop.
fn peel(nests: &mut Nests, l: LoopVar, is_whole: bool) -> Result<(), StepError> {
    if is_whole { Ok(()) } else { nests.recorder.peel(l, Rest::Pieces) }
}

/// Loops around a square, its vector and what is written out.
fn square<const N: usize>(
    nests: &mut Nests,
    around: [LoopVar; N],
    [vector, written_out]: [LoopVar; 2],
) -> Result<(), StepError> {
    let r = &mut nests.recorder;
    r.reorder(&[&around[..], &[vector, written_out]].concat())?;
    r.vectorize(vector)?;
    r.unroll(written_out)
}

/// A loop and the one inside of it, which are the innermost ones.
fn innermost(nests: &mut Nests, l: LoopVar) -> Result<[LoopVar; 2], StepError> {
    let name = nests.recorder.block_under(l)?;
    let block = nests.recorder.get_block(&name)?;
    let loops = nests.recorder.get_loops(block)?;
    match loops[..] {
        [.., outer, inner] => Ok([outer, inner]),
        _ => Err(StepError::NoChoice),
    }
}

/// Whether a stage is of this kind.
pub(super) fn is_transposed(compute: &Compute, machine: &Machine, s: &Stage) -> bool {
    let groups = walk::groups(compute, s, 0..s.ty.rank(), false);
    Turned::of(s, &groups, walk::lanes(compute, machine, s)).is_some()
}

/// Which of the groups of axes, walked as one, an operand walks last, other than the last one.
fn across(s: &Stage, groups: &[Range<usize>]) -> Option<usize> {
    // A choice by values may guard an index that is one of them.
    let gathers = s.body.loads().iter().any(|(_, at)| at.iter().any(|i| !i.loads().is_empty()));
    let guards = |condition: &Expr| gathers || is_of_place(condition);
    let chooses = |e: &Expr| matches!(e, Expr::Select(condition, ..) if guards(condition));
    if s.reduce.is_some() || s.body.any(&mut |e| chooses(e)) {
        return None;
    }
    let last = groups.last()?.clone();
    s.body.loads().into_iter().find_map(|(_, indices)| {
        let Expr::Var(axis) = walk::from_start(indices.last()?) else { return None };
        let crosses = indices.iter().any(|i| last.clone().any(|a| *i == Expr::var(a)));
        let rows = groups.iter().position(|g| g.contains(&axis.index()))?;
        (crosses && rows + 1 < groups.len()).then_some(rows)
    })
}

/// Whether it depends on where an element is, and not on values alone.
pub(super) fn is_of_place(condition: &Expr) -> bool {
    match condition {
        Expr::Const(_) | Expr::Load(..) => false,
        Expr::Var(_) => true,
        Expr::Unary(_, x) | Expr::Cast(_, x) => is_of_place(x),
        Expr::Binary(_, a, b) => is_of_place(a) || is_of_place(b),
        Expr::Select(c, a, b) => [c, a, b].into_iter().any(|e| is_of_place(e)),
    }
}

/// How many squares are done along the rows of what is read before the next ones below them: as
/// many as leave what is written in the cache until its lines are whole.
fn runs(squares: usize, bytes: usize) -> Vec<i64> {
    let fits = |run: &usize| {
        squares.is_multiple_of(*run) && squares / run >= RUNS && run * bytes <= RUN_BYTES
    };
    let mut all = vec![(1..=LONGEST).rev().find(fits).unwrap_or(1) as i64];
    all.extend([1, 2, 4].iter().filter(|&&run| squares.is_multiple_of(run as usize)));
    let mut seen = BTreeSet::new();
    all.retain(|run| seen.insert(*run));
    all
}
