//! Identities: operators that give back what they get, and expressions with a simpler form.
//!
//! ```text
//! sub(x, zeros)                       ->  x
//! transpose([0, 2, 1], transpose([0, 2, 1], x))  ->  x
//! reshape([2, 3], reshape([6], x))    ->  reshape([2, 3], x)
//! transpose([1, 0], x: f32[1, 5])     ->  reshape([5, 1], x)
//! ```
//!
//! Constants with all elements alike become part of the elementwise expressions that read them.

use super::algebra;
use super::rewrite::{add, built, close, open_map, set_op, supersede, sweep};
use super::view::View;
use super::{Options, PassError};
use crate::compute::Compute;
use crate::expr::Expr;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Kind;
use crate::ops::shape;
use crate::tensors::uniform;

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        let did = simplify_map(graph, node) || forward(graph, node) || movement(graph, node)?;
        changed |= did;
    }
    changed |= sweep(graph);
    Ok(changed)
}

/// Rewrites the expression of a map.
fn simplify_map(graph: &mut Graph, node: NodeId) -> bool {
    let Some(body) = open_map(graph, node) else { return false };
    let operands = graph.operands(node);
    let inlined = body.rewrite(&mut |e| match e {
        Expr::Load(buffer, _) => Some(operand(graph, &operands, buffer.index())),
        _ => None,
    });
    let simple = algebra::simplify(&inlined, &|b| graph.ty(operands[b.index()]).dtype);
    if simple == body {
        return false;
    }
    let ty = graph.node(node).outputs[0].ty.clone();
    let (op, inputs) = close(graph, &operands, ty, &simple);
    set_op(graph, node, op, &inputs);
    forward(graph, node);
    true
}

/// The load of an operand: by the first slot that holds the same value, so that equal loads look
/// equal, or the value if all elements have the same.
fn operand(graph: &Graph, operands: &[ValueId], slot: usize) -> Expr {
    let value = operands[slot];
    let first = operands.iter().position(|v| *v == value).unwrap_or(slot);
    let constant = graph.const_of(value).and_then(|tensor| uniform(tensor));
    constant.map_or_else(|| Expr::load(first, vec![]), Expr::Const)
}

/// Lets readers of an operator that copies its operand read the operand.
fn forward(graph: &mut Graph, node: NodeId) -> bool {
    let Some(slot) = graph.compute_of(node).and_then(|op| copied(&op.expr)) else { return false };
    let source = graph.operands(node)[slot];
    let value = ValueId { node, out: 0 };
    let read = graph.is_output(value) || !graph.users(value).is_empty();
    if read && !graph.value(source).dynamic {
        graph.replace(value, source);
    }
    read
}

/// The input that the only result equals.
fn copied(expr: &Compute) -> Option<usize> {
    let [stage] = expr.stages.as_slice() else { return None };
    let Expr::Load(buffer, indices) = &stage.body else { return None };
    let source = &expr.inputs[buffer.index()];
    let in_place = indices.iter().enumerate().all(|(axis, index)| match index {
        Expr::Var(v) => v.index() == axis,
        index => source.shape[axis] == 1 && index.as_const().is_some(),
    });
    (stage.reduce.is_none() && *source == stage.ty && in_place).then_some(buffer.index())
}

/// Composes a transpose or reshape with the ones before it.
fn movement(graph: &mut Graph, node: NodeId) -> Result<bool, PassError> {
    let Some(kind) = graph.compute_of(node).map(|op| op.kind.clone()) else { return Ok(false) };
    if !matches!(kind, Kind::Reshape | Kind::Transpose(_)) {
        return Ok(false);
    }
    let value = ValueId { node, out: 0 };
    let source = graph.operands(node)[0];
    let shape = graph.ty(value).shape.clone();
    if let Some(origin) = reshape_origin(graph, node) {
        return reshape_from(graph, node, origin, &shape);
    }
    let (Kind::Transpose(second), Some(Kind::Transpose(first))) =
        (&kind, graph.compute_of(source.node).map(|op| &op.kind))
    else {
        return Ok(false);
    };
    let perm: Vec<usize> = second.iter().map(|&axis| first[axis]).collect();
    let origin = graph.operands(source.node)[0];
    let name = graph.node(node).name.clone();
    let op = built(&name, shape::transpose(graph.ty(origin), &perm))?;
    set_op(graph, node, op, &[origin]);
    Ok(true)
}

fn reshape_from(
    graph: &mut Graph,
    node: NodeId,
    origin: ValueId,
    shape: &[usize],
) -> Result<bool, PassError> {
    let value = ValueId { node, out: 0 };
    let done = graph.compute_of(node).is_some_and(|op| op.kind == Kind::Reshape)
        && graph.operands(node)[0] == origin;
    if graph.ty(origin).shape == shape {
        graph.replace(value, origin);
        return Ok(true);
    }
    if done {
        return Ok(false);
    }
    let name = graph.node(node).name.clone();
    let op = built(&name, shape::reshape(graph.ty(origin), shape))?;
    let new = add(graph, &name, op, &[origin]);
    supersede(graph, value, new);
    Ok(true)
}

/// The furthest value above `node` whose elements the node's value has in the same order: what it
/// is reached by are transposes and reshapes which undo each other.
fn reshape_origin(graph: &Graph, node: NodeId) -> Option<ValueId> {
    let mut chain = Vec::new();
    let mut at = node;
    let mut best = None;
    while let Some(op) = graph.compute_of(at)
        && matches!(op.kind, Kind::Reshape | Kind::Transpose(_))
    {
        chain.push(at);
        let source = graph.operands(at)[0];
        if in_order(graph, &chain, &graph.ty(source).shape) {
            best = Some(source);
        }
        at = source.node;
    }
    best
}

/// Whether the `chain` of transposes and reshapes, last one first, keeps the order of elements.
fn in_order(graph: &Graph, chain: &[NodeId], shape: &[usize]) -> bool {
    let mut view = View::contiguous(shape);
    for &node in chain.iter().rev() {
        let op = graph.compute_of(node).expect("chains are of computes");
        let next = match &op.kind {
            Kind::Transpose(perm) => Some(view.transposed(perm)),
            _ => view.reshaped(&op.expr.stages[0].ty.shape),
        };
        match next {
            Some(next) => view = next,
            None => return false,
        }
    }
    view.is_contiguous()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::BinOp;
    use crate::passes::testing::{Builder, check};

    #[test]
    fn neutral_operands_vanish() {
        let mut b = Builder::new(2);
        let x = b.input(&[2, 3]);
        let (zeros, ones) = (b.filled(&[3], 0.0), b.filled(&[], 1.0));
        let difference = b.binary(BinOp::Sub, x, zeros);
        let product = b.binary(BinOp::Mul, ones, difference);
        let y = b.binary(BinOp::Max, product, x);
        let after = check(b.finish(&[y]), run);
        assert_eq!(after.len(), 1);
    }

    #[test]
    fn an_operand_that_broadcasts_stays() {
        let mut b = Builder::new(2);
        let x = b.input(&[3]);
        let zeros = b.filled(&[2, 3], 0.0);
        let y = b.binary(BinOp::Add, x, zeros);
        let after = check(b.finish(&[y]), run);
        assert_eq!(after.len(), 2);
    }

    #[test]
    fn movements_that_undo_each_other() {
        let mut b = Builder::new(2);
        let x = b.input(&[2, 3, 4, 1]);
        let a = b.reshape(x, &[6, 4]);
        let a = b.transpose(a, &[1, 0]);
        let a = b.reshape(a, &[4, 2, 3]);
        let a = b.transpose(a, &[1, 2, 0]);
        let y = b.reshape(a, &[2, 3, 4, 1]);
        assert_eq!(check(b.finish(&[y]), run).len(), 1);
    }

    #[test]
    fn movements_compose() {
        let mut b = Builder::new(2);
        let x = b.input(&[2, 3, 4]);
        let a = b.transpose(x, &[1, 0, 2]);
        let y = b.transpose(a, &[2, 1, 0]);
        let flat = b.reshape(a, &[24]);
        let z = b.reshape(flat, &[2, 12]);
        let after = check(b.finish(&[y, z]), run);
        // x; its transpose for y; the first transpose and a reshape for z.
        assert_eq!(after.len(), 4);
    }
}
