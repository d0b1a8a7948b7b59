//! Elementwise stages one of whose operands walks memory along another axis than the result: squares of vectors,
//! which code generation transposes in registers.
//!
//! ```text
//! y[v0, v1] = x[v1, v0], f32[100, 64], 8 lanes
//! =>
//! parallel p in 0..12 { for i in 0..8 {
//!   vectorized l in 0..8 { unrolled u in 0..8 { y[p * 8 + u, i * 8 + l] = x[i * 8 + l, p * 8 + u] } }
//! } }
//! and the rows from 96 on as any other stage
//! ```

use ansc_graph::{Expr, Stage};

use super::build::{Builder, Path};
use super::stage::{
    Target, assign_at, is_worthwhile, lanes_of, mergeable, merged, pieces, plus, spread,
};
use crate::program::{IterKind, Stmt};

/// Groups of axes that are walked as one, and which of them the operand walks.
struct Plan {
    groups: Vec<std::ops::Range<usize>>,
    rows: usize,
    lanes: usize,
}

/// Nests at the root, if the stage is of this kind.
pub(super) fn schedule(b: &mut Builder<'_>, stage: usize) -> Option<Vec<usize>> {
    let plan = plan(b, &b.compute.stages[stage])?;
    let s = &b.compute.stages[stage];
    let extents: Vec<usize> = plan.groups.iter().map(|g| merged(s, g)).collect();
    let worthwhile = is_worthwhile(s);
    let (squares, rest) = (extents[plan.rows] / plan.lanes, extents[plan.rows] % plan.lanes);
    let mut outer = extents[..extents.len() - 1].to_vec();
    outer[plan.rows] = squares;
    let mut stmts =
        b.parallel(&outer, worthwhile, |b, path, at| row_of_squares(b, path, stage, &plan, &at));
    if rest > 0 {
        outer[plan.rows] = rest;
        stmts.extend(b.parallel(&outer, false, |b, path, mut at| {
            let first = Expr::index(squares * plan.lanes);
            at[plan.rows] = plus(first, at[plan.rows].clone());
            columns(b, path, stage, &plan, &at, 0)
        }));
    }
    b.push(stmts);
    Some(vec![stage])
}

fn plan(b: &Builder<'_>, s: &Stage) -> Option<Plan> {
    if s.reduce.is_some() || has_choice(&s.body) {
        return None;
    }
    let lanes = lanes_of(b, s);
    let groups = mergeable(b, s, 0);
    let last = groups.last()?.clone();
    let wide = |g: &std::ops::Range<usize>| lanes >= 4 && merged(s, g) >= lanes;
    let walked = s.body.loads().into_iter().find_map(|(_, indices)| {
        let Expr::Var(axis) = indices.last()? else { return None };
        let crosses = indices.iter().any(|i| last.clone().any(|a| *i == Expr::var(a)));
        let rows = groups.iter().position(|g| g.contains(&axis.index()))?;
        (crosses && rows + 1 < groups.len() && wide(&groups[rows])).then_some(rows)
    })?;
    wide(&last).then_some(Plan { groups, rows: walked, lanes })
}

fn has_choice(e: &Expr) -> bool {
    let mut found = false;
    e.visit(&mut |e| found |= matches!(e, Expr::Select(..)));
    found
}

/// All columns of `lanes` rows; `at` has a number of a square where other groups have an index.
fn row_of_squares(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    plan: &Plan,
    at: &[Expr],
) -> Vec<Stmt> {
    let (lanes, rows) = (plan.lanes, plan.rows);
    let columns_extent = merged(&b.compute.stages[stage], &plan.groups[plan.groups.len() - 1]);
    let squares = columns_extent / lanes;
    let mut first = at.to_vec();
    first[rows] = at[rows].clone() * Expr::index(lanes);
    let mut stmts = b.serial(path, squares, IterKind::Spatial, |b, path, i| {
        let base = i * Expr::index(lanes);
        b.vector(path, lanes, |b, path, l| {
            b.unrolled(path, lanes, IterKind::Spatial, |b, path, u| {
                let mut at = first.clone();
                at[rows] = plus(at[rows].clone(), u);
                element(b, path, stage, plan, &at, plus(base, l))
            })
        })
    });
    if !columns_extent.is_multiple_of(lanes) {
        stmts.extend(b.serial(path, lanes, IterKind::Spatial, |b, path, u| {
            let mut at = first.clone();
            at[rows] = plus(at[rows].clone(), u);
            columns(b, path, stage, plan, &at, squares * lanes)
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
