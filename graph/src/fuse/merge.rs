//! The expressions of a group as one.
//!
//! ```text
//! [%1 = conv(x, w), %2 = add(%1, bias), %3 = max(%2, 0)]
//! ->  compute(x, w, bias) -> conv, map = conv + bias, map_1 = max(map, 0)
//! ```
//!
//! A tensor that is both factors of a product, which read it in two orders, is two inputs:
//! schedules may lay each out as it is read.

use std::collections::BTreeMap;

use crate::compute::{Compute, Stage};
use crate::expr::{BufId, Expr};
use crate::graph::{Graph, NodeId, ValueId};
use crate::scalar::Scalar;
use crate::tensors::uniform;
use crate::text::unused;

/// Where an operand of a node comes from.
#[derive(Clone, Copy)]
enum Source {
    Constant(Scalar),
    Buffer(BufId),
}

/// The merged expression, what it reads and what it gives: the values of `results`.
pub(super) fn merge(
    graph: &Graph,
    nodes: &[NodeId],
    results: &[NodeId],
) -> (Compute, Vec<ValueId>, Vec<ValueId>) {
    let mut inputs = external(graph, nodes);
    let mut sources: BTreeMap<ValueId, Source> = BTreeMap::new();
    for (slot, value) in inputs.iter().enumerate() {
        sources.insert(*value, Source::Buffer(BufId::new(slot)));
    }
    let mut second: BTreeMap<NodeId, BufId> = BTreeMap::new();
    for &node in nodes {
        if let Some(value) = both_factors(graph, node).filter(|value| inputs.contains(value)) {
            second.insert(node, BufId::new(inputs.len()));
            inputs.push(value);
        }
    }
    let types = inputs.iter().map(|v| graph.ty(*v).clone()).collect();
    let mut merged = Compute { inputs: types, stages: vec![], outputs: vec![] };
    for &node in nodes {
        append(graph, node, &mut merged, &mut sources, second.get(&node).copied());
    }
    let outputs: Vec<ValueId> = results.iter().flat_map(|n| graph.values(*n)).collect();
    merged.outputs = outputs
        .iter()
        .map(|value| match sources[value] {
            Source::Buffer(buffer) => merged.stage_of(buffer).expect("results are stages"),
            Source::Constant(_) => unreachable!("only constants of the graph are inlined"),
        })
        .collect();
    (merged, inputs, outputs)
}

/// The values that nodes of the group read from outside, without constants that are inlined.
fn external(graph: &Graph, nodes: &[NodeId]) -> Vec<ValueId> {
    let mut inputs = Vec::new();
    for value in nodes.iter().flat_map(|n| graph.operands(*n)) {
        let inside = nodes.contains(&value.node) || inlined(graph, value).is_some();
        if !inside && !inputs.contains(&value) {
            inputs.push(value);
        }
    }
    inputs
}

/// The value that is both factors of a product, if it is read in two orders.
fn both_factors(graph: &Graph, node: NodeId) -> Option<ValueId> {
    let [a, b] = graph.operands(node)[..] else { return None };
    let [stage] = &graph.compute_of(node)?.expr.stages[..] else { return None };
    let loads = stage.body.loads();
    let &[(first, at), (other, other_at)] = &loads[..] else { return None };
    let is_product = stage.reduce.is_some() && first != other && at != other_at;
    (a == b && is_product && inlined(graph, a).is_none()).then_some(a)
}

/// The only element of a constant.
fn inlined(graph: &Graph, value: ValueId) -> Option<Scalar> {
    graph.const_of(value).filter(|tensor| tensor.len() == 1).and_then(|tensor| uniform(tensor))
}

/// Appends the stages of `node`, which reads its second operand from `second`, if that is given.
fn append(
    graph: &Graph,
    node: NodeId,
    merged: &mut Compute,
    sources: &mut BTreeMap<ValueId, Source>,
    second: Option<BufId>,
) {
    let expr = &graph.compute_of(node).expect("groups are of computes").expr;
    let mut operands: Vec<Source> = graph
        .operands(node)
        .into_iter()
        .map(|v| inlined(graph, v).map_or_else(|| sources[&v], Source::Constant))
        .collect();
    if let Some(second) = second {
        operands[1] = Source::Buffer(second);
    }
    let first = merged.stages.len();
    for stage in &expr.stages {
        let body = stage.body.rewrite(&mut |e| match e {
            Expr::Load(buffer, indices) => Some(match expr.stage_of(*buffer) {
                Some(s) => Expr::Load(merged.stage_buffer(first + s), indices.clone()),
                None => match operands[buffer.index()] {
                    Source::Constant(scalar) => Expr::Const(scalar),
                    Source::Buffer(buffer) => Expr::Load(buffer, indices.clone()),
                },
            }),
            _ => None,
        });
        let name = unused(&stage.name, |name| merged.stages.iter().any(|s| s.name == name));
        merged.stages.push(Stage { name, body, ..stage.clone() });
    }
    for (value, &stage) in graph.values(node).zip(&expr.outputs) {
        sources.insert(value, Source::Buffer(merged.stage_buffer(first + stage)));
    }
}
