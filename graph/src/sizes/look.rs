//! Differences between the graphs of a model at several sizes.
//!
//! In: the graph at the largest sizes, then those at others. Out: for each node the numbers that
//! are not the same everywhere, for a constant its tensors, and for control flow what differs in
//! its bodies; or the first node that differs in more than that.
//!
//! ```text
//! y: f32[8] = x[i0 * 2 + 8]   and   y: f32[5] = x[i0 * 2 + 5]   ->   8 5 | 2 2 | 8 5
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use ansc_runtime::Tensor;
use ansc_runtime::host::HostOp;

use super::Unfit;
use super::beyond;
use super::constants::is_hopeless;
use super::counts;
use super::numbers::{Like, extents, numbers, numbers_like};
use crate::compute::Compute;
use crate::graph::{Graph, Node, NodeId, ValueId};
use crate::op::{LoopOp, Op};
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
    /// Its numbers at the largest sizes: those of its expression, or the extents of its results and
    /// the trips of a loop.
    pub(super) first: Vec<Scalar>,
    /// The values of the numbers that differ, at all sizes at which they are known.
    pub(super) varying: BTreeMap<usize, Vec<Option<Scalar>>>,
    /// The tensors of a constant that is not the same at all sizes.
    pub(super) tensors: Option<Vec<Arc<Tensor>>>,
    /// Expressions of another form, each with the position of its sizes.
    pub(super) others: Vec<(usize, Arc<Compute>)>,
    /// The branches of a conditional, or the body of a loop.
    pub(super) bodies: Vec<Look>,
}

/// The numbers and parts that another graph has in the place of a node.
pub(super) struct Found {
    numbers: Vec<Option<Scalar>>,
    /// Its expression, if that has another form.
    other: Option<Arc<Compute>>,
    /// The tensor of a constant.
    tensor: Option<Arc<Tensor>>,
    bodies: Vec<Vec<Found>>,
}

impl Found {
    fn new(like: Like, op: &Op, bodies: Vec<Vec<Found>>) -> Found {
        let other = match op {
            Op::Compute(op) if !like.same_form => Some(op.expr.clone()),
            _ => None,
        };
        let tensor = if let Op::Const(tensor) = op { Some(tensor.clone()) } else { None };
        Found { numbers: like.numbers, other, tensor, bodies }
    }
}

impl Look {
    /// Begins with a graph that is [`cleaned`].
    pub(super) fn new(graph: Graph) -> Look {
        let seen = |node| Seen {
            node,
            first: numbers_of(graph.node(node)),
            varying: BTreeMap::new(),
            tensors: None,
            others: vec![],
            bodies: bodies(&graph.node(node).op).into_iter().cloned().map(Look::new).collect(),
        };
        Look { nodes: graph.topological().into_iter().map(seen).collect(), graph, count: 1 }
    }

    /// Finds the places of this graph's nodes in one more graph, which is [`cleaned`], too.
    pub(super) fn find(&self, graph: &Graph) -> Result<Vec<Found>, Unfit> {
        let order = graph.topological();
        let own = positions(&self.graph, self.nodes.iter().map(|seen| seen.node));
        let others = positions(graph, order.iter().copied());
        let each = self.nodes.iter().zip(&order).map(|(seen, &node)| {
            let (a, b) = (self.graph.node(seen.node), graph.node(node));
            let reads = |graph: &Graph, node, at: &[usize]| {
                let operands = graph.operands(node).into_iter();
                operands.map(|v| (at[v.node.index()], v.out)).collect::<Vec<_>>()
            };
            let alike = reads(&self.graph, seen.node, &own) == reads(graph, node, &others);
            let like = like(a, b).filter(|_| alike && same_results(a, b));
            let Some(like) = like else {
                let reason = "it is computed in another way for some of the sizes".into();
                return Err(Unfit { node: a.name.clone(), reason });
            };
            let bodies = seen.bodies.iter().zip(bodies(&b.op)).map(|(look, body)| look.find(body));
            Ok(Found::new(like, &b.op, bodies.collect::<Result<_, Unfit>>()?))
        });
        let found = each.collect::<Result<Vec<Found>, Unfit>>()?;
        let ends = ends(&self.graph, &own) == ends(graph, &others);
        if order.len() != self.nodes.len() || !ends {
            let last = self
                .nodes
                .last()
                .map_or(String::new(), |seen| self.graph.node(seen.node).name.clone());
            let reason = "the model consists of other nodes for some of the sizes".into();
            return Err(Unfit { node: last, reason });
        }
        Ok(found)
    }

    /// Notes what was found in one more graph.
    pub(super) fn add(&mut self, found: Vec<Found>) {
        for (seen, found) in self.nodes.iter_mut().zip(found) {
            seen.note(&self.graph.node(seen.node).op, found, self.count);
        }
        self.count += 1;
    }

    /// An error for the first constant that can follow no rule, whatever it is at other sizes.
    pub(super) fn check_constants(&self) -> Result<(), Unfit> {
        let is_bad = |seen: &&Seen| seen.tensors.as_ref().is_some_and(|all| is_hopeless(all));
        if let Some(seen) = self.nodes.iter().find(is_bad) {
            let reason = "a constant is another one at each size".into();
            return Err(Unfit { node: self.graph.node(seen.node).name.clone(), reason });
        }
        Ok(())
    }

    /// How many outputs are the model's; the others are counts.
    pub(super) fn outputs(&self) -> usize {
        self.graph.outputs.len() - counts::exposed(&self.graph)
    }

    /// Whether anything is not the same at all sizes.
    fn varies(&self) -> bool {
        self.nodes.iter().any(Seen::varies)
    }
}

impl Seen {
    /// Notes what differs between the node at the largest sizes and the same one after `count`
    /// others.
    fn note(&mut self, first: &Op, found: Found, count: usize) {
        self.others.extend(found.other.map(|expr| (count, expr)));
        for (k, (a, b)) in self.first.iter().zip(found.numbers).enumerate() {
            let known = self.varying.contains_key(&k);
            if known || Some(*a) != b {
                self.varying.entry(k).or_insert_with(|| vec![Some(*a); count]).push(b);
            }
        }
        if let (Op::Const(a), Some(b)) = (first, found.tensor) {
            let same = Arc::ptr_eq(a, &b) || *a == b;
            if self.tensors.is_some() || !same {
                self.tensors.get_or_insert_with(|| vec![a.clone(); count]).push(b);
            }
        }
        for (look, body) in self.bodies.iter_mut().zip(found.bodies) {
            look.add(body);
        }
    }

    /// Whether it is not the same at all sizes.
    pub(super) fn varies(&self) -> bool {
        let own = !self.varying.is_empty() || self.tensors.is_some() || !self.others.is_empty();
        own || self.bodies.iter().any(Look::varies)
    }
}

/// The branches of a conditional, or the body of a loop.
fn bodies(op: &Op) -> Vec<&Graph> {
    match op {
        Op::If(op) => vec![&op.then_branch, &op.else_branch],
        Op::Loop(op) => vec![&op.body],
        _ => vec![],
    }
}

/// As [`bodies`], to be changed.
pub(super) fn bodies_mut(op: &mut Op) -> Vec<&mut Graph> {
    match op {
        Op::If(op) => vec![&mut op.then_branch, &mut op.else_branch],
        Op::Loop(op) => vec![&mut op.body],
        _ => vec![],
    }
}

/// Without nodes that compute shapes alone, and with the counts as outputs.
pub(super) fn cleaned(mut graph: Graph) -> Graph {
    counts::expose(&mut graph);
    clean(&mut graph);
    graph
}

fn clean(graph: &mut Graph) {
    for node in graph.node_ids() {
        bodies_mut(&mut graph.node_mut(node).op).into_iter().for_each(clean);
    }
    while dce::run(graph, &crate::passes::Options::default()).unwrap_or(false) {}
}

/// Where each node of the graph is in an order, by its id.
fn positions(graph: &Graph, order: impl Iterator<Item = NodeId>) -> Vec<usize> {
    let mut positions = vec![usize::MAX; graph.bound()];
    order.enumerate().for_each(|(at, node)| positions[node.index()] = at);
    positions
}

/// Inputs and outputs, by the positions of their nodes.
fn ends(graph: &Graph, at: &[usize]) -> (Vec<usize>, Vec<(String, usize, u32)>) {
    let output = |(name, v): &(String, ValueId)| (name.clone(), at[v.node.index()], v.out);
    let inputs = graph.inputs().iter().map(|node| at[node.index()]);
    (inputs.collect(), graph.outputs.iter().map(output).collect())
}

fn numbers_of(node: &Node) -> Vec<Scalar> {
    if let Op::Compute(op) = &node.op {
        return if beyond(&op.kind).is_some() { extents(&op.expr) } else { numbers(&op.expr) };
    }
    let extents = node.outputs.iter().flat_map(|value| &value.ty.shape);
    let more: Vec<i64> = match &node.op {
        Op::Loop(op) => vec![op.max_trip as i64],
        Op::Host(HostOp::CheckIndices { extents }) => extents.iter().map(|&e| e as i64).collect(),
        Op::Host(HostOp::TopK { k, .. }) => vec![*k as i64],
        // In a graph of one size they are constants.
        Op::Host(HostOp::Append { at, count, .. }) => {
            [at, count].into_iter().filter_map(|extent| extent.at(&[])).collect()
        }
        _ => vec![],
    };
    extents.map(|&e| e as i64).chain(more).map(Scalar::index).collect()
}

fn same_results(a: &Node, b: &Node) -> bool {
    let types = |node: &Node| {
        let each = node.outputs.iter().map(|v| (v.ty.dtype, v.ty.rank(), v.dynamic));
        each.collect::<Vec<_>>()
    };
    types(a) == types(b)
}

/// The numbers of `other` in the order of `node`, if the two do the same but for numbers and what
/// is in bodies.
pub(super) fn like(node: &Node, other: &Node) -> Option<Like> {
    let same = match (&node.op, &other.op) {
        // The kind tells the rest of the expression.
        (Op::Compute(a), Op::Compute(b)) if a.kind == b.kind && beyond(&a.kind).is_some() => true,
        (Op::Compute(a), Op::Compute(b)) if beyond(&a.kind).is_none() => {
            return numbers_like(&a.expr, &b.expr);
        }
        (Op::Const(_), Op::Const(_)) | (Op::If(_), Op::If(_)) => true,
        (Op::Input { bound: a }, Op::Input { bound: b }) => a == b,
        (Op::Loop(a), Op::Loop(b)) => loops_alike(a, b),
        (
            Op::Host(HostOp::CheckIndices { extents: a }),
            Op::Host(HostOp::CheckIndices { extents: b }),
        ) => a.len() == b.len(),
        (
            Op::Host(HostOp::Append { axis: a, each, .. }),
            Op::Host(HostOp::Append { axis: b, each: other, .. }),
        ) => (a, each) == (b, other),
        (Op::Host(a @ HostOp::TopK { .. }), Op::Host(b @ HostOp::TopK { .. })) => {
            let same = |op: &HostOp| match *op {
                HostOp::TopK { axis, largest, sorted, .. } => Some((axis, largest, sorted)),
                _ => None,
            };
            same(a) == same(b)
        }
        (Op::Host(HostOp::Spread { count: a, .. }), Op::Host(HostOp::Spread { count: b, .. })) => {
            a == b
        }
        (a, b) => a == b,
    };
    let numbers = || numbers_of(other).into_iter().map(Some).collect();
    same.then(|| Like { numbers: numbers(), same_form: true })
}

fn loops_alike(a: &LoopOp, b: &LoopOp) -> bool {
    let of = |op: &LoopOp| (op.has_trip, op.has_condition, op.carried);
    of(a) == of(b) && a.scan_inputs == b.scan_inputs && a.scan_outputs == b.scan_outputs
}
