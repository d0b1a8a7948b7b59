//! Common subexpressions: nodes with the same operator and the same operands become one, and so do
//! equal constants.
//!
//! ```text
//! %1 = exp(x);  %2 = exp(x);  add(%1, %2)   ->   %1 = exp(x);  add(%1, %1)
//! ```

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::rewrite::sweep;
use super::{Options, PassError};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Op;

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut seen: BTreeMap<u64, Vec<NodeId>> = BTreeMap::new();
    let mut changed = false;
    for node in graph.topological() {
        let Some(key) = hash(graph, node) else { continue };
        let same = seen.entry(key).or_default();
        match same.iter().find(|first| equal(graph, **first, node)) {
            None => same.push(node),
            Some(&first) => {
                merge(graph, first, node);
                changed = true;
            }
        }
    }
    changed |= sweep(graph);
    Ok(changed)
}

/// `None` for nodes that are not compared.
fn hash(graph: &Graph, node: NodeId) -> Option<u64> {
    let mut hasher = Xxh3::new();
    match &graph.node(node).op {
        Op::Const(tensor) => {
            (tensor.dtype(), tensor.shape(), xxh3_64(tensor.bytes())).hash(&mut hasher);
        }
        Op::Compute(op) => (&op.kind, &op.expr).hash(&mut hasher),
        Op::Host(op) => format!("{op:?}").hash(&mut hasher),
        Op::Input { .. } | Op::If(_) | Op::Loop(_) => return None,
    }
    for ValueId { node, out } in graph.operands(node) {
        (node.index(), out).hash(&mut hasher);
    }
    Some(hasher.finish())
}

/// By bits: equal floats may differ in sign, and NaN is equal to itself.
fn equal(graph: &Graph, a: NodeId, b: NodeId) -> bool {
    match (&graph.node(a).op, &graph.node(b).op) {
        (Op::Const(a), Op::Const(b)) => {
            a.dtype() == b.dtype() && a.shape() == b.shape() && a.bytes() == b.bytes()
        }
        (op_a, op_b) => op_a == op_b && graph.operands(a) == graph.operands(b),
    }
}

fn merge(graph: &mut Graph, first: NodeId, again: NodeId) {
    let values: Vec<ValueId> = graph.values(again).collect();
    for value in values {
        graph.replace(value, ValueId { node: first, out: value.out });
    }
    if graph.node(again).op.is_check() {
        graph.remove(again);
    }
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;
    use ansc_runtime::host::HostOp;

    use super::*;
    use crate::compute::TensorType;
    use crate::expr::BinOp;
    use crate::passes::testing::{Builder, check};

    #[test]
    fn equal_nodes_merge_and_different_ones_do_not() {
        let mut b = Builder::new(5);
        let x = b.input(&[3]);
        let (one, again) = (b.filled(&[3], 1.0), b.filled(&[3], 1.0));
        let (p, q) = (b.binary(BinOp::Add, x, one), b.binary(BinOp::Add, x, again));
        let r = b.binary(BinOp::Sub, x, one);
        let s = b.binary(BinOp::Mul, p, q);
        let y = b.binary(BinOp::Mul, s, r);
        let after = check(b.finish(&[y]), run);
        // x, the constant, one sum, one difference, two products.
        assert_eq!(after.len(), 6);
    }

    #[test]
    fn a_check_is_made_once_and_stays() {
        let mut b = Builder::new(5);
        let x = b.input(&[3]);
        let ty = TensorType::new(DType::I64, [4]);
        let indices = b.graph.add_input("indices", ty, None);
        for extent in [7, 7, 8] {
            let check = Op::Host(HostOp::CheckIndices { extents: vec![extent] });
            b.graph.add("lookup", check, &[indices], vec![]);
        }
        let mut graph = b.finish(&[x]);
        assert!(run(&mut graph, &Options::default()).unwrap());
        assert!(!run(&mut graph, &Options::default()).unwrap());
        crate::passes::dce::run(&mut graph, &Options::default()).unwrap();
        let checks = graph.node_ids().into_iter().filter(|n| graph.node(*n).op.is_check());
        assert_eq!(checks.count(), 2);
    }

    #[test]
    fn zeros_of_either_sign_stay_apart() {
        let mut b = Builder::new(5);
        let (p, n) = (b.filled(&[1], 0.0), b.filled(&[1], -0.0));
        let mut graph = b.finish(&[p, n]);
        assert!(!run(&mut graph, &Options::default()).unwrap());
    }
}
