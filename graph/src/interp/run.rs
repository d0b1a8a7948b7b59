//! Runs a graph: every node in topological order, by the evaluator, the host functions, or as a
//! graph of its own. A value is dropped after its last reader.

use std::collections::BTreeMap;
use std::sync::Arc;

use ansc_runtime::Tensor;

use super::{InterpError, check_inputs, control, eval};
use crate::compute::TensorType;
use crate::graph::{Graph, Node, NodeId, ValueId};
use crate::op::Op;

/// The outputs of a graph for `inputs`, in the order of [`Graph::inputs`]. An input that
/// compilation bound to a value must be given that value.
pub fn run(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>, InterpError> {
    run_observed(graph, inputs, &mut |_, _| ())
}

/// As [`run`]; `observe` sees the outputs of each node of this graph (not of the bodies of control
/// flow) as soon as they are there.
pub fn run_observed(
    graph: &Graph,
    inputs: &[Tensor],
    observe: &mut dyn FnMut(NodeId, &[Tensor]),
) -> Result<Vec<Tensor>, InterpError> {
    let inputs: Vec<Arc<Tensor>> = inputs.iter().map(|t| Arc::new(t.clone())).collect();
    let mut seen = |node, outputs: &[Arc<Tensor>]| {
        let outputs: Vec<Tensor> = outputs.iter().map(|t| t.as_ref().clone()).collect();
        observe(node, &outputs);
    };
    let outputs = run_shared(graph, inputs, &mut seen)?;
    Ok(outputs.into_iter().map(Arc::unwrap_or_clone).collect())
}

/// The values that are still needed, and how many readers each has left.
struct Values {
    values: BTreeMap<ValueId, Arc<Tensor>>,
    readers: BTreeMap<ValueId, usize>,
}

impl Values {
    fn take(&mut self, id: ValueId) -> Result<Arc<Tensor>, InterpError> {
        let value = self.values.get(&id).cloned();
        let left = self.readers.entry(id).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.values.remove(&id);
        }
        value.ok_or_else(|| InterpError::Graph("a value is read that no node gives".into()))
    }

    fn put(&mut self, id: ValueId, value: Arc<Tensor>) {
        if self.readers.get(&id).is_some_and(|&n| n > 0) {
            self.values.insert(id, value);
        }
    }
}

fn readers(graph: &Graph) -> BTreeMap<ValueId, usize> {
    let mut readers = BTreeMap::new();
    let operands = graph.node_ids().into_iter().flat_map(|n| graph.operands(n));
    for value in operands.chain(graph.outputs.iter().map(|(_, v)| *v)) {
        *readers.entry(value).or_default() += 1;
    }
    readers
}

/// Observes the outputs of a node.
type Observer<'a> = dyn FnMut(NodeId, &[Arc<Tensor>]) + 'a;

pub(super) fn run_shared(
    graph: &Graph,
    inputs: Vec<Arc<Tensor>>,
    observe: &mut Observer<'_>,
) -> Result<Vec<Arc<Tensor>>, InterpError> {
    let types: Vec<TensorType> =
        graph.inputs().iter().map(|&n| graph.node(n).outputs[0].ty.clone()).collect();
    check_inputs(&types, &inputs.iter().map(Arc::as_ref).collect::<Vec<_>>())?;
    let order = graph.try_topological();
    if order.len() != graph.len() {
        return Err(InterpError::Graph("the graph has a cycle".into()));
    }
    let given: BTreeMap<NodeId, Arc<Tensor>> = graph.inputs().iter().copied().zip(inputs).collect();
    let mut values = Values { values: BTreeMap::new(), readers: readers(graph) };
    for id in order {
        let node = graph.node(id);
        let operands = graph.operands(id).into_iter();
        let operands = operands.map(|v| values.take(v)).collect::<Result<Vec<_>, _>>()?;
        let outputs = run_node(node, given.get(&id), &operands)
            .and_then(|outputs| check_outputs(node, outputs))
            .map_err(|e| e.at(&node.name))?;
        observe(id, &outputs);
        graph.values(id).zip(outputs).for_each(|(v, tensor)| values.put(v, tensor));
    }
    graph.outputs.iter().map(|(_, v)| values.take(*v)).collect()
}

fn run_node(
    node: &Node,
    given: Option<&Arc<Tensor>>,
    operands: &[Arc<Tensor>],
) -> Result<Vec<Arc<Tensor>>, InterpError> {
    let plain = || operands.iter().map(Arc::as_ref).collect::<Vec<_>>();
    let shared = |outputs: Vec<Tensor>| outputs.into_iter().map(Arc::new).collect();
    match &node.op {
        Op::Input { bound } => input(bound.as_ref(), given),
        Op::Const(tensor) => Ok(vec![tensor.clone()]),
        Op::Compute(op) => eval(&op.expr, &plain()).map(shared),
        Op::Host(op) => Ok(ansc_runtime::host::run(op, &plain()).map(shared)?),
        Op::If(op) => control::branch(op, operands),
        Op::Loop(op) => control::iterate(op, node, operands),
    }
}

fn input(
    bound: Option<&Arc<Tensor>>,
    given: Option<&Arc<Tensor>>,
) -> Result<Vec<Arc<Tensor>>, InterpError> {
    let given = given.ok_or_else(|| InterpError::Graph("it is not listed as an input".into()))?;
    match bound {
        Some(bound) if bound != given => Err(InterpError::Bound),
        _ => Ok(vec![given.clone()]),
    }
}

/// Outputs have their declared types; dynamic ones at least the element type and rank.
fn check_outputs(node: &Node, outputs: Vec<Arc<Tensor>>) -> Result<Vec<Arc<Tensor>>, InterpError> {
    if outputs.len() < node.outputs.len() {
        let (found, expected) = (outputs.len(), node.outputs.len());
        return Err(InterpError::Graph(format!("it gave {found} outputs of {expected}")));
    }
    for (value, tensor) in node.outputs.iter().zip(&outputs) {
        let found = TensorType::of(tensor);
        let fits = match value.dynamic {
            false => found == value.ty,
            true => found.dtype == value.ty.dtype && found.rank() == value.ty.rank(),
        };
        if !fits {
            let (name, expected) = (value.name.clone(), value.ty.clone());
            return Err(InterpError::Output { name, expected, found });
        }
    }
    Ok(outputs)
}
