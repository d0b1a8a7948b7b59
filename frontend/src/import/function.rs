//! Calls of model-local functions, inlined.
//!
//! The body's nodes are imported in a scope that sees nothing of the caller but the inputs; attributes
//! that refer to those of the call are replaced first.

use std::sync::Arc;

use tract_onnx::pb::{AttributeProto, FunctionProto, GraphProto, NodeProto};

use super::build::{Importer, MAX_DEPTH, versions};
use super::scope::{Binding, Scope, lookup};
use crate::order::{self, Cycle};
use crate::problem::Problem;

/// What the outputs of `node`, a call of `function`, are.
pub(super) fn call(
    importer: &mut Importer,
    node: &NodeProto,
    function: &FunctionProto,
) -> Result<Vec<Binding>, Problem> {
    if importer.depth >= MAX_DEPTH {
        let reason = format!("functions call each other more than {MAX_DEPTH} deep");
        return Err(importer.problem(node, reason));
    }
    let arguments = arguments(importer, node, function)?;
    let mut opsets = (*importer.scope().opsets).clone();
    opsets.extend(versions(&function.opset_import));
    let prefix = format!("{}/", importer.node_name(node));
    importer.frame().scopes.push(Scope::new(Arc::new(opsets), prefix, false));
    importer.depth += 1;
    for (name, binding) in function.input.iter().zip(arguments) {
        importer.frame().bind(name, binding);
    }
    let bindings = body(importer, node, function);
    importer.depth -= 1;
    importer.frame().scopes.pop();
    bindings
}

/// One binding per input of the function. A poisoned argument poisons only what depends on it.
fn arguments(
    importer: &mut Importer,
    node: &NodeProto,
    function: &FunctionProto,
) -> Result<Vec<Binding>, Problem> {
    if node.input.len() > function.input.len() {
        let (given, taken) = (node.input.len(), function.input.len());
        let reason = format!("{given} inputs are given to a function that takes {taken}");
        return Err(importer.problem(node, reason));
    }
    let mut bindings = vec![Binding::Absent; function.input.len()];
    for (binding, name) in bindings.iter_mut().zip(&node.input).filter(|(_, n)| !n.is_empty()) {
        *binding = lookup(&mut importer.frames, name).ok_or_else(|| {
            importer.problem(node, format!("nothing computes its input `{name}`"))
        })?;
    }
    Ok(bindings)
}

fn body(
    importer: &mut Importer,
    node: &NodeProto,
    function: &FunctionProto,
) -> Result<Vec<Binding>, Problem> {
    let names = function.output.iter().map(String::as_str);
    let plan = order::plan(&function.node, names)
        .map_err(|Cycle(index)| importer.problem(&function.node[index], "is part of a cycle"))?;
    for index in plan.nodes {
        match with_attributes(&function.node[index], node, function) {
            Ok(inner) => importer.import_node(&inner),
            Err(reason) => return Err(importer.problem(&function.node[index], reason)),
        }
    }
    let mut outputs = Vec::with_capacity(function.output.len());
    for name in &function.output {
        let binding = lookup(&mut importer.frames, name).ok_or_else(|| {
            importer.problem(node, format!("nothing computes the function's output `{name}`"))
        })?;
        outputs.push(binding);
    }
    Ok(outputs)
}

/// `node` of a function's body, with the attributes of the call in place of references to them.
fn with_attributes(
    node: &NodeProto,
    call: &NodeProto,
    function: &FunctionProto,
) -> Result<NodeProto, String> {
    let mut node = node.clone();
    let attributes = std::mem::take(&mut node.attribute);
    for mut attribute in attributes {
        if attribute.ref_attr_name.is_empty() {
            let graphs = attribute.g.iter_mut().chain(&mut attribute.graphs);
            graphs.into_iter().try_for_each(|g| graph_attributes(g, call, function))?;
            node.attribute.push(attribute);
        } else {
            node.attribute.extend(referred(&attribute, call, function)?);
        }
    }
    Ok(node)
}

fn graph_attributes(
    graph: &mut GraphProto,
    call: &NodeProto,
    function: &FunctionProto,
) -> Result<(), String> {
    for node in &mut graph.node {
        *node = with_attributes(node, call, function)?;
    }
    Ok(())
}

/// The attribute of the call; none where the call leaves an optional one out.
fn referred(
    attribute: &AttributeProto,
    call: &NodeProto,
    function: &FunctionProto,
) -> Result<Option<AttributeProto>, String> {
    let wanted = &attribute.ref_attr_name;
    let given = call.attribute.iter().find(|a| a.name == *wanted);
    if given.is_none() && !function.attribute.contains(wanted) {
        return Err(format!(
            "attribute `{}` refers to `{wanted}`, which the call does not give; \
             defaults of function attributes are not supported",
            attribute.name
        ));
    }
    Ok(given.map(|a| AttributeProto { name: attribute.name.clone(), ..a.clone() }))
}
