//! Stages that are rows of choices by a small axis, and pairs of them that transform squares.
//!
//! ```text
//! half[t, i, b, c]   = select(i == 0, x[t, 0, b, c] - x[t, 2, b, c], ..)
//! points[i, j, t, c] = select(j == 0, half[t, i, 0, c] - half[t, i, 2, c], ..)
//! => a square is [i, b] of the first stage, for which t and c are the same throughout;
//!    its neighbours are [i, j] of the second one
//! ```
//!
//! The first stage chooses by an axis of the square, the second one by an axis of the neighbours.
//! An axis may also be the remainder of a longer one: rows of an image are four to a square.

use std::collections::BTreeSet;

use ansc_graph::{BinOp, Compute, Expr, Stage, VarId, arith};

use crate::usage::readers;

/// Axes up to this long are written out.
const MOST_CHOICES: usize = 8;
/// Squares of more elements are walked in loops, but for the axis by which a stage chooses:
/// registers hold few of them anyway, and to write out all of them takes long to compile.
const MOST_WRITTEN_OUT: usize = 40;

/// The axis by which a stage chooses, and after how many of its elements the choices repeat.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Switch {
    axis: usize,
    period: usize,
}

/// Whether the stage is a row of choices: `select(x == 0, .., select(x == 1, .., ..))`.
pub(crate) fn is_switch(s: &Stage) -> bool {
    switch(s).is_some()
}

fn switch(s: &Stage) -> Option<Switch> {
    let Expr::Select(condition, ..) = &s.body else { return None };
    let Expr::Binary(BinOp::Eq, x, zero) = &**condition else { return None };
    let is_first = zero.as_const().is_some_and(|c| c.is_zero());
    (is_first && s.reduce.is_none()).then(|| place(x, s)).flatten()
}

/// An index that is a small axis, or the remainder of an axis by a small number.
fn place(x: &Expr, s: &Stage) -> Option<Switch> {
    let (v, period) = match x {
        Expr::Var(v) => (v, None),
        Expr::Binary(BinOp::FloorMod, v, n) => {
            let Expr::Var(v) = &**v else { return None };
            (v, Some(usize::try_from(n.as_const()?.as_i64()).ok()?))
        }
        _ => return None,
    };
    let extent = *s.ty.shape.get(v.index())?;
    let period = period.map_or(extent, |p| p.min(extent));
    (1..=MOST_CHOICES).contains(&period).then_some(Switch { axis: v.index(), period })
}

/// How an axis is walked within a square.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Walk {
    pub(crate) extent: usize,
    /// Whether the stage chooses by it: then each element has an expression of its own.
    pub(crate) is_choice: bool,
    /// Whether it is best written out.
    pub(crate) written_out: bool,
}

/// Two stages, and the squares of the first one that the second one is made of.
pub(crate) struct Squares {
    pub(crate) first: usize,
    pub(crate) second: usize,
    /// The axes of a square, and which of them the first stage chooses by.
    pub(crate) square: Vec<Walk>,
    pub(crate) own: usize,
    /// Neighbours along each axis of the second stage but the last that are made of one square.
    pub(crate) neighbours: Vec<Walk>,
    /// Where the first stage is wanted: an index that squares share, over [`outer`] variables, or
    /// none for axes of the square; without the last axis.
    wanted: Vec<Option<Expr>>,
}

impl Squares {
    /// None where the stage and its only reader are no such pair. All else that the reader reads
    /// is `done`.
    pub(crate) fn of(compute: &Compute, first: usize, done: &[bool]) -> Option<Squares> {
        let buffer = compute.stage_buffer(first);
        let own = switch(&compute.stages[first])?;
        let [second] = readers(compute, buffer)[..] else { return None };
        let (p, s) = (&compute.stages[first], &compute.stages[second]);
        let chosen = switch(s)?;
        let ready = |stage: usize| stage == first || done[stage];
        let mut others = s.body.loads().into_iter().filter_map(|(b, _)| compute.stage_of(b));
        let last = s.ty.rank().checked_sub(1)?;
        let loads: Vec<&[Expr]> =
            s.body.loads().into_iter().filter(|(b, _)| *b == buffer).map(|(_, at)| at).collect();
        let in_columns = loads.iter().all(|at| at.last() == Some(&Expr::var(last)));
        if !others.all(ready) || !in_columns || compute.outputs.contains(&first) {
            return None;
        }
        let read = loads.iter().filter_map(|at| place(at.get(own.axis)?, s));
        let periods = periods(s.ty.rank(), read.chain([chosen]))?;
        if p.ty.shape.last() != s.ty.shape.last() {
            return None;
        }
        let wanted: Vec<_> =
            (0..p.ty.rank() - 1).map(|axis| shared(&loads, axis, s, &periods)).collect();
        let (square, neighbours) = walks(p, &wanted, &periods, (own, chosen));
        let own = wanted[..own.axis].iter().filter(|w| w.is_none()).count();
        Some(Squares { first, second, square, own, neighbours, wanted })
    }

    /// Axes of the first stage but the last.
    pub(crate) fn axes(&self) -> usize {
        self.wanted.len()
    }

    /// Whether an axis of the first stage is one of squares.
    pub(crate) fn is_within(&self, axis: usize) -> bool {
        self.wanted.get(axis).is_some_and(Option::is_none)
    }
}

/// After how many elements of each axis but the last all choices repeat; none where the last one
/// chooses too.
fn periods(rank: usize, switches: impl Iterator<Item = Switch>) -> Option<Vec<usize>> {
    let mut periods = vec![1; rank];
    for Switch { axis, period } in switches {
        periods[axis] = periods[axis].max(period);
    }
    (periods.pop() == Some(1)).then_some(periods)
}

/// How the axes of a square are walked, and its neighbours.
fn walks(
    p: &Stage,
    wanted: &[Option<Expr>],
    periods: &[usize],
    (own, chosen): (Switch, Switch),
) -> (Vec<Walk>, Vec<Walk>) {
    let within = (0..wanted.len()).filter(|&axis| wanted[axis].is_none());
    let elements: usize = within.clone().map(|axis| p.ty.shape[axis]).product();
    let walk = |axis: usize, extent: usize, choice: Switch| {
        let is_choice = axis == choice.axis;
        Walk { extent, is_choice, written_out: is_choice || elements <= MOST_WRITTEN_OUT }
    };
    let square = within.map(|axis| walk(axis, p.ty.shape[axis], own)).collect();
    (square, periods.iter().enumerate().map(|(axis, &n)| walk(axis, n, chosen)).collect())
}

/// The index along an axis that all loads have, whatever is written out.
fn shared(loads: &[&[Expr]], axis: usize, s: &Stage, periods: &[usize]) -> Option<Expr> {
    let ranges = |v: VarId| {
        let of = |axis: usize| (s.ty.shape[axis], periods.get(axis).copied().unwrap_or(1));
        let length = match part(v)? {
            Part::Outer(axis) => of(axis).0.div_ceil(of(axis).1),
            Part::Inner(axis) => of(axis).1,
        };
        Some((0, length as i64 - 1))
    };
    let at = |v: VarId| {
        let period = *periods.get(v.index())?;
        Some(joined(outer(v.index()), inner(v.index()), period))
    };
    // Most loads have the same index.
    let all: BTreeSet<&Expr> = loads.iter().map(|l| &l[axis]).collect();
    let found: BTreeSet<Expr> =
        all.into_iter().map(|e| arith::simplify(&e.substitute(&at), &ranges)).collect();
    let fixed = |v: &VarId| matches!(part(*v), Some(Part::Outer(_)));
    let [only] = &found.into_iter().collect::<Vec<_>>()[..] else { return None };
    only.vars().iter().all(fixed).then(|| only.clone())
}

/// The index along an axis of a square's number and a place within it.
pub(crate) fn joined(number: Expr, within: Expr, period: usize) -> Expr {
    if period == 1 { number } else { number * Expr::index(period) + within }
}

/// Stand for the number of a square, and the place within it, along an axis of the second stage.
fn outer(axis: usize) -> Expr {
    Expr::Var(VarId(FIRST_PART + 2 * axis as u32))
}

fn inner(axis: usize) -> Expr {
    Expr::Var(VarId(FIRST_PART + 2 * axis as u32 + 1))
}

enum Part {
    Outer(usize),
    Inner(usize),
}

fn part(v: VarId) -> Option<Part> {
    let number = v.0.checked_sub(FIRST_PART)? as usize;
    Some(if number.is_multiple_of(2) { Part::Outer(number / 2) } else { Part::Inner(number / 2) })
}

/// No stage has so many axes.
const FIRST_PART: u32 = 1 << 31;
