//! Calls of model-local functions, inlined.
//!
//! The body's nodes are imported in a scope that sees nothing of the caller but the inputs, and
//! with the attributes of the call (see [`super::attributes`]).

use std::sync::Arc;

use tract_onnx::pb::{FunctionProto, NodeProto};

use super::attributes::Attributes;
use super::build::{Importer, MAX_DEPTH};
use super::scope::{Binding, Scope, lookup};
use crate::opsets::versions;
use crate::order::{self, Cycle};
use crate::problem::Problem;

/// The bindings of the outputs of `node`, which calls `function`.
pub(super) fn call(
    importer: &mut Importer,
    node: &NodeProto,
    function: &FunctionProto,
    attributes: &Attributes<'_>,
) -> Result<Vec<Binding>, Problem> {
    if importer.depth >= MAX_DEPTH {
        let reason = format!("functions call each other more than {MAX_DEPTH} deep");
        let problem = importer.problem(node, reason);
        return Err(importer.stop(problem));
    }
    importer.unfold(&function.node)?;
    let arguments = arguments(importer, node, function)?;
    let attributes = Attributes::of_call(node, function, attributes)
        .map_err(|reason| importer.problem(node, reason))?;
    let mut opsets = (*importer.scope().opsets).clone();
    opsets.extend(versions(&function.opset_import));
    let prefix = format!("{}/", importer.node_name(node));
    importer.frame().scopes.push(Scope::new(Arc::new(opsets), prefix, false));
    importer.depth += 1;
    for (name, binding) in function.input.iter().zip(arguments) {
        importer.frame().bind(name, binding);
    }
    let bindings = body(importer, node, function, &attributes);
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
    attributes: &Attributes<'_>,
) -> Result<Vec<Binding>, Problem> {
    let names = function.output.iter().map(String::as_str);
    let plan = order::plan(&function.node, names)
        .map_err(|Cycle(index)| importer.problem(&function.node[index], "is part of a cycle"))?;
    for index in plan.nodes {
        importer.import_node(&function.node[index], attributes);
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
