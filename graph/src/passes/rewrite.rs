//! Changes to a graph that several passes make.

use std::sync::Arc;

use ansc_runtime::Tensor;

use crate::compute::{Compute, Stage, TensorType};
use crate::expr::{BufId, Expr};
use crate::graph::{Graph, NodeId, Value, ValueId};
use crate::interp;
use crate::op::{ComputeOp, Kind, Op};
use crate::ops::map::broadcast_indices;
use crate::ops::{OpError, shape};
use crate::passes::PassError;
use crate::passes::transposed::transposed;

/// Adds a node whose values are named after it.
pub(crate) fn add(graph: &mut Graph, name: &str, op: ComputeOp, inputs: &[ValueId]) -> ValueId {
    let types = op.expr.output_types().into_iter().enumerate();
    let outputs = types.map(|(i, ty)| Value::new(format!("{name}:{i}"), ty)).collect();
    let node = graph.add(name, Op::Compute(op), inputs, outputs);
    ValueId { node, out: 0 }
}

/// Lets readers of `old` read `new`, which takes over its name if it is a value of a compute.
pub(crate) fn supersede(graph: &mut Graph, old: ValueId, new: ValueId) {
    let name = graph.value(old).name.clone();
    if graph.compute_of(new.node).is_some() {
        graph.value_mut(new).name = name;
    }
    graph.replace(old, new);
}

/// Puts another expression, with results of the same types, in the place of a node's.
pub(crate) fn set_op(graph: &mut Graph, node: NodeId, op: ComputeOp, inputs: &[ValueId]) {
    debug_assert!(
        op.expr.output_types().iter().eq(graph.node(node).outputs.iter().map(|v| &v.ty)),
        "results of {} keep their types",
        graph.node(node).name
    );
    graph.node_mut(node).op = Op::Compute(op);
    graph.set_operands(node, inputs);
}

/// The only node that reads `value`, once or more, if it is not a result of the graph.
pub(crate) fn only_user(graph: &Graph, value: ValueId) -> Option<NodeId> {
    let users = graph.users(value);
    let (first, _) = users.first()?;
    let only = !graph.is_output(value) && users.iter().all(|(user, _)| user == first);
    only.then_some(*first)
}

/// Evaluates `op` on constants and adds the result as a constant.
pub(crate) fn evaluate(
    graph: &mut Graph,
    name: &str,
    op: &ComputeOp,
    inputs: &[Arc<Tensor>],
) -> Result<ValueId, PassError> {
    let result = compute(name, op, inputs)?.swap_remove(0);
    Ok(graph.add_const(name, result))
}

/// The results of `op` on constants. Reshapes and transposes, which apply to large weights, do not
/// go through the interpreter.
pub(crate) fn compute(
    node: &str,
    op: &ComputeOp,
    inputs: &[Arc<Tensor>],
) -> Result<Vec<Tensor>, PassError> {
    match &op.kind {
        Kind::Reshape => {
            let shape = &op.expr.stages[0].ty.shape;
            Ok(vec![Tensor::clone(&inputs[0]).reshaped(shape)])
        }
        Kind::Transpose(perm) => Ok(vec![turned(node, &inputs[0], perm)?]),
        _ => {
            let inputs: Vec<&Tensor> = inputs.iter().map(|t| &**t).collect();
            interp::eval(&op.expr, &inputs)
                .map_err(|source| PassError::Fold { node: node.into(), source })
        }
    }
}

fn turned(node: &str, x: &Tensor, perm: &[usize]) -> Result<Tensor, PassError> {
    transposed(x, perm).map_err(|source| PassError::Tensor { node: node.into(), source })
}

/// A constructor's error becomes the pass's: the pass built operands that do not fit.
pub(crate) fn built<T>(node: &str, result: Result<T, OpError>) -> Result<T, PassError> {
    result.map_err(|source| PassError::Op { node: node.into(), source })
}

/// `value` under another shape, as a constant if it is one, and as `value` if it has that shape.
pub(crate) fn reshaped(
    graph: &mut Graph,
    name: &str,
    value: ValueId,
    shape: &[usize],
) -> Result<ValueId, PassError> {
    if graph.ty(value).shape == shape {
        return Ok(value);
    }
    if let Some(tensor) = graph.const_of(value) {
        let tensor = Tensor::clone(tensor).reshaped(shape);
        return Ok(graph.add_const(name, tensor));
    }
    let op = built(name, shape::reshape(graph.ty(value), shape))?;
    Ok(add(graph, name, op, &[value]))
}

/// `value` with permuted axes, as a constant if it is one.
pub(crate) fn permuted(
    graph: &mut Graph,
    name: &str,
    value: ValueId,
    perm: &[usize],
) -> Result<ValueId, PassError> {
    if perm.iter().copied().eq(0..perm.len()) {
        return Ok(value);
    }
    if let Some(tensor) = graph.const_of(value) {
        let tensor = turned(name, tensor, perm)?;
        return Ok(graph.add_const(name, tensor));
    }
    let op = built(name, shape::transpose(graph.ty(value), perm))?;
    Ok(add(graph, name, op, &[value]))
}

/// The value of a node that gives one value by an elementwise expression, in *open* form: loads
/// have no indices, since they follow from the shapes. `None` for any other node.
pub(crate) fn open_map(graph: &Graph, node: NodeId) -> Option<Expr> {
    let op = graph.compute_of(node)?;
    open(op)
}

/// See [`open_map`].
pub(crate) fn open(op: &ComputeOp) -> Option<Expr> {
    let [stage] = op.expr.stages.as_slice() else { return None };
    if op.kind != Kind::Map || stage.reduce.is_some() {
        return None;
    }
    Some(open_loads(&stage.body)).filter(|body| body.vars().is_empty())
}

fn open_loads(e: &Expr) -> Expr {
    match e {
        Expr::Load(buffer, _) => Expr::Load(*buffer, vec![]),
        _ => e.map_children(open_loads),
    }
}

/// The map with `body` in open form, whose loads name `values` by position. Values that it does not
/// read are dropped, those listed twice are joined.
pub(crate) fn close(
    graph: &Graph,
    values: &[ValueId],
    ty: TensorType,
    body: &Expr,
) -> (ComputeOp, Vec<ValueId>) {
    let mut inputs: Vec<ValueId> = Vec::new();
    for (buffer, _) in body.loads() {
        let value = values[buffer.index()];
        if !inputs.contains(&value) {
            inputs.push(value);
        }
    }
    let types: Vec<TensorType> = inputs.iter().map(|v| graph.ty(*v).clone()).collect();
    let slot = |buffer: BufId| inputs.iter().position(|v| *v == values[buffer.index()]);
    let body = renumbered(body, &|buffer| slot(buffer).expect("every load is listed above"));
    (close_types(&types, ty, &body), inputs)
}

/// As [`close`], for operands of these types.
pub(crate) fn close_types(types: &[TensorType], ty: TensorType, body: &Expr) -> ComputeOp {
    let body = closed(body, &mut |buffer| {
        let shape = &types[buffer.index()].shape;
        Expr::load(buffer.index(), broadcast_indices(shape, ty.rank()))
    });
    ComputeOp::new(Kind::Map, Compute::single(types.to_vec(), Stage::map("map", ty, body)))
}

fn closed(e: &Expr, load: &mut impl FnMut(BufId) -> Expr) -> Expr {
    match e {
        Expr::Load(buffer, _) => load(*buffer),
        _ => e.map_children(|child| closed(child, load)),
    }
}

/// Renumbers the loads of an open form.
pub(crate) fn renumbered(e: &Expr, f: &impl Fn(BufId) -> usize) -> Expr {
    closed(e, &mut |buffer| Expr::load(f(buffer), vec![]))
}

/// Removes computes and constants that nothing reads. Other nodes stay.
pub(crate) fn sweep(graph: &mut Graph) -> bool {
    let mut changed = false;
    for node in graph.topological().into_iter().rev() {
        let op = &graph.node(node).op;
        let plain = matches!(op, Op::Compute(_) | Op::Const(_) | Op::Host(_)) && !op.is_check();
        let dead = graph.values(node).all(|v| graph.users(v).is_empty() && !graph.is_output(v));
        if plain && dead {
            graph.remove(node);
            changed = true;
        }
    }
    changed
}
