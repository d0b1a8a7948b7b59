//! The model graph: nodes are operators, edges are tensors. A branch or a body is a graph in an
//! operator, so operators belong to this module.

pub mod op;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ansc_runtime::Tensor;
use petgraph::Direction;
use petgraph::stable_graph::{NodeIndex, StableDiGraph};
use petgraph::visit::{EdgeRef, NodeIndexable};

use crate::compute::{Compute, TensorType};
use op::{ComputeOp, Kind, Op};

/// A node's id, which stays the same until the node is removed.
pub type NodeId = NodeIndex<u32>;

/// One output of one node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ValueId {
    /// The node that gives the value.
    pub node: NodeId,
    /// Which of the node's outputs it is, from 0 on.
    pub out: u32,
}

/// A node's name is the ONNX node's, kept for error messages and profiles.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// For messages and profiles only; it need not be unique.
    pub name: String,
    /// The work of the node.
    pub op: Op,
    /// The values that it gives, in order.
    pub outputs: Vec<Value>,
}

/// A tensor that a node gives. `dynamic` marks one whose actual size only the data decides: `ty`
/// then holds the upper bound, and only graph outputs and host operators may read it.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// The tensor's name in the model, or one that a pass made of it.
    pub name: String,
    /// Its type; where the data decides the size, the largest one.
    pub ty: TensorType,
    /// Whether only the data decides the size.
    pub dynamic: bool,
}

/// The edge: output `out` of the source is input `slot` of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The output of the source.
    pub out: u32,
    /// The input of the target.
    pub slot: u32,
}

/// A model, or a branch or body inside of one: a graph without cycles.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The name of the model's graph, for texts.
    pub name: String,
    dag: StableDiGraph<Node, Use, u32>,
    inputs: Vec<NodeId>,
    /// Name and value of each result, in the model's order.
    pub outputs: Vec<(String, ValueId)>,
}

impl Value {
    /// A value whose size is known.
    pub fn new(name: impl Into<String>, ty: TensorType) -> Value {
        Value { name: name.into(), ty, dynamic: false }
    }
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// Adds an input after those that there are. If it is `bound`, no other value can be given.
    pub fn add_input(&mut self, name: &str, ty: TensorType, bound: Option<Arc<Tensor>>) -> ValueId {
        let id = self.add(name, Op::Input { bound }, &[], vec![Value::new(name, ty)]);
        self.inputs.push(id);
        ValueId { node: id, out: 0 }
    }

    /// Adds a node that gives a constant.
    pub fn add_const(&mut self, name: &str, tensor: impl Into<Arc<Tensor>>) -> ValueId {
        let tensor = tensor.into();
        let ty = TensorType::of(&tensor);
        let node = self.add(name, Op::Const(tensor), &[], vec![Value::new(name, ty)]);
        ValueId { node, out: 0 }
    }

    /// Adds a node given by an expression; its outputs have the expression's types.
    ///
    /// # Panics
    /// If `inputs` do not have the types that the expression was built for.
    pub fn add_compute(
        &mut self,
        name: &str,
        kind: Kind,
        expr: Compute,
        inputs: &[ValueId],
    ) -> Vec<ValueId> {
        for (slot, (input, ty)) in inputs.iter().zip(&expr.inputs).enumerate() {
            assert_eq!(self.ty(*input), ty, "input {slot} of {name}");
        }
        assert_eq!(inputs.len(), expr.inputs.len(), "number of inputs of {name}");
        let types = expr.output_types();
        let outputs = types
            .into_iter()
            .enumerate()
            .map(|(i, ty)| Value::new(format!("{name}:{i}"), ty))
            .collect();
        let node =
            self.add(name, Op::Compute(ComputeOp { kind, expr: Arc::new(expr) }), inputs, outputs);
        self.values(node).collect()
    }

    /// Adds a node. The types of `inputs` are not compared with what `op` wants: the verifier does
    /// that.
    pub fn add(&mut self, name: &str, op: Op, inputs: &[ValueId], outputs: Vec<Value>) -> NodeId {
        let node = self.dag.add_node(Node { name: name.into(), op, outputs });
        for (slot, input) in inputs.iter().enumerate() {
            self.dag.add_edge(input.node, node, Use { out: input.out, slot: slot as u32 });
        }
        node
    }

    /// The nodes that are inputs, in the model's order.
    pub fn inputs(&self) -> &[NodeId] {
        &self.inputs
    }

    /// Declares which nodes are the inputs, in order.
    pub(crate) fn set_inputs(&mut self, inputs: Vec<NodeId>) {
        self.inputs = inputs;
    }

    /// Whether the node has not been removed.
    pub fn contains(&self, node: NodeId) -> bool {
        self.dag.contains_node(node)
    }

    /// # Panics
    /// If `node` was removed.
    pub fn node(&self, node: NodeId) -> &Node {
        &self.dag[node]
    }

    /// A node to be changed; see [`Graph::set_operands`] for what it reads. Panics if it was
    /// removed.
    pub fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.dag[node]
    }

    /// The number of nodes, inputs and constants among them.
    pub fn len(&self) -> usize {
        self.dag.node_count()
    }

    /// The number of nodes that compute something.
    pub fn operations(&self) -> usize {
        let ops = self.dag.node_weights().map(|node| &node.op);
        ops.filter(|op| !matches!(op, Op::Const(_) | Op::Input { .. })).count()
    }

    /// The index of each node is less than this.
    pub(crate) fn bound(&self) -> usize {
        self.dag.node_bound()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A value's name and type. Panics if its node was removed.
    pub fn value(&self, value: ValueId) -> &Value {
        &self.dag[value.node].outputs[value.out as usize]
    }

    /// A value to be changed, as [`Graph::value`].
    pub fn value_mut(&mut self, value: ValueId) -> &mut Value {
        &mut self.dag[value.node].outputs[value.out as usize]
    }

    /// A value's type. Panics if its node was removed.
    pub fn ty(&self, value: ValueId) -> &TensorType {
        &self.value(value).ty
    }

    /// The outputs of a node.
    pub fn values(&self, node: NodeId) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.dag[node].outputs.len() as u32).map(move |out| ValueId { node, out })
    }

    /// The values that a node reads, by slot.
    pub fn operands(&self, node: NodeId) -> Vec<ValueId> {
        let mut operands: Vec<(u32, ValueId)> = self
            .dag
            .edges_directed(node, Direction::Incoming)
            .map(|e| (e.weight().slot, ValueId { node: e.source(), out: e.weight().out }))
            .collect();
        operands.sort_unstable_by_key(|(slot, _)| *slot);
        operands.into_iter().map(|(_, value)| value).collect()
    }

    /// The slots that a node reads, in order: `0..n` in a graph that verifies.
    pub fn slots(&self, node: NodeId) -> Vec<u32> {
        let edges = self.dag.edges_directed(node, Direction::Incoming);
        let mut slots: Vec<u32> = edges.map(|e| e.weight().slot).collect();
        slots.sort_unstable();
        slots
    }

    /// Nodes and slots that read a value, in order; a node that reads it twice is listed twice.
    /// Graph outputs are not among them: see [`Graph::is_output`].
    pub fn users(&self, value: ValueId) -> Vec<(NodeId, u32)> {
        let mut users: Vec<(NodeId, u32)> = self
            .dag
            .edges_directed(value.node, Direction::Outgoing)
            .filter(|e| e.weight().out == value.out)
            .map(|e| (e.target(), e.weight().slot))
            .collect();
        users.sort_unstable();
        users
    }

    /// Whether the value is a result of the graph.
    pub fn is_output(&self, value: ValueId) -> bool {
        self.outputs.iter().any(|(_, v)| *v == value)
    }

    /// The tensor, if a constant node gives the value.
    pub fn const_of(&self, value: ValueId) -> Option<&Arc<Tensor>> {
        match &self.dag[value.node].op {
            Op::Const(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The expression, if the node is given by one.
    pub fn compute_of(&self, node: NodeId) -> Option<&ComputeOp> {
        match &self.dag[node].op {
            Op::Compute(op) => Some(op),
            _ => None,
        }
    }

    /// Replaces what `node` reads.
    pub fn set_operands(&mut self, node: NodeId, inputs: &[ValueId]) {
        let old: Vec<_> =
            self.dag.edges_directed(node, Direction::Incoming).map(|e| e.id()).collect();
        for edge in old {
            self.dag.remove_edge(edge);
        }
        for (slot, input) in inputs.iter().enumerate() {
            self.dag.add_edge(input.node, node, Use { out: input.out, slot: slot as u32 });
        }
    }

    /// Lets everything that reads `old`, graph outputs included, read `new`.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        let edges: Vec<_> = self
            .dag
            .edges_directed(old.node, Direction::Outgoing)
            .filter(|e| e.weight().out == old.out)
            .map(|e| (e.id(), e.target(), e.weight().slot))
            .collect();
        for (edge, target, slot) in edges {
            self.dag.remove_edge(edge);
            self.dag.add_edge(new.node, target, Use { out: new.out, slot });
        }
        for (_, value) in self.outputs.iter_mut().filter(|(_, v)| *v == old) {
            *value = new;
        }
    }

    /// Takes the input at `position` off the list of inputs, and its node out of the graph, which
    /// nothing may read any more.
    pub fn remove_input(&mut self, position: usize) {
        let node = self.inputs.remove(position);
        self.dag.remove_node(node);
    }

    /// Removes a node that nothing reads any more.
    pub fn remove(&mut self, node: NodeId) {
        self.dag.remove_node(node);
    }

    /// All nodes, in the order of their ids.
    pub fn node_ids(&self) -> Vec<NodeId> {
        self.dag.node_indices().collect()
    }

    /// Nodes in an order in which operands come before their readers. The order is a function of the
    /// graph alone: among ready nodes the one with the lowest id comes first.
    ///
    /// # Panics
    /// If the graph has a cycle; the verifier reports one before any pass runs.
    pub fn topological(&self) -> Vec<NodeId> {
        let order = self.try_topological();
        assert_eq!(order.len(), self.len(), "the graph is acyclic");
        order
    }

    /// As [`Graph::topological`], but shorter than the graph where there is a cycle.
    pub fn try_topological(&self) -> Vec<NodeId> {
        let mut missing = vec![0_usize; self.bound()];
        let mut ready = BinaryHeap::new();
        for node in self.dag.node_indices() {
            let operands = self.dag.edges_directed(node, Direction::Incoming).count();
            missing[node.index()] = operands;
            if operands == 0 {
                ready.push(Reverse(node));
            }
        }
        let mut order = Vec::with_capacity(self.len());
        while let Some(Reverse(node)) = ready.pop() {
            order.push(node);
            for edge in self.dag.edges_directed(node, Direction::Outgoing) {
                let count = &mut missing[edge.target().index()];
                *count -= 1;
                if *count == 0 {
                    ready.push(Reverse(edge.target()));
                }
            }
        }
        order
    }
}

/// Structural: the same nodes under the same ids, reading the same values.
impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        self.name == other.name
            && self.inputs == other.inputs
            && self.outputs == other.outputs
            && self.node_ids() == other.node_ids()
            && self
                .node_ids()
                .into_iter()
                .all(|n| self.node(n) == other.node(n) && self.operands(n) == other.operands(n))
    }
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;

    use super::*;

    #[test]
    fn replace_redirects_readers_and_outputs() {
        let mut g = Graph::new("g");
        let ty = TensorType::new(DType::F32, [2]);
        let a = g.add_input("a", ty.clone(), None);
        let b = g.add_input("b", ty.clone(), None);
        let relu = Op::Host(ansc_runtime::host::HostOp::NonZero);
        let n = g.add("n", relu, &[a, a], vec![Value::new("y", ty)]);
        g.outputs.push(("y".into(), a));
        g.replace(a, b);
        assert_eq!(g.operands(n), [b, b]);
        assert_eq!(g.users(b), [(n, 0), (n, 1)]);
        assert!(g.users(a).is_empty() && g.is_output(b));
        assert_eq!(g.topological().len(), 3);
    }
}
