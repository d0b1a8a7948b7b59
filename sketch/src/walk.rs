//! How a stage goes through memory: axes that are one walk, and vectors along them.
//!
//! ```text
//! y[v0, v1, v2] = x[v0, v1, v2] + b[v0], f32[4, 6, 10]     axes 0; 1 and 2 as one of 60 elements
//! 60 elements of 16 lanes                                   0..16, 16..32, 32..48, 48..56, 56..60
//! ```

use std::ops::Range;

use ansc_graph::{BinOp, Compute, Expr, Stage, VarId};

use crate::machine::Machine;
use crate::usage::is_expensive;

/// Less work than this is not worth waking a thread for, in element operations.
pub(crate) const PARALLEL_WORK: usize = 16 * 1024;
/// Iterations that a parallel loop should have at least, so that threads share evenly.
pub(crate) const PARALLEL_ITERATIONS: usize = 16;

/// Whether waking other threads for the stage pays.
pub(crate) fn is_worthwhile(s: &Stage) -> bool {
    let work: usize = s.extents().iter().product();
    let weight = if is_expensive(&s.body) { 16 } else { 1 };
    work.saturating_mul(weight) >= PARALLEL_WORK
}

/// Lanes of a vector of the widest type that the stage touches.
pub(crate) fn lanes(compute: &Compute, machine: &Machine, s: &Stage) -> usize {
    let loads = s.body.loads();
    let sizes = loads.iter().map(|(buffer, _)| compute.buffer_type(*buffer).dtype.size());
    let widest = sizes.chain([s.ty.dtype.size()]).max().unwrap_or(4);
    (machine.vector_bytes / widest.max(4)).max(1)
}

/// Extent of a group of axes as one.
pub(crate) fn merged(s: &Stage, group: &Range<usize>) -> usize {
    s.extents()[group.clone()].iter().product()
}

/// The axes as groups of neighbours that every operand walks as one; each by itself, if they are to
/// stay `apart`.
pub(crate) fn groups(
    compute: &Compute,
    s: &Stage,
    axes: Range<usize>,
    apart: bool,
) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    // An axis of one element is no step, and parts no others.
    let mut last = None;
    for axis in axes {
        let is_one = s.extents()[axis] == 1;
        match groups.last_mut() {
            Some(group)
                if is_one || last.is_none_or(|last| !apart && merges(compute, s, last, axis)) =>
            {
                group.end = axis + 1;
            }
            _ => groups.push(axis..axis + 1),
        }
        last = if is_one { last } else { Some(axis) };
    }
    groups
}

/// Every mention of `axis` and the `next` one is as neighbouring indices of a buffer whose extent
/// there is the next axis's; then both are one walk through memory.
fn merges(compute: &Compute, s: &Stage, axis: usize, next: usize) -> bool {
    let extent = s.extents()[next];
    let (this, behind) = (Expr::var(axis), Expr::var(next));
    let mut paired = 0;
    for (buffer, indices) in s.body.loads() {
        let shape = &compute.buffer_type(buffer).shape;
        let steps: Vec<_> = indices.iter().zip(shape).filter(|(_, extent)| **extent != 1).collect();
        let is_pair = |pair: &&[(&Expr, &usize)]| {
            *from_start(pair[0].0) == this && *pair[1].0 == behind && *pair[1].1 == extent
        };
        paired += steps.windows(2).filter(is_pair).count();
    }
    count(&s.body, axis) == paired && count(&s.body, next) == paired
}

/// An index without the constant that is added to it: a walk may begin anywhere.
pub(crate) fn from_start(index: &Expr) -> &Expr {
    match index {
        Expr::Binary(BinOp::Add, at, start) if start.as_const().is_some() => at,
        _ => index,
    }
}

fn count(e: &Expr, axis: usize) -> usize {
    let mut n = 0;
    e.visit(&mut |e| n += usize::from(*e == Expr::Var(VarId::new(axis))));
    n
}
