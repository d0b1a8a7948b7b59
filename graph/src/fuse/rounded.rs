//! A value that is needed both as it is and rounded: one kernel stores both.
//!
//! ```text
//! n = layernorm(x);  y = add(n, z);  r: bf16 = n;  p = matmul(r, w)
//! ->  [layernorm, r] gives n and r,  [matmul, ..]
//! ```
//!
//! A kernel of its own for `r` would read `n` again. Kernels of convolutions and matrix products
//! keep a single result, which is what their schedules are made for.

use std::collections::BTreeMap;

use super::pattern::{Pattern, pattern};
use crate::expr::Expr;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind};

/// Takes groups that only round the result of another group out of `members`; gives them by the
/// node that has the result.
pub(super) fn take(
    graph: &Graph,
    members: &mut BTreeMap<usize, Vec<NodeId>>,
) -> BTreeMap<NodeId, Vec<NodeId>> {
    let makers: Vec<NodeId> = members
        .values()
        .filter(|n| may_give_two(graph, n))
        .filter_map(|n| n.last().copied())
        .collect();
    let mut roundings: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    members.retain(|_, nodes| {
        let source = match nodes.as_slice() {
            [only] => rounds(graph, *only).filter(|value| makers.contains(&value.node)),
            _ => None,
        };
        if let Some(value) = source {
            roundings.entry(value.node).or_default().extend(&*nodes);
        }
        source.is_none()
    });
    roundings
}

/// Whether a group of these nodes has one result, which no convolution or product makes.
fn may_give_two(graph: &Graph, nodes: &[NodeId]) -> bool {
    let ops: Option<Vec<&ComputeOp>> = nodes.iter().map(|n| graph.compute_of(*n)).collect();
    let is_view = |ops: &[&ComputeOp]| matches!(ops, [op] if op.kind == Kind::Reshape);
    ops.is_some_and(|ops| {
        let product = |op: &&ComputeOp| matches!(op.kind, Kind::Conv(_) | Kind::MatMul);
        let single = |op: &&ComputeOp| pattern(op) != Pattern::Opaque;
        !is_view(&ops) && ops.iter().all(single) && !ops.iter().any(product)
    })
}

/// The value that a node converts to a float type of fewer bits, if that is all it does.
fn rounds(graph: &Graph, node: NodeId) -> Option<ValueId> {
    let op = graph.compute_of(node).filter(|op| op.kind == Kind::Map)?;
    let ([stage], [from]) = (op.expr.stages.as_slice(), op.expr.inputs.as_slice()) else {
        return None;
    };
    let converts = matches!(&stage.body, Expr::Cast(_, x) if matches!(**x, Expr::Load(..)));
    let rounds = from.shape == stage.ty.shape
        && [from.dtype, stage.ty.dtype].iter().all(|dtype| dtype.is_float())
        && from.dtype.size() > stage.ty.dtype.size();
    (converts && rounds).then(|| graph.operands(node)[0])
}
