//! Checks on the protobuf, before anything else looks at it.
//!
//! A name that is defined twice would mean one thing here and another elsewhere, so it is refused:
//! ONNX demands that graphs and functions give each name once. What may be listed twice is left to
//! the import: outputs of a graph, types of values, versions of opsets (the highest one counts).

use std::collections::HashSet;

use tract_onnx::pb::{FunctionProto, GraphProto, ModelProto, NodeProto};

use crate::opsets::canonical_domain;
use crate::order::subgraphs;
use crate::problem::{Problem, shortened};
use crate::problems::Problems;

pub(crate) fn model(model: &ModelProto) -> Vec<Problem> {
    let Some(graph) = &model.graph else {
        return vec![Problem::new("the file holds no graph")];
    };
    let mut problems = Problems::default();
    graph_names(graph, "the graph", &mut problems);
    let mut seen = HashSet::new();
    for function in &model.functions {
        let (domain, name) = (function.domain.as_deref(), function.name.as_deref());
        let (domain, name) = (domain.unwrap_or_default(), name.unwrap_or_default());
        if !seen.insert((canonical_domain(domain), name)) {
            problems.push(twice(&format!("the function `{domain}.{name}`"), "the model"));
        }
        function_names(function, &format!("the function `{name}`"), &mut problems);
    }
    problems.into_list()
}

/// Inputs, initializers and results of nodes. An initializer may be an input's default.
fn graph_names(graph: &GraphProto, place: &str, problems: &mut Problems) {
    let dense = graph.initializer.iter().map(|t| t.name.as_str());
    let sparse = graph.sparse_initializer.iter().filter_map(|t| t.values.as_ref());
    let initializers = dense.chain(sparse.map(|t| t.name.as_str()));
    let mut defined = HashSet::new();
    each_once(graph.input.iter().map(|i| i.name.as_str()), "input", place, &mut defined, problems);
    let inputs = std::mem::take(&mut defined);
    each_once(initializers, "initializer", place, &mut defined, problems);
    defined.extend(inputs);
    node_names(&graph.node, place, &mut defined, problems);
}

fn function_names(function: &FunctionProto, place: &str, problems: &mut Problems) {
    let [inputs, outputs, attributes] =
        [&function.input, &function.output, &function.attribute].map(|l| l.iter().map(|s| &**s));
    let mut defined = HashSet::new();
    each_once(inputs, "input", place, &mut defined, problems);
    node_names(&function.node, place, &mut defined, problems);
    each_once(outputs, "output", place, &mut HashSet::new(), problems);
    each_once(attributes, "attribute", place, &mut HashSet::new(), problems);
}

/// Results and attributes of nodes, and what is in their bodies.
fn node_names<'m>(
    nodes: &'m [NodeProto],
    place: &str,
    defined: &mut HashSet<&'m str>,
    problems: &mut Problems,
) {
    for node in nodes {
        let name = match node.name.as_str() {
            "" => node.output.first().map_or("", String::as_str),
            name => name,
        };
        let here = format!("node `{name}` ({}) of {place}", node.op_type);
        let outputs = node.output.iter().map(String::as_str);
        each_once(outputs, "result", &here, defined, problems);
        let attributes = node.attribute.iter().map(|a| a.name.as_str());
        each_once(attributes, "attribute", &here, &mut HashSet::new(), problems);
        for body in subgraphs(node) {
            graph_names(body, &format!("the body of node `{name}`"), problems);
        }
    }
}

/// A problem for each of `names` that is in `defined` already. Names may be left out.
fn each_once<'m>(
    names: impl IntoIterator<Item = &'m str>,
    what: &str,
    place: &str,
    defined: &mut HashSet<&'m str>,
    problems: &mut Problems,
) {
    let names = names.into_iter().filter(|name| !name.is_empty());
    for name in names {
        if !defined.insert(name) {
            problems.push(twice(&format!("{what} `{name}`"), place));
        }
    }
}

fn twice(what: &str, place: &str) -> Problem {
    let reason = shortened(format!("{place}: the name of {what} is used twice"));
    Problem::new(reason).remedy("export the model again, or give each of them a name of its own")
}
