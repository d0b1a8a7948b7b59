//! Checks of graphs.

use std::collections::BTreeSet;

use super::{Bodies, Problem, Verifier, Violation, control};
use crate::compute::TensorType;
use crate::graph::{Graph, Node, NodeId, Value, ValueId};
use crate::op::{ComputeOp, Op};

/// The rules that do not hold for a graph, see the [module](super).
pub(super) fn violations(graph: &Graph, bodies: Bodies, verifier: &mut Verifier) -> Vec<Violation> {
    let mut report = Report { verifier, bodies, prefix: String::new(), violations: Vec::new() };
    check_graph(graph, &mut report);
    report.violations
}

/// Collects violations, under the names of the nodes whose bodies we are in.
pub(super) struct Report<'a> {
    verifier: &'a mut Verifier,
    /// Those to go into from here.
    bodies: Bodies,
    prefix: String,
    violations: Vec<Violation>,
}

impl Report<'_> {
    fn named(&self, node: &str) -> String {
        format!("{}{node}", self.prefix).trim_end_matches('/').to_owned()
    }

    pub(super) fn note(&mut self, node: &str, problem: Problem) {
        let node = self.named(node);
        self.violations.push(Violation { node, stage: String::new(), problem });
    }

    fn note_stages(&mut self, node: &str, violations: Vec<Violation>) {
        let node = self.named(node);
        let named = violations.into_iter().map(|v| Violation { node: node.clone(), ..v });
        self.violations.extend(named);
    }

    pub(super) fn body(&mut self, node: &str, body: &Graph) {
        let Some(inner) = self.bodies.inside() else { return };
        let outer = (self.prefix.clone(), std::mem::replace(&mut self.bodies, inner));
        self.prefix = format!("{}{node}/", self.prefix);
        check_graph(body, self);
        (self.prefix, self.bodies) = outer;
    }

    pub(super) fn count(&mut self, node: &str, what: &str, expected: usize, found: usize) -> bool {
        if expected != found {
            self.note(node, Problem::Count { what: what.into(), expected, found });
        }
        expected == found
    }

    pub(super) fn same(
        &mut self,
        node: &str,
        what: &str,
        expected: &TensorType,
        found: &TensorType,
    ) {
        if expected != found {
            let (expected, found) = (expected.clone(), found.clone());
            self.note(node, Problem::Type { what: what.into(), expected, found });
        }
    }

    /// As many types as expected, each the same.
    pub(super) fn all_same(
        &mut self,
        node: &str,
        what: &str,
        expected: &[TensorType],
        found: &[TensorType],
    ) {
        if self.count(node, &format!("{what}s"), expected.len(), found.len()) {
            for (i, (expected, found)) in expected.iter().zip(found).enumerate() {
                self.same(node, &format!("{what} {i}"), expected, found);
            }
        }
    }
}

fn check_graph(graph: &Graph, report: &mut Report<'_>) {
    if graph.try_topological().len() != graph.len() {
        report.note("", Problem::Cycle);
    }
    check_interface(graph, report);
    for id in graph.node_ids() {
        let node = graph.node(id);
        if check_edges(graph, id, report) {
            check_node(graph, id, node, report);
        }
    }
}

fn exists(graph: &Graph, value: ValueId) -> bool {
    graph.contains(value.node) && (value.out as usize) < graph.node(value.node).outputs.len()
}

fn check_interface(graph: &Graph, report: &mut Report<'_>) {
    let mut names = BTreeSet::new();
    for &input in graph.inputs() {
        let node = graph.contains(input).then(|| graph.node(input));
        match node.filter(|n| matches!(n.op, Op::Input { .. })) {
            Some(node) if !names.insert(&node.name) => {
                report.note(&node.name, Problem::Duplicate("input".into()));
            }
            Some(_) => {}
            None => report.note("", Problem::NotAnInput),
        }
    }
    let mut names = BTreeSet::new();
    for (name, value) in &graph.outputs {
        if !exists(graph, *value) {
            report.note("", Problem::NoSuchOutput { what: format!("output {name}") });
        }
        if !names.insert(name) {
            report.note(name, Problem::Duplicate("output".into()));
        }
    }
}

/// Whether a node's operands can be looked at.
fn check_edges(graph: &Graph, id: NodeId, report: &mut Report<'_>) -> bool {
    let name = &graph.node(id).name;
    let slots = graph.slots(id);
    if !slots.iter().copied().eq(0..slots.len() as u32) {
        report.note(name, Problem::Slots(slots));
        return false;
    }
    let operands = graph.operands(id);
    let dangling = operands.iter().position(|&v| !exists(graph, v));
    if let Some(slot) = dangling {
        report.note(name, Problem::NoSuchOutput { what: format!("operand {slot}") });
    }
    dangling.is_none()
}

pub(super) fn types(values: &[Value]) -> Vec<TensorType> {
    values.iter().map(|v| v.ty.clone()).collect()
}

fn check_node(graph: &Graph, id: NodeId, node: &Node, report: &mut Report<'_>) {
    let operands = graph.operands(id);
    let inputs: Vec<TensorType> = operands.iter().map(|&v| graph.ty(v).clone()).collect();
    match &node.op {
        Op::Input { bound } => {
            let bound = bound.iter().map(|t| TensorType::of(t)).collect::<Vec<_>>();
            check_source(node, &inputs, &bound, report);
            if graph.inputs().iter().filter(|&&i| i == id).count() != 1 {
                report.note(&node.name, Problem::UnlistedInput);
            }
        }
        Op::Const(tensor) => check_source(node, &inputs, &[TensorType::of(tensor)], report),
        Op::Compute(op) => check_compute(node, op, &inputs, report),
        Op::Host(op) => {
            let (operands, results) = op.arity();
            report.count(&node.name, "operands", operands, inputs.len());
            report.count(&node.name, "results", results, node.outputs.len());
        }
        Op::If(op) => control::check_if(node, op, &inputs, report),
        Op::Loop(op) => control::check_loop(node, op, &inputs, report),
    }
    check_dynamic(graph, node, &operands, report);
}

/// Inputs and constants: no operands, one output of the value's type.
fn check_source(node: &Node, inputs: &[TensorType], value: &[TensorType], report: &mut Report<'_>) {
    report.count(&node.name, "operands", 0, inputs.len());
    if report.count(&node.name, "results", 1, node.outputs.len()) {
        for ty in value {
            report.same(&node.name, "its value", &node.outputs[0].ty, ty);
        }
    }
}

fn check_compute(node: &Node, op: &ComputeOp, inputs: &[TensorType], report: &mut Report<'_>) {
    report.all_same(&node.name, "operand", &op.expr.inputs, inputs);
    match report.verifier.op(op) {
        Ok(()) => {
            let results = op.expr.output_types();
            report.all_same(&node.name, "result", &results, &types(&node.outputs));
        }
        Err(violations) => report.note_stages(&node.name, violations),
    }
}

fn check_dynamic(graph: &Graph, node: &Node, operands: &[ValueId], report: &mut Report<'_>) {
    if !matches!(node.op, Op::Host(_)) {
        for value in operands.iter().map(|&v| graph.value(v)).filter(|v| v.dynamic) {
            report.note(&node.name, Problem::ReadsDynamic(value.name.clone()));
        }
    }
    if matches!(node.op, Op::Input { .. } | Op::Const(_) | Op::Compute(_)) {
        for value in node.outputs.iter().filter(|v| v.dynamic) {
            report.note(&node.name, Problem::Dynamic(value.name.clone()));
        }
    }
}
