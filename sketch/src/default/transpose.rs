//! Elementwise stages one of whose operands walks memory along another axis than the result: squares of vectors,
//! which code generation transposes in registers.
//!
//! ```text
//! y[v0, v1] = x[v1, v0], f32[100, 64], 8 lanes
//! =>
//! parallel p in 0..3 { for i in 0..8 { for q in 0..4 {
//!   vectorized l in 0..8 { unrolled u in 0..8 { y[p * 32 + q * 8 + u, i * 8 + l] = x[i * 8 + l, p * 32 + q * 8 + u] } }
//! } } }
//! and the rows from 96 on in one smaller square, which may begin a little earlier
//! ```
//!
//! Several squares are done along the operand's rows before the next ones below them, so that the lines of a large operand
//! are read in runs, and as many as leave what is written in the cache until its lines are whole. Where all rows are few
//! squares and a smaller one, all of them are done before the next columns: each line of the operand is read once.

use ansc_graph::{Compute, Expr, Stage};

use super::Machine;
use super::build::{Builder, Path};
use super::stage::{Target, assign_at, pieces, plus, spread};
use crate::program::{IterKind, Stmt};
use crate::walk::{self, PARALLEL_ITERATIONS, is_worthwhile, merged};

/// Groups of axes that are walked as one, and which of them the operand walks.
struct Plan {
    groups: Vec<std::ops::Range<usize>>,
    rows: usize,
    lanes: usize,
    /// Squares along the operand's rows that are done in a row.
    run: usize,
}

/// What a run of squares writes to, at most.
const RUN_BYTES: usize = 64 << 10;
/// Longer runs gain nothing.
const LONGEST: usize = 16;
/// Runs that are left for all threads, at least.
const RUNS: usize = 8;

/// So many squares are few.
const FEW: usize = 4;
/// Smaller squares are not transposed in registers.
const SMALLEST: usize = 4;

/// Rows that one square takes, from the first on.
#[derive(Clone, Copy)]
struct Square {
    first: usize,
    side: usize,
}

/// Nests at the root, if the stage is of this kind.
pub(super) fn schedule(b: &mut Builder<'_>, stage: usize) -> Option<Vec<usize>> {
    let plan = plan(b.compute, b.machine, &b.compute.stages[stage])?;
    let s = &b.compute.stages[stage];
    let extents: Vec<usize> = plan.groups.iter().map(|g| merged(s, g)).collect();
    let worthwhile = is_worthwhile(s);
    let rows = extents[plan.rows];
    let (squares, rest) = (rows / plan.lanes, rows % plan.lanes);
    // The square of what is left ends with the rows: a few of them are computed once more.
    let side = rest.next_power_of_two().max(SMALLEST);
    let last = Square { first: rows - side.min(rows), side };
    let mut below = vec![];
    let mut stmts = vec![];
    if rest > 0 && squares < FEW {
        let whole = |i: usize| Square { first: i * plan.lanes, side: plan.lanes };
        below.extend((0..squares).map(whole));
    } else {
        let mut outer = extents[..extents.len() - 1].to_vec();
        outer[plan.rows] = squares / plan.run;
        stmts = b
            .parallel(&outer, worthwhile, |b, path, at| run_of_squares(b, path, stage, &plan, &at));
    }
    if rest > 0 {
        below.push(last);
        stmts.extend(across(b, stage, &plan, &below, worthwhile));
    }
    b.push(stmts);
    Some(vec![stage])
}

/// These squares one below the other, in all columns; parallel along the columns, where other axes have few iterations.
fn across(
    b: &mut Builder<'_>,
    stage: usize,
    plan: &Plan,
    squares: &[Square],
    worthwhile: bool,
) -> Vec<Stmt> {
    let s = &b.compute.stages[stage];
    let (lanes, columns_extent) = (plan.lanes, merged(s, &plan.groups[plan.groups.len() - 1]));
    let outer: Vec<usize> =
        plan.groups[..plan.groups.len() - 1].iter().map(|g| merged(s, g)).collect();
    let with_rows = |rows: usize| {
        let mut outer = outer.clone();
        outer[plan.rows] = rows;
        outer
    };
    let strips = columns_extent / lanes;
    let chunks = chunks(strips, with_rows(1).iter().product());
    let length = strips / chunks;
    let mut stmts =
        b.parallel(&[with_rows(1), vec![chunks]].concat(), worthwhile, |b, path, mut at| {
            let chunk = at.pop().expect("the chunk's index");
            b.serial(path, length, IterKind::Spatial, |b, path, i| {
                let base = plus(chunk * Expr::index(length), i) * Expr::index(lanes);
                let of_square = |square: &Square| strip(b, path, stage, plan, square, &at, &base);
                squares.iter().flat_map(of_square).collect()
            })
        });
    if !columns_extent.is_multiple_of(lanes) {
        let first = squares[0].first;
        let rows = outer[plan.rows] - first;
        stmts.extend(b.parallel(&with_rows(rows), false, |b, path, mut at| {
            at[plan.rows] = plus(Expr::index(first), at[plan.rows].clone());
            columns(b, path, stage, plan, &at, strips * lanes)
        }));
    }
    stmts
}

/// Into how many parts so many vectors of columns are cut, where there are so many iterations without.
fn chunks(strips: usize, iterations: usize) -> usize {
    let most = if iterations < PARALLEL_ITERATIONS { 2 * PARALLEL_ITERATIONS } else { 1 };
    (1..=most).rev().find(|n| strips.is_multiple_of(*n)).unwrap_or(1)
}

/// The rows of a square in one vector of columns, from `base` on: as many squares as that takes.
fn strip(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    plan: &Plan,
    square: &Square,
    at: &[Expr],
    base: &Expr,
) -> Vec<Stmt> {
    let side = square.side;
    b.serial(path, plan.lanes / side, IterKind::Spatial, |b, path, t| {
        let first = plus(base.clone(), t * Expr::index(side));
        b.vector(path, side, |b, path, l| {
            b.unrolled(path, side, IterKind::Spatial, |b, path, u| {
                let mut at = at.to_vec();
                at[plan.rows] = plus(Expr::index(square.first), u);
                element(b, path, stage, plan, &at, plus(first, l))
            })
        })
    })
}

/// Whether the stage is of this kind.
pub(crate) fn is_transposed(compute: &Compute, machine: &Machine, s: &Stage) -> bool {
    plan(compute, machine, s).is_some()
}

fn plan(compute: &Compute, machine: &Machine, s: &Stage) -> Option<Plan> {
    if s.reduce.is_some() || has_choice(&s.body) {
        return None;
    }
    let lanes = walk::lanes(compute, machine, s);
    let groups = walk::groups(compute, s, 0..s.ty.rank());
    let last = groups.last()?.clone();
    let wide = |g: &std::ops::Range<usize>| lanes >= 4 && merged(s, g) >= lanes;
    let walked = s.body.loads().into_iter().find_map(|(_, indices)| {
        let Expr::Var(axis) = indices.last()? else { return None };
        let crosses = indices.iter().any(|i| last.clone().any(|a| *i == Expr::var(a)));
        let rows = groups.iter().position(|g| g.contains(&axis.index()))?;
        (crosses && rows + 1 < groups.len() && wide(&groups[rows])).then_some(rows)
    })?;
    if !wide(&last) {
        return None;
    }
    let (squares, row) = (merged(s, &groups[walked]) / lanes, merged(s, &last) * s.ty.dtype.size());
    let run = run_of(squares, lanes * row);
    Some(Plan { groups, rows: walked, lanes, run })
}

/// How many of these squares are done in a row, each of which writes to so many bytes.
pub(crate) fn run_of(squares: usize, bytes: usize) -> usize {
    let fits = |run: &usize| {
        squares.is_multiple_of(*run) && squares / run >= RUNS && run * bytes <= RUN_BYTES
    };
    (1..=LONGEST).rev().find(fits).unwrap_or(1)
}

fn has_choice(e: &Expr) -> bool {
    let mut found = false;
    e.visit(&mut |e| found |= matches!(e, Expr::Select(..)));
    found
}

/// All columns of a run of squares; `at` has a number of a run where other groups have an index.
fn run_of_squares(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    plan: &Plan,
    at: &[Expr],
) -> Vec<Stmt> {
    let (lanes, rows) = (plan.lanes, plan.rows);
    let columns_extent = merged(&b.compute.stages[stage], &plan.groups[plan.groups.len() - 1]);
    let squares = columns_extent / lanes;
    let first = at[rows].clone() * Expr::index(lanes * plan.run);
    let at_row = |row: Expr| {
        let mut at = at.to_vec();
        at[rows] = plus(first.clone(), row);
        at
    };
    let mut stmts = b.serial(path, squares, IterKind::Spatial, |b, path, i| {
        let base = i * Expr::index(lanes);
        b.serial(path, plan.run, IterKind::Spatial, |b, path, q| {
            b.vector(path, lanes, |b, path, l| {
                b.unrolled(path, lanes, IterKind::Spatial, |b, path, u| {
                    let at = at_row(plus(q * Expr::index(lanes), u));
                    element(b, path, stage, plan, &at, plus(base, l))
                })
            })
        })
    });
    if !columns_extent.is_multiple_of(lanes) {
        stmts.extend(b.serial(path, lanes * plan.run, IterKind::Spatial, |b, path, u| {
            columns(b, path, stage, plan, &at_row(u), squares * lanes)
        }));
    }
    stmts
}

/// The columns from `start` on of one row.
fn columns(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    plan: &Plan,
    at: &[Expr],
    start: usize,
) -> Vec<Stmt> {
    let extent = merged(&b.compute.stages[stage], &plan.groups[plan.groups.len() - 1]);
    pieces(b, path, start, extent - start, plan.lanes, &mut |b, path, column| {
        element(b, path, stage, plan, at, column)
    })
}

fn element(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    plan: &Plan,
    at: &[Expr],
    column: Expr,
) -> Vec<Stmt> {
    let target = Target { buffer: b.source(b.compute.stage_buffer(stage)), skip: 0 };
    let indices = spread(&b.compute.stages[stage], &plan.groups, &[at, &[column]].concat());
    assign_at(b, path, stage, &indices, target)
}
