//! Operator fusion by the rules of Relay: which operators become one kernel.
//!
//! ```text
//! conv -> add bias -> max 0 -> reshape -> matmul
//! ->  [conv, add, max], a view, [matmul]
//! ```
//!
//! Every operator has a [`Pattern`]. An operator may join its immediate post-dominator (the first
//! operator that all paths from it to the outputs pass), together with all that lies between, where
//! patterns permit: convolutions, products and reductions take the elementwise chain that follows
//! them; elementwise operators join anything up to a reduction; in a second phase injective ones
//! join injective ones. See Roesch et al., "Relay", and `grow` for the rules and what is added to
//! them here.
//!
//! A reshape at a border of a group is taken out of it again: between buffers it is a view, which
//! costs nothing.
//!
//! A value that is read as it is and rounded to fewer bits is stored both ways by the kernel that
//! makes it (`rounded`). Values between the maps of a kernel are not rounded to half floats
//! (`excess`).
//!
//! The result covers every node of the graph exactly once, in an order in which groups find their
//! inputs computed. A group gives one value: that of its last node; except for a group of a single
//! node that has several results, and for one that gives its value rounded as well.

mod chains;
mod dominators;
mod excess;
mod grow;
mod merge;
mod pattern;
mod rounded;

use std::collections::BTreeMap;

use ansc_runtime::DType;

use crate::compute::Compute;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Kind;
pub use pattern::{Pattern, pattern};

/// Operators that become one kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// The kinds of its nodes, and its position: `conv_map_7`. Unique in the graph.
    pub name: String,
    /// In topological order; the last one gives the result. Behind it are those that round it.
    pub nodes: Vec<NodeId>,
    /// The values that the group reads, by input of `compute`.
    pub inputs: Vec<ValueId>,
    /// The values that it gives, by output of `compute`.
    pub outputs: Vec<ValueId>,
    /// All expressions as one. Constants of one element are part of it.
    pub compute: Compute,
    /// The operator that dominates the cost: a product or reduction, at most one in a group.
    pub anchor: Option<Kind>,
    /// The only node is a reshape: the output can be the input's buffer.
    pub is_view: bool,
}

/// A step of the schedule of a graph.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// Nodes that become one kernel.
    Group(Box<Group>),
    /// A node that is not a tensor expression: an input, a constant, a host operator, control flow.
    Node(NodeId),
}

/// Bounds of fusion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Nodes of a group at most.
    pub max_nodes: usize,
    /// Products of these types may be joined by rows (`chains`).
    pub chains: &'static [DType],
}

impl Default for Options {
    fn default() -> Options {
        Options { max_nodes: 32, chains: &[DType::F32] }
    }
}

/// The groups of the graph in executable order.
pub fn fuse(graph: &Graph) -> Vec<Group> {
    let groups = |item| match item {
        Item::Group(group) => Some(*group),
        Item::Node(_) => None,
    };
    schedule(graph).into_iter().filter_map(groups).collect()
}

/// All nodes of the graph in executable order, those with expressions in groups.
pub fn schedule(graph: &Graph) -> Vec<Item> {
    schedule_with(graph, Options::default())
}

/// As [`schedule`], within other bounds.
pub fn schedule_with(graph: &Graph, options: Options) -> Vec<Item> {
    let mut members: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
    let order = graph.topological();
    let group_of = grow::grow(graph, &order, options);
    for (position, &node) in order.iter().enumerate() {
        members.entry(group_of[position]).or_default().push(node);
    }
    chains::join(graph, &mut members, options.chains);
    let mut roundings = rounded::take(graph, &mut members);
    let last: BTreeMap<NodeId, usize> =
        members.iter().filter_map(|(group, nodes)| Some((*nodes.last()?, *group))).collect();
    let mut items = Vec::with_capacity(members.len());
    for (position, &node) in order.iter().enumerate() {
        // A group's inputs are all computed when its last node's turn comes.
        match (graph.compute_of(node), last.get(&node)) {
            (None, _) => items.push(Item::Node(node)),
            (Some(_), Some(of)) => {
                let roundings = roundings.remove(&node).unwrap_or_default();
                items.push(Item::Group(Box::new(group(graph, &members[of], &roundings, position))));
            }
            (Some(_), None) => {}
        }
    }
    items
}

/// The group of `nodes`; `roundings` read what the last of them gives.
fn group(graph: &Graph, nodes: &[NodeId], roundings: &[NodeId], position: usize) -> Group {
    let kinds: Vec<&Kind> =
        nodes.iter().filter_map(|n| graph.compute_of(*n)).map(|op| &op.kind).collect();
    let results: Vec<NodeId> = nodes.last().into_iter().chain(roundings).copied().collect();
    let nodes = [nodes, roundings].concat();
    let (mut compute, inputs, outputs) = merge::merge(graph, &nodes, &results);
    excess::keep(&mut compute);
    Group {
        name: format!("{}_{position}", name(&kinds)),
        inputs,
        outputs,
        compute,
        anchor: anchor(graph, &nodes),
        is_view: kinds == [&Kind::Reshape],
        nodes,
    }
}

fn anchor(graph: &Graph, nodes: &[NodeId]) -> Option<Kind> {
    let ops = nodes.iter().filter_map(|n| graph.compute_of(*n));
    ops.filter(|op| pattern(op) >= Pattern::Reduction).map(|op| op.kind.clone()).next()
}

/// The kinds in order, repeated ones once: `conv_map`.
fn name(kinds: &[&Kind]) -> String {
    let mut words: Vec<String> = kinds.iter().map(|kind| word(kind)).collect();
    words.dedup();
    words.truncate(4);
    words.join("_")
}

fn word(kind: &Kind) -> String {
    match kind {
        Kind::Map => "map".into(),
        Kind::Reshape => "reshape".into(),
        Kind::Transpose(_) => "transpose".into(),
        Kind::Conv(_) => "conv".into(),
        Kind::MatMul => "matmul".into(),
        Kind::Pool(_) => "pool".into(),
        Kind::Reduce { .. } => "reduce".into(),
        Kind::Concat { .. } => "concat".into(),
        Kind::Pad => "pad".into(),
        Kind::Slice => "slice".into(),
        Kind::Softmax { .. } => "softmax".into(),
        Kind::Other(name) => {
            name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
        }
    }
}

#[cfg(test)]
mod tests;
