//! The conditions of the rules.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BinOp, BufId, Expr, UnOp, VarId};

use crate::program::{Block, Body, IterKind, Scope};
use crate::schedule::Schedule;

/// Whether the stage is no reduction and no result, reads elements at its own place in the order of
/// its axes, each axis once, and neither branches nor calls an expensive function.
pub fn is_strictly_inlinable(schedule: &Schedule, name: &str) -> bool {
    let Ok(block) = schedule.block(name) else { return false };
    let is_result = schedule.program().buffer(written(block)).scope == Scope::Output;
    matches!(block.body, Body::Assign { .. })
        && !is_result
        && !branches_or_is_costly(block.body.value())
        && block.body.value().loads().iter().all(|(_, indices)| in_order(block, indices))
}

fn branches_or_is_costly(e: &Expr) -> bool {
    let mut found = false;
    let _ = e.rewrite(&mut |node| {
        found |= matches!(node, Expr::Select(..) | Expr::Unary(UnOp::Exp, _));
        None
    });
    found
}

/// Whether the indices are different iterators, plus constants, in the order of the iterators.
fn in_order(block: &Block, indices: &[Expr]) -> bool {
    let place = |v: VarId| block.iters.iter().position(|i| i.var == v);
    let Some(axes) = indices.iter().map(simple).collect::<Option<Vec<_>>>() else { return false };
    let places: Vec<usize> = axes.into_iter().flatten().filter_map(place).collect();
    places.windows(2).all(|pair| pair[0] < pair[1])
}

/// The iterator of an index that is one, plus or minus a constant; of a constant, none.
fn simple(index: &Expr) -> Option<Option<VarId>> {
    match index {
        Expr::Var(v) => Some(Some(*v)),
        Expr::Const(_) => Some(None),
        Expr::Binary(BinOp::Add | BinOp::Sub, a, b) if matches!(**b, Expr::Const(_)) => simple(a),
        _ => None,
    }
}

/// Whether elements of operands are used more than once: two operands, or one of a reduction, do
/// not depend on some axis of the result.
pub fn needs_tiling(schedule: &Schedule, name: &str) -> bool {
    let Ok(block) = schedule.block(name) else { return false };
    let axes: BTreeSet<VarId> = block
        .iters
        .iter()
        .filter(|i| i.kind == IterKind::Spatial && i.extent > 1)
        .map(|i| i.var)
        .collect();
    let mut used: BTreeMap<BufId, BTreeSet<VarId>> = BTreeMap::new();
    for (buffer, indices) in block.body.value().loads() {
        used.entry(buffer).or_default().extend(indices.iter().flat_map(Expr::vars));
    }
    let reused = used.values().filter(|vars| !axes.is_subset(vars)).count();
    reused >= 2 || (reused == 1 && is_reduction(block))
}

fn is_reduction(block: &Block) -> bool {
    block.iters.iter().any(|i| i.kind == IterKind::Reduce)
}

/// The extents of the spatial and of the reduced domain of a sum, product, minimum or maximum.
pub(super) fn reduction_of(schedule: &Schedule, name: &str) -> Option<(usize, usize)> {
    let block = schedule.block(name).ok()?;
    let of = |kind| block.iters.iter().filter(|i| i.kind == kind).map(|i| i.extent).product();
    matches!(block.body, Body::Reduce { .. }).then(|| (of(IterKind::Spatial), of(IterKind::Reduce)))
}

/// The only consumer of the stage, if it has the same shape and reads each element at its own
/// place, and one of the two is no reduction.
pub fn elementwise_consumer(schedule: &Schedule, name: &str) -> Option<String> {
    let block = schedule.block(name).ok()?;
    let [consumer] = &schedule.consumers(name).ok()?[..] else { return None };
    let reader = schedule.block(consumer).ok()?;
    if is_reduction(block) && is_reduction(reader) {
        return None;
    }
    let shape = |b: &Block| schedule.program().buffer(written(b)).ty.shape.clone();
    let own = &reader.body.writes()[0].indices;
    let extents = shape(reader);
    // Along an axis of one element every place is its own.
    let is_own = |(axis, index): (usize, &Expr)| *index == own[axis] || extents[axis] == 1;
    let at_own_place = reader
        .body
        .value()
        .loads()
        .iter()
        .filter(|(buffer, indices)| *buffer == written(block) && indices.len() == own.len())
        .all(|(_, indices)| indices.iter().enumerate().all(is_own));
    (at_own_place && shape(block) == shape(reader)).then(|| consumer.clone())
}

fn written(block: &Block) -> BufId {
    block.body.writes()[0].buffer
}

/// The name of the buffer that the block writes.
pub(super) fn written_buffer(schedule: &Schedule, name: &str) -> String {
    let block = schedule.block(name).expect("a block of the program");
    schedule.program().buffer(written(block)).name.clone()
}
