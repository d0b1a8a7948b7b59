//! Constants that a conditional or a loop captures move into its bodies, where passes see them.
//!
//! ```text
//! %w = const;  loop(.., %w) { input %c; matmul(%h, %c) }
//! ->  loop(..) { %c = const; matmul(%h, %c) }
//! ```

use std::sync::Arc;

use ansc_runtime::Tensor;

use super::rewrite::sweep;
use super::{Options, PassError};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Op;

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        for index in (0..capture_count(graph, node)).rev() {
            let slot = first_slot(graph, node) + index;
            let operand = graph.operands(node)[slot];
            if let Some(tensor) = graph.const_of(operand).cloned() {
                bodies(graph, node).iter_mut().for_each(|b| b.fix(index, &tensor));
                remove(graph, node, index);
                changed = true;
            }
        }
    }
    changed |= sweep(graph);
    Ok(changed)
}

/// Removes captures that no body reads.
pub(crate) fn drop_captures(graph: &mut Graph, node: NodeId) -> bool {
    let mut changed = false;
    for index in (0..capture_count(graph, node)).rev() {
        if bodies(graph, node).iter().all(|b| !b.reads(index)) {
            remove(graph, node, index);
            changed = true;
        }
    }
    changed
}

/// A body, and the position of its first capture among its inputs.
struct Body<'a> {
    graph: &'a mut Graph,
    first: usize,
}

impl Body<'_> {
    fn value(&self, index: usize) -> ValueId {
        ValueId { node: self.graph.inputs()[self.first + index], out: 0 }
    }

    fn reads(&self, index: usize) -> bool {
        let value = self.value(index);
        self.graph.is_output(value) || !self.graph.users(value).is_empty()
    }

    fn fix(&mut self, index: usize, tensor: &Arc<Tensor>) {
        let value = self.value(index);
        let name = self.graph.value(value).name.clone();
        let constant = self.graph.add_const(&name, tensor.clone());
        self.graph.replace(value, constant);
    }
}

fn bodies(graph: &mut Graph, node: NodeId) -> Vec<Body<'_>> {
    match &mut graph.node_mut(node).op {
        Op::If(op) => vec![
            Body { graph: &mut op.then_branch, first: 0 },
            Body { graph: &mut op.else_branch, first: 0 },
        ],
        Op::Loop(op) => {
            let first = 2 + op.carried + op.scan_inputs.len();
            vec![Body { graph: &mut op.body, first }]
        }
        _ => vec![],
    }
}

/// The operand slot of the first capture.
fn first_slot(graph: &Graph, node: NodeId) -> usize {
    match &graph.node(node).op {
        Op::Loop(op) => {
            let control = usize::from(op.has_trip) + usize::from(op.has_condition);
            control + op.carried + op.scan_inputs.len()
        }
        _ => 1,
    }
}

fn capture_count(graph: &Graph, node: NodeId) -> usize {
    match &graph.node(node).op {
        Op::If(_) | Op::Loop(_) => graph.operands(node).len() - first_slot(graph, node),
        _ => 0,
    }
}

fn remove(graph: &mut Graph, node: NodeId, index: usize) {
    for body in bodies(graph, node) {
        body.graph.remove_input(body.first + index);
    }
    let mut operands = graph.operands(node);
    operands.remove(first_slot(graph, node) + index);
    graph.set_operands(node, &operands);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::BinOp;
    use crate::graph::Value;
    use crate::op::IfOp;
    use crate::passes::testing::{Builder, check, f32};

    #[test]
    fn constants_and_unread_captures_leave_the_operands() {
        let branch = |op| {
            let mut b = Builder::new(6);
            let [x, c, _] = [&[2][..], &[2], &[3]].map(|s| b.input(s));
            let y = b.binary(op, x, c);
            b.finish(&[y])
        };
        let mut b = Builder::new(7);
        let condition = b.graph.add_const("condition", Tensor::scalar(true));
        let (x, c, unread) = (b.input(&[2]), b.constant(&[2]), b.input(&[3]));
        let op = IfOp { then_branch: branch(BinOp::Add), else_branch: branch(BinOp::Sub) };
        let outputs = vec![Value::new("y", f32(&[2]))];
        let node = b.graph.add("if", Op::If(Box::new(op)), &[condition, x, c, unread], outputs);
        let graph = check(b.finish(&[ValueId { node, out: 0 }]), run);
        assert_eq!(graph.operands(node), [condition, x, unread]);
        let graph = check(graph, crate::passes::dce::run);
        assert_eq!(graph.operands(node), [condition, x]);
    }
}
