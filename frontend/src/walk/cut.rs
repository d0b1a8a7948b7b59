//! A part of a model: from tensors that become its inputs to tensors that become its outputs.
//!
//! Tensors go by the names that the file gives them. One that becomes an input is imported as
//! usual, for its type; then an input of the graph takes its place for everything that reads it.
//! Nodes that only what was left out needs are removed.
//!
//! ```text
//! x -> Conv -> a -> Relu -> b -> Softmax -> y        --inputs a --outputs b:   a -> Relu -> b
//! ```

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ansc_graph::{Graph, NodeId, Op, TensorType};
use tract_onnx::pb::GraphProto;

use super::build::Importer;
use super::deciding::is_data;
use super::options::ImportOptions;
use super::scope::Binding;
use crate::order::subgraphs;
use crate::problem::Problem;
use crate::similar::similar;

/// Tensors that become inputs, and the shapes that the user expects of them.
pub(super) type Begins = BTreeMap<String, Option<Vec<usize>>>;

pub(super) fn begins(options: &ImportOptions) -> Begins {
    let begin = |name: &String| (name.clone(), options.shapes.get(name).cloned());
    options.inputs.iter().map(begin).collect()
}

impl ImportOptions {
    /// Whether a part of the model is asked for.
    pub(super) fn is_cut(&self) -> bool {
        !self.inputs.is_empty() || !self.outputs.is_empty()
    }
}

/// A problem for each name that the graph does not have, or that cannot be an input.
pub(super) fn check(graph: &GraphProto, options: &ImportOptions) -> Vec<Problem> {
    if !options.is_cut() && options.most.is_empty() {
        return vec![];
    }
    let known = tensors(graph);
    let all = options.inputs.iter().chain(&options.outputs).chain(options.most.keys());
    let unknown = all.filter(|name| !known.contains(name.as_str()));
    let unknown = unknown.map(|name| no_tensor(name, graph, &known));
    let computed: HashSet<&str> = outputs(graph).chain(inputs(graph)).collect();
    let is_constant =
        |name: &&String| known.contains(name.as_str()) && !computed.contains(name.as_str());
    unknown.chain(options.inputs.iter().filter(is_constant).map(|name| constant(name))).collect()
}

impl Importer {
    /// Lets an input stand for a tensor from here on.
    pub(super) fn begin_at(&mut self, name: &str, binding: Binding) -> Binding {
        if binding == Binding::Poisoned {
            return binding;
        }
        match self.type_to_begin_at(name, &binding) {
            Ok(ty) => {
                if is_data(&ty) {
                    self.data.add(name);
                }
                Binding::Value(self.frame().graph.add_input(name, ty, None))
            }
            Err(problem) => {
                self.report(problem);
                Binding::Poisoned
            }
        }
    }

    fn type_to_begin_at(&mut self, name: &str, binding: &Binding) -> Result<TensorType, Problem> {
        let no_input = |reason| Err(Problem::new(format!("`{name}` cannot be an input: {reason}")));
        let Some(value) = binding.value() else { return no_input("it is not a tensor") };
        let expected = self.begins.get(name).cloned().flatten();
        let graph = &self.frame().graph;
        let ty = graph.ty(value).clone();
        if graph.const_of(value).is_some() {
            return Err(constant(name));
        }
        if graph.value(value).dynamic {
            return no_input("its size depends on data");
        }
        match expected.filter(|expected| *expected != ty.shape[..]) {
            None => Ok(ty),
            Some(expected) => {
                let shape = &ty.shape;
                let reason =
                    format!("`{name}` has the shape {shape:?} in this model, not {expected:?}");
                Err(Problem::new(reason)
                    .remedy("give shapes of the model's own inputs, which decide it"))
            }
        }
    }
}

/// Removes what no output needs, and inputs that are not asked for.
pub(super) fn prune(graph: &mut Graph, options: &ImportOptions) -> Vec<Problem> {
    let mut needed = needed(graph);
    let asked = |name: &str| options.inputs.iter().any(|asked| asked == name);
    // Readers of an input with a known value see a constant.
    let is_bound = |input: &NodeId| matches!(graph.node(*input).op, Op::Input { bound: Some(_) });
    needed.extend(graph.inputs().iter().filter(|i| is_bound(i) && asked(&graph.node(**i).name)));
    let problem = |&input: &NodeId| {
        let name = &graph.node(input).name;
        match (asked(name), needed.contains(&input)) {
            (true, false) => Some(Problem::new(format!("no output depends on the input `{name}`"))),
            (false, true) if !options.inputs.is_empty() => {
                let reason = format!("the outputs depend on the input `{name}` as well");
                Some(Problem::new(reason).remedy("add it to --inputs, or begin at other tensors"))
            }
            _ => None,
        }
    };
    let problems = graph.inputs().iter().filter_map(problem).collect();
    for node in graph.node_ids().into_iter().filter(|node| !needed.contains(node)) {
        match graph.inputs().iter().position(|input| *input == node) {
            Some(position) => graph.remove_input(position),
            None => graph.remove(node),
        }
    }
    problems
}

/// Nodes that an output depends on.
fn needed(graph: &Graph) -> HashSet<NodeId> {
    let mut needed = HashSet::new();
    let mut next: Vec<NodeId> = graph.outputs.iter().map(|(_, value)| value.node).collect();
    while let Some(node) = next.pop() {
        if needed.insert(node) {
            next.extend(graph.operands(node).iter().map(|operand| operand.node));
        }
    }
    needed
}

fn constant(name: &str) -> Problem {
    Problem::new(format!("`{name}` cannot be an input: it is a constant"))
}

fn no_tensor(name: &str, graph: &GraphProto, known: &BTreeSet<&str>) -> Problem {
    for node in &graph.node {
        if subgraphs(node).any(|body| has_inside(body, name)) {
            let node = if node.name.is_empty() { &node.output[0] } else { &node.name };
            return Problem::new(format!(
                "`{name}` lies inside of the body of `{node}`, which is run as a whole"
            ))
            .remedy(format!("cut before or after `{node}`"));
        }
    }
    let reason = format!("the model has no tensor `{name}`");
    let near = similar(name, known.iter().copied());
    if near.is_empty() {
        return Problem::new(reason).remedy("see the names with a viewer of ONNX models");
    }
    let near: Vec<String> = near.iter().map(|k| format!("`{k}`")).collect();
    Problem::new(reason).remedy(format!("similar names are {}", near.join(", ")))
}

/// The tensors of the model's own graph.
fn tensors(graph: &GraphProto) -> BTreeSet<&str> {
    let dense = graph.initializer.iter().map(|tensor| tensor.name.as_str());
    let sparse = graph.sparse_initializer.iter().filter_map(|tensor| tensor.values.as_ref());
    let sparse = sparse.map(|values| values.name.as_str());
    inputs(graph).chain(outputs(graph)).chain(dense).chain(sparse).collect()
}

fn inputs(graph: &GraphProto) -> impl Iterator<Item = &str> {
    graph.input.iter().map(|input| input.name.as_str())
}

fn outputs(graph: &GraphProto) -> impl Iterator<Item = &str> {
    let names = graph.node.iter().flat_map(|node| &node.output);
    names.map(String::as_str).filter(|name| !name.is_empty())
}

fn has_inside(body: &GraphProto, name: &str) -> bool {
    tensors(body).contains(name)
        || body.node.iter().flat_map(subgraphs).any(|inner| has_inside(inner, name))
}
