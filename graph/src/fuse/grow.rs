//! Growing groups along the post-dominator tree.
//!
//! | group that wants to join | its post-dominator | what may lie between |
//! |---|---|---|
//! | made of constants alone, at most injective (phase 1) | a product, or the like of it, its only reader | nothing |
//! | product or reduction (phase 1) | reached by elementwise edges only, at most broadcast | at most broadcast |
//! | at most broadcast (phase 1) | at most broadcast, injective, a reduction, or a group with an anchor | at most injective |
//! | convolution or matrix product with what joined it (phase 2) | a transpose, its only reader | nothing |
//! | injective (phase 3) | at most injective | at most injective |
//!
//! These are Relay's rules, with six additions. What is made of constants alone (they would be
//! larger than what they are made of, or they would have been folded) joins the product that alone
//! reads it: a weight of few bits is unpacked where it is multiplied. A product is stored in the
//! order of axes that its reader wants. A reduction may take the elementwise chain that follows it,
//! as products do. What is expensive (an `exp`, a division) does not join what would evaluate it
//! for more than a few readers. What picks elements (every second one, say) does not join a
//! transpose: either by itself moves whole rows, both together single elements. And reshapes are
//! taken out again from the borders of groups.

use std::collections::BTreeSet;

use super::Options;
use super::dominators::{Dominator, post_dominators};
use super::pattern::{
    Pattern, edge_pattern, is_expensive, is_product, pattern, picks, readers, turns,
};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Kind;

/// Readers of one element from which on something expensive is not evaluated for each of them.
const MAX_READERS: usize = 4;

/// A set of nodes, in a union-find forest.
#[derive(Clone, Debug)]
struct Set {
    parent: Option<usize>,
    pattern: Pattern,
    nodes: usize,
    expensive: bool,
    /// Whether an operator reads places that are no fixed step apart from each other.
    picks: bool,
    /// Whether it has a transpose that changes the innermost axis of much data.
    turns: bool,
}

struct Grower<'a> {
    graph: &'a Graph,
    order: &'a [NodeId],
    /// Position in `order`, by index of the node.
    position: Vec<usize>,
    /// Positions of the readers of each node.
    readers: Vec<Vec<usize>>,
    tree: Vec<Dominator>,
    sets: Vec<Set>,
    /// Nodes that are made of constants alone, element by element.
    made: Vec<bool>,
    options: Options,
}

/// For each node of the topological `order`, an identifier of its group.
pub(super) fn grow(graph: &Graph, order: &[NodeId], options: Options) -> Vec<usize> {
    let mut grower = Grower::new(graph, order, options);
    for phase in [Phase::Anchored, Phase::Stored, Phase::Injective] {
        for node in 0..order.len() {
            grower.try_join(node, phase);
        }
    }
    grower.without_border_reshapes()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Anchored,
    /// Products in the order of axes that their only reader wants.
    Stored,
    Injective,
}

impl Grower<'_> {
    fn new<'a>(graph: &'a Graph, order: &'a [NodeId], options: Options) -> Grower<'a> {
        let mut position = vec![0; order.iter().map(|n| n.index() + 1).max().unwrap_or(0)];
        order.iter().enumerate().for_each(|(p, n)| position[n.index()] = p);
        let edges: Vec<Option<Vec<(usize, Pattern)>>> = order
            .iter()
            .map(|&node| {
                let mut edges = Vec::new();
                for value in graph.values(node) {
                    if graph.is_output(value) {
                        return None;
                    }
                    for (user, slot) in graph.users(value) {
                        let pattern = edge_pattern(graph, user, slot as usize);
                        edges.push((position[user.index()], pattern));
                    }
                }
                Some(edges)
            })
            .collect();
        let set = |node: &NodeId| {
            let op = graph.compute_of(*node);
            Set {
                parent: None,
                pattern: op.map_or(Pattern::Opaque, pattern),
                nodes: 1,
                expensive: op.is_some_and(is_expensive),
                picks: op.is_some_and(picks),
                turns: op.is_some_and(turns),
            }
        };
        Grower {
            graph,
            order,
            position,
            tree: post_dominators(&edges),
            readers: edges
                .into_iter()
                .map(|e| e.into_iter().flatten().map(|(reader, _)| reader).collect())
                .collect(),
            sets: order.iter().map(set).collect(),
            made: made_of_constants(graph, order),
            options,
        }
    }

    fn root(&self, mut node: usize) -> usize {
        while let Some(parent) = self.sets[node].parent {
            node = parent;
        }
        node
    }

    fn set(&self, node: usize) -> &Set {
        &self.sets[self.root(node)]
    }

    /// Joins `node` with its post-dominator if the rules of the phase permit.
    fn try_join(&mut self, node: usize, phase: Phase) {
        let Dominator { parent: Some(sink), pattern: path, .. } = self.tree[node] else { return };
        if phase == Phase::Anchored && self.is_unpacked_for(node, sink) {
            self.join_few(&[node], sink);
            return;
        }
        let own = self.set(node).pattern;
        let permitted = match own {
            Pattern::OutFusable if phase == Phase::Stored => self.is_stored_by(node, sink),
            Pattern::OutFusable | Pattern::Reduction => {
                phase == Phase::Anchored && path == Pattern::Elementwise
            }
            Pattern::Elementwise | Pattern::Broadcast => path <= Pattern::Reduction,
            Pattern::Injective => phase == Phase::Injective,
            Pattern::Opaque => false,
        };
        let is_torn = self.set(node).picks && self.set(sink).turns;
        if !permitted || is_torn || self.root(node) == self.root(sink) {
            return;
        }
        let between = match (own, phase) {
            (Pattern::OutFusable, Phase::Stored) => Some(Vec::new()),
            _ => self.path(node, sink, own),
        };
        if let Some(between) = between {
            self.join_few(&[between, vec![node]].concat(), sink);
        }
    }

    /// Joins all of the nodes with `sink`, unless the group would be too large.
    fn join_few(&mut self, nodes: &[usize], sink: usize) {
        let mut roots: Vec<usize> = nodes.iter().chain([&sink]).map(|&n| self.root(n)).collect();
        roots.sort_unstable();
        roots.dedup();
        let all: usize = roots.iter().map(|&r| self.sets[r].nodes).sum();
        if all <= self.options.max_nodes {
            nodes.iter().for_each(|&n| self.join(n, sink));
        }
    }

    /// Whether `node` makes a weight of constants, and `sink` is its only reader: a product, or a
    /// step on the way to one.
    fn is_unpacked_for(&self, node: usize, sink: usize) -> bool {
        let op = self.graph.compute_of(self.order[sink]);
        let is_product = op.is_some_and(|op| op.kind == Kind::MatMul);
        self.made[node]
            && self.readers[node] == [sink]
            && (is_product || self.made[sink] && self.leads_to_product(sink))
    }

    fn leads_to_product(&self, node: usize) -> bool {
        matches!(self.readers[node][..], [reader] if self.is_unpacked_for(node, reader))
    }

    /// Whether `sink` does nothing but transpose the product that a group ends with, and nothing
    /// else reads it.
    fn is_stored_by(&self, node: usize, sink: usize) -> bool {
        let op = |p: usize| self.graph.compute_of(self.order[p]);
        let anchor = |p: usize| op(p).is_some_and(is_product);
        let root = self.root(node);
        self.readers[node] == [sink]
            && op(sink).is_some_and(|op| matches!(op.kind, Kind::Transpose(_)))
            && self.sets[self.root(sink)].nodes == 1
            && (0..self.order.len()).any(|p| self.root(p) == root && anchor(p))
    }

    /// The nodes between `node` and its post-dominator, if all of them and the end may be joined by
    /// a group of pattern `own`.
    fn path(&self, node: usize, sink: usize, own: Pattern) -> Option<Vec<usize>> {
        if self.is_recomputed(node) {
            return None;
        }
        let mut seen = Vec::new();
        let mut open = self.readers[node].clone();
        while let Some(next) = open.pop() {
            if seen.contains(&next) {
                continue;
            }
            let kind = self.set(next).pattern;
            if next == sink {
                if !ends(own, kind) {
                    return None;
                }
            } else if !between(own, kind) || self.is_recomputed(next) {
                return None;
            } else {
                open.extend(&self.readers[next]);
            }
            seen.push(next);
        }
        seen.retain(|&n| n != sink);
        Some(seen)
    }

    /// Whether joining the readers of `node` would evaluate something expensive over and over.
    fn is_recomputed(&self, node: usize) -> bool {
        let set = self.set(node);
        let cheap = !set.expensive || set.pattern >= Pattern::Reduction;
        !cheap && {
            let id = self.order[node];
            self.graph.values(id).flat_map(|v| self.graph.users(v)).any(|(user, slot)| {
                let op = self.graph.compute_of(user);
                op.is_some_and(|op| readers(op, slot as usize) > MAX_READERS)
            })
        }
    }

    fn join(&mut self, child: usize, parent: usize) {
        let (child, parent) = (self.root(child), self.root(parent));
        if child == parent {
            return;
        }
        let Set { pattern, nodes, expensive, picks, turns, .. } = self.sets[child].clone();
        self.sets[child].parent = Some(parent);
        let into = &mut self.sets[parent];
        into.pattern = into.pattern.max(pattern);
        into.nodes += nodes;
        into.expensive |= expensive;
        into.picks |= picks;
        into.turns |= turns;
    }

    /// The groups, with a group of its own for each reshape at the border of one.
    fn without_border_reshapes(&self) -> Vec<usize> {
        let n = self.order.len();
        let mut groups: Vec<usize> = (0..n).map(|p| self.root(p)).collect();
        let op = |p: usize| self.graph.compute_of(self.order[p]);
        let reshapes: Vec<usize> =
            (0..n).filter(|&p| op(p).is_some_and(|op| op.kind == Kind::Reshape)).collect();
        // Ends from the back, then starts from the front: what one leaves at the border comes next.
        for &p in reshapes.iter().rev() {
            if self.readers[p].iter().all(|&r| groups[r] != groups[p]) {
                groups[p] = n + p;
            }
        }
        for &p in &reshapes {
            let source = self.graph.operands(self.order[p])[0].node;
            if groups[self.position[source.index()]] != groups[p] {
                groups[p] = n + p;
            }
        }
        groups
    }
}

fn made_of_constants(graph: &Graph, order: &[NodeId]) -> Vec<bool> {
    let mut made = vec![false; order.len()];
    let mut known: BTreeSet<NodeId> = BTreeSet::new();
    for (place, &node) in order.iter().enumerate() {
        let Some(op) = graph.compute_of(node) else { continue };
        let operands = graph.operands(node);
        let is_known = |v: &ValueId| graph.const_of(*v).is_some() || known.contains(&v.node);
        made[place] = pattern(op) <= Pattern::Injective
            && !is_expensive(op)
            && !operands.is_empty()
            && operands.iter().all(is_known);
        known.extend(made[place].then_some(node));
    }
    made
}

/// Whether a group of pattern `own` may end in one of pattern `sink`.
fn ends(own: Pattern, sink: Pattern) -> bool {
    match own {
        Pattern::OutFusable | Pattern::Reduction => sink <= Pattern::Broadcast,
        Pattern::Elementwise | Pattern::Broadcast => sink <= Pattern::OutFusable,
        _ => sink <= Pattern::Injective,
    }
}

/// Whether a group of pattern `own` may have one of pattern `kind` between itself and its end.
fn between(own: Pattern, kind: Pattern) -> bool {
    match own {
        Pattern::OutFusable | Pattern::Reduction => kind <= Pattern::Broadcast,
        _ => kind <= Pattern::Injective,
    }
}
