//! Stages that agree on their leading axes, under one loop over rows.
//!
//! ```text
//! m[v0] = max[8] x[v0, v1];  e[v0, v1] = exp(x[v0, v1] - m[v0]);  s[v0] = sum[8] e[v0, v1];  y[v0, v1] = e / s
//! =>
//! parallel p in 0..n { m = ..; e[0..8] = ..; s = ..; y[p, 0..8] = .. }     m, e, s local to the row
//! ```
//!
//! Each stage waits for the last result of the one before. Short rows are done two at a time, stage by stage and in the
//! same loops (see [`jam`](crate::schedule::jam)), so that one goes on while the other waits:
//!
//! ```text
//! parallel p in 0..n / 2 { m, m' = ..; for i in 0..8 { e[i] = ..; e'[i] = .. }; s, s' = ..; for i in 0..8 { y[2p, i] = ..; y[2p + 1, i] = .. } }
//! ```

use ansc_graph::{Expr, Stage, TensorType, VarId};

use super::build::Builder;
use super::knobs::Knob;
use super::stage::{self, Target, mergeable};
use super::usage::has_reuse;
use crate::schedule::jam;
use crate::walk::{PARALLEL_ITERATIONS, is_worthwhile};

/// Elements of a row beyond which what stages wait for is little.
const SHORT: usize = 4096;

/// The stages that were scheduled, or `None` where fewer than two agree.
pub(super) fn schedule(b: &mut Builder<'_>, first: usize) -> Option<Vec<usize>> {
    let (stages, rows) = run(b, first)?;
    let mut extents = b.compute.stages[first].ty.shape[..rows].to_vec();
    let worthwhile = stages.iter().any(|&s| is_worthwhile(&b.compute.stages[s]));
    let is_short = stages.iter().all(|&s| is_short(&b.compute.stages[s], rows));
    let together = if is_short { together(b, &extents, worthwhile) } else { 1 };
    extents[rows - 1] /= together;
    let targets: Vec<Vec<Target>> =
        (0..together).map(|_| stages.iter().map(|&s| target(b, s, rows)).collect()).collect();
    let stmts = b.parallel(&extents, worthwhile, |b, path, bound| {
        let mut stmts = Vec::new();
        for (at, &s) in stages.iter().enumerate() {
            let groups = mergeable(b, &b.compute.stages[s], rows);
            let mut of_rows = Vec::new();
            for (row, targets) in targets.iter().enumerate() {
                let mut bound = bound.clone();
                bound[rows - 1] = row_of(&bound[rows - 1], row, together);
                find_in(b, &stages, targets);
                of_rows.push(stage::emit(b, path, s, &bound, &groups, targets[at]));
            }
            stmts.extend(jam(of_rows));
        }
        stmts
    });
    b.push(stmts);
    Some(stages)
}

fn is_short(s: &Stage, rows: usize) -> bool {
    s.extents()[rows..].iter().product::<usize>() <= SHORT
}

/// How many rows are done at a time, where that leaves enough iterations for all threads.
fn together(b: &Builder<'_>, rows: &[usize], parallel: bool) -> usize {
    let (wanted, total) = (b.knobs.get(Knob::Rows).max(1), rows.iter().product::<usize>());
    let enough = !parallel || total / wanted >= PARALLEL_ITERATIONS;
    let divides = rows.last().is_some_and(|last| last.is_multiple_of(wanted));
    if enough && divides { wanted } else { 1 }
}

fn row_of(group: &Expr, row: usize, together: usize) -> Expr {
    match together {
        1 => group.clone(),
        _ => group.clone() * Expr::index(together) + Expr::index(row),
    }
}

/// Results stay where they are; the rest lives in a buffer of one row.
fn target(b: &mut Builder<'_>, stage: usize, rows: usize) -> Target {
    if b.compute.outputs.contains(&stage) {
        return Target { buffer: b.source(b.compute.stage_buffer(stage)), skip: 0 };
    }
    let s = &b.compute.stages[stage];
    let ty = TensorType::new(s.ty.dtype, &s.ty.shape[rows..]);
    Target { buffer: b.local(&s.name, ty), skip: rows }
}

/// Stages that are built from now on find those of this row in its buffers.
fn find_in(b: &mut Builder<'_>, stages: &[usize], targets: &[Target]) {
    for (&s, target) in stages.iter().zip(targets) {
        b.redirect(b.compute.stage_buffer(s), target.buffer, target.skip);
    }
}

/// The longest run of stages from `first` that agree on some number of leading axes, and that
/// number: the largest, with the shortest rows, unless the knob says how many others of such a
/// number come first.
fn run(b: &Builder<'_>, first: usize) -> Option<(Vec<usize>, usize)> {
    let rank = b.compute.stages[first].ty.rank();
    let mut runs: Vec<_> = (1..=rank).rev().map(|rows| (members(b, first, rows), rows)).collect();
    let longest = runs.iter().map(|(stages, _)| stages.len()).max()?;
    runs.retain(|(stages, _)| stages.len() == longest);
    let reduces = runs[0].0.iter().any(|&s| b.compute.stages[s].reduce.is_some());
    if longest < 2 || !reduces {
        return None;
    }
    let before = match runs.len() {
        1 => 0,
        several => b.knobs.get(Knob::Apart).min(several - 1),
    };
    Some(runs.swap_remove(before))
}

fn members(b: &Builder<'_>, first: usize, rows: usize) -> Vec<usize> {
    let shape = &b.compute.stages[first].ty.shape[..rows];
    let mut members = Vec::new();
    for (index, s) in b.compute.stages.iter().enumerate().skip(first) {
        let agrees = s.ty.shape.get(..rows) == Some(shape) && !has_reuse(s);
        if !agrees || !reads_own_row(b, s, &members, rows) {
            break;
        }
        members.push(index);
    }
    // What a later stage reads of a member must be in memory, or the reader must be a member too.
    while let Some(&last) = members.last() {
        let escapes = |&m: &usize| !b.compute.outputs.contains(&m) && read_after(b, m, last);
        if !members.iter().any(escapes) {
            break;
        }
        members.pop();
    }
    members
}

fn read_after(b: &Builder<'_>, stage: usize, last: usize) -> bool {
    let buffer = b.compute.stage_buffer(stage);
    b.compute.stages.iter().skip(last + 1).any(|s| s.body.loads().iter().any(|(l, _)| *l == buffer))
}

fn reads_own_row(b: &Builder<'_>, s: &Stage, members: &[usize], rows: usize) -> bool {
    s.body.loads().iter().all(|(buffer, indices)| {
        let inside = b.compute.stage_of(*buffer).is_some_and(|s| members.contains(&s));
        !inside || (0..rows).all(|i| row_index(b, *buffer, indices, i))
    })
}

/// Index `i` is the row's own, or the axis has one element anyway.
fn row_index(b: &Builder<'_>, buffer: ansc_graph::BufId, indices: &[Expr], i: usize) -> bool {
    indices[i] == Expr::Var(VarId::new(i)) || b.compute.buffer_type(buffer).shape[i] == 1
}
