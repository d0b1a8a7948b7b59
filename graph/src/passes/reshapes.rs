//! Reshapes that add axes move behind what is elementwise, so that a matrix product and what
//! follows it have the same shape and can be one kernel.
//!
//! ```text
//! add(reshape([n, h, w, c], p), q)   ->   reshape([n, h, w, c], add(p, reshape([n * h * w, c], q)))
//! ```
//!
//! Both reshapes are views. An operand that is broadcast along only a part of the axes that the
//! reshape made of one keeps the reshape where it is.

use super::rewrite::{add, close_types, open_map, reshaped, supersede, sweep};
use super::{Options, PassError};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Kind;
use crate::ops::shape::reshape_groups;

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    // A moved reshape is above the next elementwise node, which comes later in this order.
    for node in graph.topological() {
        changed |= sink(graph, node)?;
    }
    changed |= sweep(graph);
    Ok(changed)
}

fn sink(graph: &mut Graph, node: NodeId) -> Result<bool, PassError> {
    let Some(body) = open_map(graph, node) else { return Ok(false) };
    let operands = graph.operands(node);
    let ty = graph.node(node).outputs[0].ty.clone();
    let Some(shape) = operands.iter().find_map(|v| unexpanded(graph, *v, &ty.shape)) else {
        return Ok(false);
    };
    let shapes: Option<Vec<Vec<usize>>> =
        operands.iter().map(|v| regrouped(&graph.ty(*v).shape, &ty.shape, &shape)).collect();
    let Some(shapes) = shapes else { return Ok(false) };
    let name = graph.node(node).name.clone();
    let mut inputs = Vec::with_capacity(operands.len());
    for (operand, shape) in operands.iter().zip(&shapes) {
        inputs.push(match source(graph, *operand) {
            Some(source) if graph.ty(source).shape == *shape => source,
            _ => reshaped(graph, &name, *operand, shape)?,
        });
    }
    let types: Vec<_> = inputs.iter().map(|v| graph.ty(*v).clone()).collect();
    let flat = crate::compute::TensorType::new(ty.dtype, shape);
    let value = add(graph, &name, close_types(&types, flat, &body), &inputs);
    let result = reshaped(graph, &name, value, &ty.shape)?;
    supersede(graph, ValueId { node, out: 0 }, result);
    Ok(true)
}

/// The operand of a reshape; `None` for other values.
fn source(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let op = graph.compute_of(value.node)?;
    (op.kind == Kind::Reshape).then(|| graph.operands(value.node)[0])
}

/// The shape before a reshape to `shape` that adds axes to the result of a product or of an
/// elementwise expression.
fn unexpanded(graph: &Graph, value: ValueId, shape: &[usize]) -> Option<Vec<usize>> {
    let source = source(graph, value)?;
    let producer = &graph.compute_of(source.node)?.kind;
    let before = &graph.ty(source).shape;
    let expands = before.len() < shape.len() && graph.ty(value).shape == shape;
    (expands && matches!(producer, Kind::MatMul | Kind::Map)).then(|| before.clone())
}

/// The shape that an operand of shape `operand`, broadcast to `from`, has for a result that is
/// reshaped to `to`.
pub(super) fn regrouped(operand: &[usize], from: &[usize], to: &[usize]) -> Option<Vec<usize>> {
    if operand.iter().all(|&extent| extent == 1) {
        return Some(vec![1; to.len()]);
    }
    // Without elements nothing tells which axes belong to each other.
    if from.contains(&0) {
        return None;
    }
    let mut full = vec![1; from.len() - operand.len()];
    full.extend(operand);
    let mut shape = vec![1; to.len()];
    for (left, right) in reshape_groups(from, to) {
        if full[left.clone()] == from[left.clone()] {
            shape[right.clone()].copy_from_slice(&to[right]);
        } else if full[left].iter().any(|&extent| extent != 1) {
            return None;
        }
    }
    Some(shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::BinOp;
    use crate::passes::testing::{Builder, check_all, count};
    use crate::passes::{conv_to_matmul, cse, layout, simplify};

    #[test]
    fn shapes_of_operands() {
        let (from, to) = ([2, 4, 4, 5], [32, 5]);
        assert_eq!(regrouped(&[5], &from, &to), Some(vec![1, 5]));
        assert_eq!(regrouped(&[2, 4, 4, 1], &from, &to), Some(vec![32, 1]));
        assert_eq!(regrouped(&[1, 1], &from, &to), Some(vec![1, 1]));
        assert_eq!(regrouped(&[4, 4, 5], &from, &to), None);
        assert_eq!(regrouped(&[0, 8], &[0, 8], &[0, 8, 1]), None);
        assert_eq!(regrouped(&[1, 1], &[0, 8], &[0, 8, 1]), Some(vec![1, 1, 1]));
        assert_eq!(regrouped(&[1, 2, 3], &[1, 2, 3], &[2, 3]), Some(vec![2, 3]));
    }

    #[test]
    fn a_chain_of_pointwise_convolutions_stays_flat() {
        let mut b = Builder::new(32);
        let x = b.input(&[1, 4, 3, 3]);
        let bias = b.constant(&[4, 1, 1]);
        let y = b.conv(x, 4, 1, 1);
        let y = b.binary(BinOp::Add, y, bias);
        let y = b.binary(BinOp::Add, y, x);
        let y = b.relu(y);
        let y = b.conv(y, 4, 1, 1);
        let after = check_all(b.finish(&[y]), |graph| {
            for pass in [layout::run, conv_to_matmul::run, run, simplify::run, cse::run] {
                pass(graph, &Options::default())?;
            }
            Ok(())
        });
        // One after the transpose of the input, one before that of the output.
        assert_eq!(count(&after, |k| *k == Kind::Reshape), 2);
    }

    #[test]
    fn a_partly_broadcast_operand_stops_it() {
        let mut b = Builder::new(33);
        let (x, w, p) = (b.input(&[8, 3]), b.constant(&[3, 5]), b.input(&[4, 5]));
        let y = b.matmul(x, w);
        let y = b.reshape(y, &[2, 4, 5]);
        let y = b.binary(BinOp::Add, y, p);
        let mut graph = b.finish(&[y]);
        assert!(!run(&mut graph, &Options::default()).unwrap());
    }
}
