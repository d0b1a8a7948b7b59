//! In which order to import the nodes of a graph, and which of them matter at all.
//!
//! In: a `GraphProto`. Out: indices of the nodes that its outputs need, operands before readers,
//! and the names that those nodes and outputs read. ONNX demands that files are sorted already;
//! those of some exporters are not, and a cycle must be told from that.
//!
//! ```text
//! nodes: 0: c = f(b)   1: b = g(a)   2: d = h(a)   outputs: c   ->   order [1, 0], reads {a, b, c}
//! ```

use std::collections::{BTreeSet, HashMap, HashSet};

use tract_onnx::pb::{GraphProto, NodeProto, TensorProto};

/// The part of a graph, or of a function, that its outputs depend on.
pub(crate) struct Plan<'m> {
    pub(crate) nodes: Vec<usize>,
    pub(crate) reads: HashSet<&'m str>,
}

/// A node that is in a cycle.
pub(crate) struct Cycle(pub(crate) usize);

/// `outputs` are the names that are wanted of `nodes`.
pub(crate) fn plan<'m>(
    nodes: &'m [NodeProto],
    outputs: impl IntoIterator<Item = &'m str>,
) -> Result<Plan<'m>, Cycle> {
    let reads: Vec<Vec<&str>> = nodes.iter().map(node_reads).collect();
    let outputs: Vec<&str> = outputs.into_iter().collect();
    let sorted = topological(nodes, &reads)?;
    let mut needed: HashSet<&str> = outputs.into_iter().collect();
    let mut live = Vec::new();
    for &index in sorted.iter().rev() {
        if nodes[index].output.iter().any(|name| needed.contains(name.as_str())) {
            needed.extend(&reads[index]);
            live.push(index);
        }
    }
    live.reverse();
    Ok(Plan { nodes: live, reads: needed })
}

/// Kahn's algorithm; among ready nodes the one that comes first in the file.
fn topological(nodes: &[NodeProto], reads: &[Vec<&str>]) -> Result<Vec<usize>, Cycle> {
    let mut producer: HashMap<&str, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for name in node.output.iter().filter(|n| !n.is_empty()) {
            producer.entry(name).or_insert(index);
        }
    }
    let mut waiting = vec![0usize; nodes.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (index, names) in reads.iter().enumerate() {
        for source in names.iter().filter_map(|name| producer.get(name)) {
            waiting[index] += 1;
            readers[*source].push(index);
        }
    }
    let mut ready: BTreeSet<usize> = (0..nodes.len()).filter(|&n| waiting[n] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(index) = ready.pop_first() {
        order.push(index);
        for &reader in &readers[index] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.insert(reader);
            }
        }
    }
    match waiting.iter().position(|&count| count > 0) {
        Some(stuck) => {
            let sources = |node: usize| reads[node].iter().filter_map(|name| producer.get(name));
            let before = |node: usize| sources(node).copied().find(|&source| waiting[source] > 0);
            Err(Cycle(in_cycle(stuck, before)))
        }
        None => Ok(order),
    }
}

/// A node that is met again on the way backwards from one that waits for a cycle.
fn in_cycle(stuck: usize, before: impl Fn(usize) -> Option<usize>) -> usize {
    let mut seen = HashSet::new();
    let mut at = stuck;
    while seen.insert(at) {
        at = before(at).expect("a node waits for one that waits");
    }
    at
}

/// Every name that a node reads: its inputs, and what its subgraphs take from outside.
pub(crate) fn node_reads(node: &NodeProto) -> Vec<&str> {
    let mut reads: Vec<&str> =
        node.input.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    for graph in subgraphs(node) {
        reads.extend(free_names(graph));
    }
    reads.extend(read_by_attribute(node));
    reads
}

/// The tensors that a `Gradient` names in its attributes.
fn read_by_attribute(node: &NodeProto) -> impl Iterator<Item = &str> {
    let is_gradient = node.op_type == "Gradient" && node.domain == "ai.onnx.preview.training";
    let attributes = node.attribute.iter().filter(move |_| is_gradient);
    let names = attributes.flat_map(|a| a.strings.iter().chain([&a.s]));
    names.filter_map(|name| std::str::from_utf8(name).ok()).filter(|name| !name.is_empty())
}

pub(crate) fn subgraphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs))
}

/// Names that a graph reads but does not define.
fn free_names(graph: &GraphProto) -> Vec<&str> {
    let defined: HashSet<&str> = definitions(graph).collect();
    let outputs = graph.output.iter().map(|o| o.name.as_str());
    let mut free: Vec<&str> = graph.node.iter().flat_map(node_reads).chain(outputs).collect();
    free.retain(|name| !name.is_empty() && !defined.contains(name));
    free
}

/// Names that a graph defines: inputs, initializers, outputs of nodes.
pub(crate) fn definitions(graph: &GraphProto) -> impl Iterator<Item = &str> {
    let inputs = graph.input.iter().map(|i| i.name.as_str());
    let initializers = graph.initializer.iter().map(|t: &TensorProto| t.name.as_str());
    let outputs = graph.node.iter().flat_map(|n| n.output.iter().map(String::as_str));
    inputs.chain(initializers).chain(outputs).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(inputs: &[&str], output: &str) -> NodeProto {
        NodeProto {
            input: inputs.iter().map(|s| s.to_string()).collect(),
            output: vec![output.into()],
            ..NodeProto::default()
        }
    }

    #[test]
    fn sorts_and_drops_what_no_output_needs() {
        let nodes = [node(&["b"], "c"), node(&["a"], "b"), node(&["a"], "d")];
        let plan = plan(&nodes, ["c"]).ok().unwrap();
        assert_eq!(plan.nodes, [1, 0]);
        assert!(plan.reads.contains("a") && !plan.reads.contains("d"));
    }

    #[test]
    fn finds_cycles() {
        let nodes = [node(&["a", "c"], "b"), node(&["b"], "c")];
        assert_eq!(plan(&nodes, ["c"]).err().unwrap().0, 0);
        let reader = [node(&["b"], "y"), node(&["c"], "b"), node(&["b"], "c")];
        assert_eq!(plan(&reader, ["y"]).err().unwrap().0, 1);
        let itself = [node(&["x"], "x")];
        assert_eq!(plan(&itself, ["x"]).err().unwrap().0, 0);
    }

    #[test]
    fn subgraphs_read_from_outside() {
        let body = GraphProto { node: vec![node(&["outer"], "y")], ..GraphProto::default() };
        let mut branch = node(&["cond"], "z");
        branch
            .attribute
            .push(tract_onnx::pb::AttributeProto { g: Some(body), ..Default::default() });
        let nodes = [branch, node(&["a"], "outer")];
        assert_eq!(plan(&nodes, ["z"]).ok().unwrap().nodes, [1, 0]);
    }
}
