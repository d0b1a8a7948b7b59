//! Pairs of stages that transform small squares of elements, as Winograd's convolution does before and after its
//! products: each square is transformed along one axis into registers, and from there along the other.
//!
//! ```text
//! half[t, i, b, c]   = select(i == 0, x[t, 0, b, c] - x[t, 2, b, c], ..)
//! points[i, j, t, c] = select(j == 0, half[t, i, 0, c] - half[t, i, 2, c], ..)
//! =>
//! parallel t { vectorized c {
//!   unrolled i, b { square[i, b] = .. }
//!   unrolled i, j { points[i, j, t, c] = .. square .. }
//! } }
//! ```
//!
//! A stage that is a row of choices by a small axis, or by the remainder of one, is written out along that axis, so that
//! every choice is made when compiling. An elementwise reader of the second stage is computed with it.

use std::collections::BTreeSet;

use ansc_graph::{BinOp, Expr, Stage, TensorType, VarId, arith};

use super::build::{Builder, Path};
use super::stage::{lanes_of, rows_of_vectors};
use super::tile::Epilogue;
use super::usage::readers;
use crate::program::{Access, Body, IterKind, Scope, Stmt};
use crate::tree;
use crate::walk::is_worthwhile;

/// Axes up to this long are written out.
const MOST_CHOICES: usize = 8;
/// Squares of more elements are walked in loops, but for the axis by which a stage chooses: registers hold few of them
/// anyway, and to write out all of them takes long to compile.
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
#[derive(Clone, Copy)]
struct Walk {
    extent: usize,
    written_out: bool,
}

struct Plan {
    first: usize,
    second: usize,
    epilogue: Option<Epilogue>,
    /// The axes of a square, and which of them the first stage chooses by.
    square: Vec<Walk>,
    own: usize,
    /// Neighbours along each axis of the second stage but the last that are made of one square.
    periods: Vec<usize>,
    neighbours: Vec<Walk>,
    /// Where the first stage is wanted: an index that squares share, over [`outer`] variables, or none for axes of the
    /// square; without the last axis.
    wanted: Vec<Option<Expr>>,
}

/// Nests at the root for the stage and its readers, if they are of this kind.
pub(super) fn schedule(b: &mut Builder<'_>, first: usize, done: &[bool]) -> Option<Vec<usize>> {
    let plan = plan(b, first, done)?;
    let s = &b.compute.stages[plan.second];
    let (&columns, shape) = s.ty.shape.split_last()?;
    let squares: Vec<usize> =
        shape.iter().zip(&plan.periods).map(|(e, p)| e.div_ceil(*p)).collect();
    let (lanes, worthwhile) = (lanes_of(b, s), is_worthwhile(s));
    let stmts = b.parallel(&squares, worthwhile, |b, path, at| {
        // A square is work enough between two turns of a loop.
        rows_of_vectors(b, path, columns, (lanes, 1), &mut |b, path, column| {
            square(b, path, &plan, &at, column)
        })
    });
    b.push(stmts);
    let epilogue = plan.epilogue.map(|e| e.stage);
    Some([Some(first), Some(plan.second), epilogue].into_iter().flatten().collect())
}

fn plan(b: &Builder<'_>, first: usize, done: &[bool]) -> Option<Plan> {
    let buffer = b.compute.stage_buffer(first);
    let own = switch(&b.compute.stages[first])?;
    let [second] = readers(b.compute, buffer)[..] else { return None };
    let (p, s) = (&b.compute.stages[first], &b.compute.stages[second]);
    let chosen = switch(s)?;
    let ready = |stage: usize| stage == first || done[stage];
    let mut others = s.body.loads().into_iter().filter_map(|(b2, _)| b.compute.stage_of(b2));
    let last = s.ty.rank().checked_sub(1)?;
    let loads: Vec<&[Expr]> =
        s.body.loads().into_iter().filter(|(b2, _)| *b2 == buffer).map(|(_, at)| at).collect();
    let in_columns = loads.iter().all(|at| at.last() == Some(&Expr::var(last)));
    if !others.all(ready) || !in_columns || b.compute.outputs.contains(&first) {
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
    let epilogue = Epilogue::of(b.compute, second, done).filter(Epilogue::is_in_place);
    let own = wanted[..own.axis].iter().filter(|w| w.is_none()).count();
    Some(Plan { first, second, epilogue, square, own, periods, neighbours, wanted })
}

/// After how many elements of each axis but the last all choices repeat; none where the last one chooses too.
fn periods(rank: usize, switches: impl Iterator<Item = Switch>) -> Option<Vec<usize>> {
    let mut periods = vec![1; rank];
    for Switch { axis, period } in switches {
        periods[axis] = periods[axis].max(period);
    }
    (periods.pop() == Some(1)).then_some(periods)
}

/// How the axes of a square are walked, and its neighbours: the choices of both stages are always written out, for
/// there each element has an expression of its own.
fn walks(
    p: &Stage,
    wanted: &[Option<Expr>],
    periods: &[usize],
    (own, chosen): (Switch, Switch),
) -> (Vec<Walk>, Vec<Walk>) {
    let within = (0..wanted.len()).filter(|&axis| wanted[axis].is_none());
    let elements: usize = within.clone().map(|axis| p.ty.shape[axis]).product();
    let walk = |axis: usize, extent: usize, choice: Switch| Walk {
        extent,
        written_out: elements <= MOST_WRITTEN_OUT || axis == choice.axis,
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
fn joined(number: Expr, within: Expr, period: usize) -> Expr {
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

/// One square in one column: `at` has its number along each axis of the second stage but the last.
fn square(b: &mut Builder<'_>, path: &Path, plan: &Plan, at: &[Expr], column: Expr) -> Vec<Stmt> {
    let p = &b.compute.stages[plan.first];
    let extents: Vec<usize> = plan.square.iter().map(|walk| walk.extent).collect();
    let ty = TensorType::new(p.ty.dtype, &extents[..]);
    let local = b.local("square", ty);
    // Innermost the axis by which the stage chooses: what its elements have in common stays in registers until then.
    let mut walks = plan.square.clone();
    walks[plan.own..].rotate_left(1);
    let mut stmts = walked(b, path, &walks, vec![], &mut |b, path, within| {
        let mut within = within.to_vec();
        within[plan.own..].rotate_right(1);
        let mut inside = within.iter();
        let index = |w: &Option<Expr>| match w {
            Some(shared) => shared.substitute(&|v| match part(v)? {
                Part::Outer(axis) => at.get(axis).cloned(),
                Part::Inner(_) => None,
            }),
            None => inside.next().expect("an index for each axis of the square").clone(),
        };
        let mut indices: Vec<Expr> = plan.wanted.iter().map(index).collect();
        indices.push(column.clone());
        let value = b.body_at(plan.first, &indices);
        let dst = Access { buffer: local, indices: within };
        b.block(path, &b.compute.stages[plan.first].name, Body::Assign { dst, value })
    });
    stmts.extend(walked(b, path, &plan.neighbours, vec![], &mut |b, path, within| {
        let parts = at.iter().zip(within).zip(&plan.periods);
        let mut indices: Vec<Expr> =
            parts.map(|((o, u), &period)| joined(o.clone(), u.clone(), period)).collect();
        indices.push(column.clone());
        results(b, path, plan, local, &indices)
    }));
    stmts
}

/// One element of the second stage, or of its reader.
fn results(
    b: &mut Builder<'_>,
    path: &Path,
    plan: &Plan,
    local: ansc_graph::BufId,
    at: &[Expr],
) -> Vec<Stmt> {
    let s = &b.compute.stages[plan.second];
    let (name, buffer) = (&s.name, b.compute.stage_buffer(plan.first));
    let of_square = |indices: &[Expr]| {
        let axes = plan.wanted.iter().zip(indices).filter(|(w, _)| w.is_none());
        Expr::Load(local, axes.map(|(_, index)| index.clone()).collect())
    };
    let value = s.body.rewrite(&mut |e| match e {
        Expr::Load(b2, indices) if *b2 == buffer => Some(of_square(indices)),
        Expr::Load(b2, indices) => Some(b.load(*b2, indices)),
        _ => None,
    });
    let value = value.substitute(&|v| at.get(v.index()).cloned());
    let beyond =
        (0..plan.periods.len()).filter(|&a| !s.ty.shape[a].is_multiple_of(plan.periods[a]));
    let inside = beyond.map(|a| at[a].clone().lt(Expr::index(s.ty.shape[a])));
    let inside = tree::conjunction(inside);
    let Some(epilogue) = &plan.epilogue else {
        let buffer = b.source(b.compute.stage_buffer(plan.second));
        let dst = Access { buffer, indices: at.to_vec() };
        return b.guarded_block(path, name, inside, Body::Assign { dst, value });
    };
    let result = b.program.add_buffer(
        format!("result{}", b.program.buffers.len()),
        TensorType::new(s.ty.dtype, []),
        Scope::Local,
    );
    let dst = Access { buffer: result, indices: vec![] };
    let mut stmts = b.guarded_block(path, name, inside.clone(), Body::Assign { dst, value });
    let value = epilogue.value(b, plan.second, at, Expr::Load(result, vec![]));
    let buffer = b.source(b.compute.stage_buffer(epilogue.stage));
    let dst = Access { buffer, indices: at.to_vec() };
    let name = &b.compute.stages[epilogue.stage].name;
    stmts.extend(b.guarded_block(path, name, inside, Body::Assign { dst, value }));
    stmts
}

/// What stands inside of loops within a square, given their indices.
type Inside<'a, 'f> = dyn FnMut(&mut Builder<'a>, &Path, &[Expr]) -> Vec<Stmt> + 'f;

fn walked<'a>(
    b: &mut Builder<'a>,
    path: &Path,
    walks: &[Walk],
    within: Vec<Expr>,
    body: &mut Inside<'a, '_>,
) -> Vec<Stmt> {
    let Some((&Walk { extent, written_out }, rest)) = walks.split_first() else {
        return body(b, path, &within);
    };
    let inside = |b: &mut Builder<'a>, path: &Path, at: Expr| {
        let within = [&within[..], &[at]].concat();
        walked(b, path, rest, within, body)
    };
    match written_out {
        true => b.unrolled(path, extent, IterKind::Spatial, inside),
        false => b.serial(path, extent, IterKind::Spatial, inside),
    }
}
