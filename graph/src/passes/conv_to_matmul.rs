//! Pointwise convolutions, and products of a batch with one matrix, become plain matrix products.
//!
//! ```text
//! conv(x: [n, h, w, c], w: [1, 1, c, m])  ->  reshape([n, h, w, m], matmul([n * h * w, c], [c, m]))
//! matmul(a: [b, m, k], w: [k, n])         ->  reshape([b, m, n], matmul([b * m, k], [k, n]))
//! ```
//!
//! Convolutions must be channels-last with stride 1 and neither padding nor groups. Reshapes cost
//! nothing; `reshapes` moves them behind what is elementwise.

use super::rewrite::{add, built, reshaped, supersede, sweep};
use super::{Options, PassError};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{Channels, ConvAttrs, Kind};
use crate::ops::matmul;

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        let Some(op) = graph.compute_of(node) else { continue };
        let applies = match &op.kind {
            Kind::Conv(attrs) => is_pointwise(attrs),
            Kind::MatMul => has_one_matrix(graph, node),
            _ => false,
        };
        if applies && !graph.node(node).outputs[0].ty.is_empty() {
            flatten(graph, node)?;
            changed = true;
        }
    }
    sweep(graph);
    Ok(changed)
}

fn is_pointwise(attrs: &ConvAttrs) -> bool {
    let all = |values: &[usize], value| values.iter().all(|&v| v == value);
    [attrs.channels, attrs.input] == [Channels::Last; 2]
        && attrs.groups == 1
        && all(&attrs.kernel, 1)
        && all(&attrs.strides, 1)
        && all(&attrs.pads_begin, 0)
        && all(&attrs.pads_end, 0)
}

/// Whether the second operand is one matrix for all of a batch that the first one has.
fn has_one_matrix(graph: &Graph, node: NodeId) -> bool {
    let operands = graph.operands(node);
    let (a, b) = (graph.ty(operands[0]), graph.ty(operands[1]));
    let batch = &b.shape[..b.rank() - 2];
    a.rank() > 2 && a.rank() >= b.rank() && batch.iter().all(|&extent| extent == 1)
}

/// Both operators contract the last axis of the first operand with the last but one of the second.
fn flatten(graph: &mut Graph, node: NodeId) -> Result<(), PassError> {
    let operands = graph.operands(node);
    let name = graph.node(node).name.clone();
    let value = ValueId { node, out: 0 };
    let shape = graph.ty(value).shape.clone();
    let weight = &graph.ty(operands[1]).shape;
    let [k, n] = [weight[weight.len() - 2], weight[weight.len() - 1]];
    let rows = shape[..shape.len() - 1].iter().product();
    let a = reshaped(graph, &name, operands[0], &[rows, k])?;
    let b = reshaped(graph, &name, operands[1], &[k, n])?;
    let op = built(&name, matmul::matmul(graph.ty(a), graph.ty(b)))?;
    let product = add(graph, &name, op, &[a, b]);
    let result = reshaped(graph, &name, product, &shape)?;
    supersede(graph, value, result);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::layout;
    use crate::passes::testing::{Builder, check, count};

    fn products(graph: &Graph) -> Vec<Vec<usize>> {
        let is_product =
            |n: &NodeId| graph.compute_of(*n).is_some_and(|op| op.kind == Kind::MatMul);
        let nodes = graph.topological().into_iter().filter(is_product);
        nodes.map(|n| graph.node(n).outputs[0].ty.shape.clone()).collect()
    }

    #[test]
    fn pointwise_convolutions() {
        let mut b = Builder::new(30);
        let x = b.input(&[2, 3, 4, 4]);
        let y = b.conv(x, 5, 1, 1);
        let y = b.conv(y, 6, 1, 2);
        let graph = check(b.finish(&[y]), layout::run);
        let after = check(graph, run);
        assert_eq!(products(&after), [[32, 5]]);
        assert_eq!(count(&after, |k| matches!(k, Kind::Conv(_))), 1);
    }

    #[test]
    fn batches_with_one_matrix() {
        let mut b = Builder::new(31);
        let (x, w, v) = (b.input(&[2, 4, 3]), b.constant(&[3, 5]), b.input(&[2, 5, 6]));
        let y = b.matmul(x, w);
        let z = b.matmul(y, v);
        let after = check(b.finish(&[z]), run);
        assert_eq!(products(&after), [vec![8, 5], vec![2, 4, 6]]);
    }
}
