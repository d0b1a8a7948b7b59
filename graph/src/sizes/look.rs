//! What differs between the graphs of a model at several sizes.
//!
//! In: the graph at the largest sizes, then those at others. Out: for each node the numbers that
//! are not the same everywhere, and for a constant its tensors; or the first node that differs in
//! more than that.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ansc_runtime::Tensor;

use super::Unfit;
use super::beyond;
use super::numbers::{extents, numbers, numbers_like};
use crate::graph::{Graph, Node, NodeId};
use crate::op::Op;
use crate::passes::dce;
use crate::scalar::Scalar;

/// Graphs that were compared.
pub(super) struct Look {
    /// The one at the largest sizes.
    pub(super) graph: Graph,
    pub(super) nodes: Vec<Seen>,
    /// How many graphs there were.
    count: usize,
}

/// A node at all sizes.
pub(super) struct Seen {
    pub(super) node: NodeId,
    /// Its numbers at the largest sizes: those of its expression, or the extents of its results.
    first: Vec<Scalar>,
    /// Of the numbers that differ, their values at all sizes.
    pub(super) varying: BTreeMap<usize, Vec<Scalar>>,
    /// The tensors of a constant that is not the same at all sizes.
    pub(super) tensors: Option<Vec<Arc<Tensor>>>,
}

impl Look {
    pub(super) fn new(mut graph: Graph) -> Look {
        clean(&mut graph);
        let seen = |node| Seen {
            node,
            first: numbers_of(graph.node(node)),
            varying: BTreeMap::new(),
            tensors: None,
        };
        Look { nodes: graph.topological().into_iter().map(seen).collect(), graph, count: 1 }
    }

    /// Compares one more graph.
    pub(super) fn add(&mut self, mut graph: Graph) -> Result<(), Unfit> {
        clean(&mut graph);
        let order = graph.topological();
        let own = positions(self.nodes.iter().map(|seen| seen.node));
        let others = positions(order.iter().copied());
        for (seen, &node) in self.nodes.iter_mut().zip(&order) {
            let (a, b) = (self.graph.node(seen.node), graph.node(node));
            let reads = |graph: &Graph, node, at: &HashMap<NodeId, usize>| {
                let operands = graph.operands(node).into_iter();
                operands.map(|v| (at[&v.node], v.out)).collect::<Vec<_>>()
            };
            let alike = reads(&self.graph, seen.node, &own) == reads(&graph, node, &others);
            let numbers = numbers_like_of(a, b).filter(|_| alike && same_results(a, b));
            let Some(numbers) = numbers else {
                let reason = "it is computed in another way for some of the sizes".into();
                return Err(Unfit { node: a.name.clone(), reason });
            };
            seen.note(a, b, numbers, self.count);
        }
        let outputs = |graph: &Graph, at: &HashMap<NodeId, usize>| {
            let of = |(name, v): &(String, crate::ValueId)| (name.clone(), at[&v.node], v.out);
            graph.outputs.iter().map(of).collect::<Vec<_>>()
        };
        let ends = outputs(&self.graph, &own) == outputs(&graph, &others);
        if order.len() != self.nodes.len() || !ends {
            let last = self
                .nodes
                .last()
                .map_or(String::new(), |seen| self.graph.node(seen.node).name.clone());
            let reason = "the model consists of other nodes for some of the sizes".into();
            return Err(Unfit { node: last, reason });
        }
        self.count += 1;
        Ok(())
    }
}

impl Seen {
    /// Notes what differs between the node at the largest sizes and the same one after `count`
    /// others.
    fn note(&mut self, first: &Node, other: &Node, numbers: Vec<Scalar>, count: usize) {
        for (k, (a, b)) in self.first.iter().zip(numbers).enumerate() {
            let known = self.varying.contains_key(&k);
            if known || *a != b {
                self.varying.entry(k).or_insert_with(|| vec![*a; count]).push(b);
            }
        }
        if let (Op::Const(a), Op::Const(b)) = (&first.op, &other.op) {
            let same = Arc::ptr_eq(a, b) || a == b;
            if self.tensors.is_some() || !same {
                self.tensors.get_or_insert_with(|| vec![a.clone(); count]).push(b.clone());
            }
        }
    }
}

/// Without nodes that compute shapes alone.
fn clean(graph: &mut Graph) {
    while dce::run(graph, &crate::passes::Options::default()).unwrap_or(false) {}
}

fn positions(nodes: impl Iterator<Item = NodeId>) -> HashMap<NodeId, usize> {
    nodes.enumerate().map(|(at, node)| (node, at)).collect()
}

fn numbers_of(node: &Node) -> Vec<Scalar> {
    if let Op::Compute(op) = &node.op {
        return if beyond(&op.kind).is_some() { extents(&op.expr) } else { numbers(&op.expr) };
    }
    let extents = node.outputs.iter().flat_map(|value| &value.ty.shape);
    extents.map(|&e| Scalar::index(e as i64)).collect()
}

fn same_results(a: &Node, b: &Node) -> bool {
    let types = |node: &Node| {
        let each = node.outputs.iter().map(|v| (v.ty.dtype, v.ty.rank(), v.dynamic));
        each.collect::<Vec<_>>()
    };
    types(a) == types(b)
}

/// The numbers of `other` in the order of `node`, if the two do the same but for numbers.
fn numbers_like_of(node: &Node, other: &Node) -> Option<Vec<Scalar>> {
    let same = match (&node.op, &other.op) {
        // The kind tells the rest of the expression.
        (Op::Compute(a), Op::Compute(b)) if a.kind == b.kind && beyond(&a.kind).is_some() => true,
        (Op::Compute(a), Op::Compute(b)) if beyond(&a.kind).is_none() => {
            return numbers_like(&a.expr, &b.expr);
        }
        (Op::Const(_), Op::Const(_)) => true,
        (Op::Input { bound: a }, Op::Input { bound: b }) => a == b,
        (a, b) => a == b,
    };
    same.then(|| numbers_of(other))
}
