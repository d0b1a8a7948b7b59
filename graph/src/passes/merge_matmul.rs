//! Matrix products of one operand with several constant matrices become one product and slices.
//!
//! ```text
//! x * a;  x * b;  x * c   ->   %1 = x * [a b c];  %1[.., 0..n];  %1[.., n..2n];  ..
//! ```
//!
//! Off unless [`Options::merge_matmul`] is set: one large product is faster than three small ones
//! only where the slices are fused with what reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ansc_runtime::Tensor;

use super::rewrite::{add, built, evaluate, supersede, sweep};
use super::{Options, PassError};
use crate::compute::TensorType;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Kind;
use crate::ops::{concat, matmul, slice};

pub(crate) fn run(graph: &mut Graph, options: &Options) -> Result<bool, PassError> {
    if !options.merge_matmul {
        return Ok(false);
    }
    let mut parallel: BTreeMap<ValueId, Vec<NodeId>> = BTreeMap::new();
    for node in graph.topological() {
        if is_candidate(graph, node) {
            parallel.entry(graph.operands(node)[0]).or_default().push(node);
        }
    }
    let mut changed = false;
    for (x, nodes) in parallel.into_iter().filter(|(_, nodes)| nodes.len() > 1) {
        merge(graph, x, &nodes)?;
        changed = true;
    }
    changed |= sweep(graph);
    Ok(changed)
}

/// A product with one constant matrix.
fn is_candidate(graph: &Graph, node: NodeId) -> bool {
    let is_product = graph.compute_of(node).is_some_and(|op| op.kind == Kind::MatMul);
    is_product && {
        let weight = graph.operands(node)[1];
        graph.const_of(weight).is_some() && graph.ty(weight).rank() == 2
    }
}

fn merge(graph: &mut Graph, x: ValueId, nodes: &[NodeId]) -> Result<(), PassError> {
    let name = graph.node(nodes[0]).name.clone();
    let weights: Vec<ValueId> = nodes.iter().map(|n| graph.operands(*n)[1]).collect();
    let types: Vec<TensorType> = weights.iter().map(|w| graph.ty(*w).clone()).collect();
    let tensors: Vec<Arc<Tensor>> =
        weights.iter().filter_map(|w| graph.const_of(*w).cloned()).collect();
    let joined = built(&name, concat::concat(&types, 1))?;
    let weight = evaluate(graph, &name, &joined, &tensors)?;
    let op = built(&name, matmul::matmul(graph.ty(x), graph.ty(weight)))?;
    let product = add(graph, &name, op, &[x, weight]);
    let axis = graph.ty(product).rank() - 1;
    let mut begin = 0;
    for (node, ty) in nodes.iter().zip(types) {
        let part = built(&name, slice::narrow(graph.ty(product), axis, begin, ty.shape[1]))?;
        let part = add(graph, &name, part, &[product]);
        supersede(graph, ValueId { node: *node, out: 0 }, part);
        begin += ty.shape[1];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::{Builder, check_all, count};

    #[test]
    fn three_products_become_one() {
        let mut b = Builder::new(34);
        let x = b.input(&[2, 4, 3]);
        let outputs = [5, 2, 5].map(|n| {
            let w = b.constant(&[3, n]);
            b.matmul(x, w)
        });
        let options = Options { merge_matmul: true, ..Options::default() };
        let after = check_all(b.finish(&outputs), |g| run(g, &options).map(drop));
        assert_eq!(count(&after, |k| *k == Kind::MatMul), 1);
        assert_eq!(count(&after, |k| *k == Kind::Slice), 3);
    }
}
