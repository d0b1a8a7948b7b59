//! The facts that fusion knows of an operator, from its kind and its expression.

use crate::compute::{Compute, Stage};
use crate::expr::{BinOp, BufId, Expr, UnOp, VarId};
use crate::graph::{Graph, NodeId};
use crate::op::{ComputeOp, Kind};

/// How elements of the result depend on elements of the operands; later ones are harder to fuse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pattern {
    /// On those at the same index of operands of the same shape.
    Elementwise,
    /// On those that numpy broadcasting puts at the same index.
    Broadcast,
    /// On at most one of each operand, at any index.
    Injective,
    /// On many, each of which is read once: a sum, a maximum.
    Reduction,
    /// On many, read many times. What is elementwise may follow in the same kernel.
    OutFusable,
    /// Nothing can be said.
    Opaque,
}

/// The pattern of an operator.
pub fn pattern(op: &ComputeOp) -> Pattern {
    if op.expr.outputs.len() != 1 {
        return Pattern::Opaque;
    }
    match &op.kind {
        Kind::Map => {
            let shape = &op.expr.stages[op.expr.outputs[0]].ty.shape;
            let same = op.expr.inputs.iter().all(|ty| ty.shape == *shape);
            if same { Pattern::Elementwise } else { Pattern::Broadcast }
        }
        Kind::Reshape | Kind::Transpose(_) => Pattern::Injective,
        Kind::Reduce { .. } => Pattern::Reduction,
        Kind::Conv(_) | Kind::MatMul | Kind::Pool(_) | Kind::Softmax { .. } => Pattern::OutFusable,
        Kind::Concat { .. } | Kind::Pad | Kind::Slice | Kind::Other(_) => of_expression(&op.expr),
    }
}

fn of_expression(expr: &Compute) -> Pattern {
    match expr.stages.as_slice() {
        [stage] if stage.reduce.is_none() && reads_once(stage) => Pattern::Injective,
        _ => Pattern::OutFusable,
    }
}

/// Whether no input is loaded at two indices.
fn reads_once(stage: &Stage) -> bool {
    let mut loads = stage.body.loads();
    loads.sort_unstable_by_key(|(buffer, _)| *buffer);
    loads.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].1 == pair[1].1)
}

/// The pattern of what `consumer` does with its operand at `slot`.
pub(super) fn edge_pattern(graph: &Graph, consumer: NodeId, slot: usize) -> Pattern {
    let Some(op) = graph.compute_of(consumer) else { return Pattern::Opaque };
    match pattern(op) {
        Pattern::Elementwise | Pattern::Broadcast => {
            let same = op.expr.inputs[slot].shape == op.expr.stages[0].ty.shape;
            if same { Pattern::Elementwise } else { Pattern::Broadcast }
        }
        other => other,
    }
}

/// Whether it is a convolution or a product: these go by tiles, which are stored in any order.
pub(super) fn is_product(op: &ComputeOp) -> bool {
    match op.kind {
        Kind::Conv(_) | Kind::MatMul => true,
        Kind::Other(_) => op.expr.is_sum_of_products() && uses_again(&op.expr),
        _ => false,
    }
}

/// Whether each input of a single stage lacks an axis of the result.
fn uses_again(expr: &Compute) -> bool {
    let stage = &expr.stages[0];
    let lacks = |(_, indices): &(BufId, &[Expr])| {
        let has = |axis: usize| indices.iter().any(|i| i.vars().contains(&VarId::new(axis)));
        stage.ty.shape.iter().enumerate().any(|(axis, &extent)| extent > 1 && !has(axis))
    };
    stage.body.loads().iter().all(lacks)
}

/// Whether an expression costs much more than a few additions, so that it must not be evaluated
/// once for each of many readers.
pub(super) fn is_expensive(op: &ComputeOp) -> bool {
    let mut expensive = false;
    for stage in &op.expr.stages {
        stage.body.visit(&mut |e| expensive |= is_expensive_node(e));
    }
    expensive
}

fn is_expensive_node(e: &Expr) -> bool {
    match e {
        Expr::Unary(op, _) => !matches!(
            op,
            UnOp::Neg
                | UnOp::Abs
                | UnOp::Sign
                | UnOp::Not
                | UnOp::Floor
                | UnOp::Ceil
                | UnOp::Round
                | UnOp::Trunc
                | UnOp::IsNan
                | UnOp::IsInf
        ),
        Expr::Binary(op, ..) => matches!(op, BinOp::Pow | BinOp::Div | BinOp::Rem),
        _ => false,
    }
}

/// Whether neighbours along an axis are read from places that are no fixed step apart. Reshapes
/// only seem to be.
pub(super) fn picks(op: &ComputeOp) -> bool {
    let is_picked = |index: &Expr| {
        index.any(&mut |e| matches!(e, Expr::Binary(BinOp::FloorDiv | BinOp::FloorMod, ..)))
    };
    let loads = |stage: &Stage| stage.body.loads().iter().any(|(_, at)| at.iter().any(is_picked));
    op.kind != Kind::Reshape && op.expr.stages.iter().any(loads)
}

/// Elements that are transposed in a pass of their own, at least.
const MANY: usize = 1 << 14;

/// Whether it is a transpose of much data that changes the innermost axis.
pub(super) fn turns(op: &ComputeOp) -> bool {
    let Kind::Transpose(perm) = &op.kind else { return false };
    perm.last().is_some_and(|&axis| axis + 1 != perm.len()) && op.expr.inputs[0].len() >= MANY
}

/// How many points of the consumer read one element of the operand at `slot`, on average.
pub(super) fn readers(op: &ComputeOp, slot: usize) -> usize {
    if matches!(op.kind, Kind::Concat { .. } | Kind::Pad) {
        return 1; // Their loads are guarded.
    }
    let points = |stage: &Stage| {
        let reads = stage.body.loads().iter().any(|(buffer, _)| *buffer == BufId::new(slot));
        if reads { stage.extents().iter().product() } else { 0 }
    };
    let total = op.expr.stages.iter().map(points).fold(0usize, usize::saturating_add);
    total.div_ceil(op.expr.inputs[slot].len().max(1))
}
