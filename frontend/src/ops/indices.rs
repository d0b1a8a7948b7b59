//! Indices that are data: a check that axes have them, beside the operator that takes them.
//!
//! In: a tensor of indices and the extents of the axes. Out: an error now, if the indices are known
//! and one is out of range; else a node that gives one in such a run.

use ansc_graph::op::ComputeOp;
use ansc_graph::ops::OpError;
use ansc_graph::{Expr, Graph, Kind, Op, ValueId};
use ansc_runtime::Tensor;
use ansc_runtime::host::{self, HostError, HostOp};

use crate::problem::Problem;
use crate::walk::NodeCtx;

/// Adds `op`, whose operands are data and indices of axes of `extents` elements; several extents
/// are those of the axes that the last axis of the indices holds an index of each for.
pub(super) fn taken(
    ctx: &mut NodeCtx<'_>,
    op: Result<ComputeOp, OpError>,
    [data, indices]: [ValueId; 2],
    extents: &[usize],
) -> Result<Vec<ValueId>, Problem> {
    if op.is_ok() {
        checked(ctx, indices, extents)?;
    }
    ctx.emit(op, &[data, indices])
}

pub(super) fn checked(
    ctx: &mut NodeCtx<'_>,
    indices: ValueId,
    extents: &[usize],
) -> Result<(), Problem> {
    if extents.is_empty() {
        return Ok(());
    }
    if let Some(tensor) = ctx.constant(indices) {
        return known(ctx, &tensor, extents);
    }
    // With several extents, the last axis holds one index for each of them. The origin may have
    // another shape, so the check reads the indices themselves then.
    let source = if extents.len() == 1 { origin(ctx.graph_here(), indices) } else { indices };
    let check = HostOp::CheckIndices { extents: extents.to_vec() };
    ctx.add(Op::Host(check), &[source], vec![]);
    Ok(())
}

/// Checks indices if they are known.
pub(super) fn checked_if_known(
    ctx: &NodeCtx<'_>,
    indices: ValueId,
    extents: &[usize],
) -> Result<(), Problem> {
    match ctx.constant(indices).filter(|_| !extents.is_empty()) {
        Some(tensor) => known(ctx, &tensor, extents),
        None => Ok(()),
    }
}

fn known(ctx: &NodeCtx<'_>, indices: &Tensor, extents: &[usize]) -> Result<(), Problem> {
    let check = HostOp::CheckIndices { extents: extents.to_vec() };
    match host::run(&check, &[indices]) {
        Ok(_) => Ok(()),
        Err(HostError::Index { position, index, extent, .. }) => Err(ctx.problem(format!(
            "index {index} at {position:?} of its indices is out of range; {}",
            host::in_words(&host::legal(extent))
        ))),
        Err(other) => Err(ctx.problem(other.to_string())),
    }
}

/// The value that has the same elements in the same order, if they need not be computed: an input
/// of the model is known to its user, and is there before anything runs.
fn origin(graph: &Graph, mut value: ValueId) -> ValueId {
    while let Some(op) = graph.compute_of(value.node) {
        if op.kind != Kind::Reshape && !widens(op) {
            break;
        }
        value = graph.operands(value.node)[0];
    }
    value
}

/// Whether it makes integers longer, and nothing else.
fn widens(op: &ComputeOp) -> bool {
    let ([x], [stage]) = (op.expr.inputs.as_slice(), op.expr.stages.as_slice()) else {
        return false;
    };
    let Expr::Cast(to, operand) = &stage.body else { return false };
    let keeps = x.dtype.is_int() && to.is_signed_int() && x.dtype.size() < to.size();
    let is_alone = op.kind == Kind::Map && matches!(**operand, Expr::Load(..));
    keeps && is_alone && x.shape == stage.ty.shape
}
