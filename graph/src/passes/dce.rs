//! Dead code: nodes that no output of the graph depends on, captures that no body reads, and
//! results, stages and inputs of expressions that nothing needs.
//!
//! ```text
//! %y, %mean, %inverse = layer_norm(x)   with only %y read   ->   %y = layer_norm(x)
//! ```
//!
//! Inputs of the graph stay.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::captures::drop_captures;
use super::rewrite::{set_op, sweep};
use super::{Options, PassError};
use crate::compute::Compute;
use crate::expr::{BufId, Expr};
use crate::graph::{Graph, Node, NodeId, ValueId};
use crate::op::{ComputeOp, Op};

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let swept = remove_unreachable(graph);
    let mut pruned = false;
    for node in graph.topological() {
        pruned |= prune(graph, node) || drop_captures(graph, node);
    }
    if pruned {
        remove_unreachable(graph);
    }
    Ok(swept || pruned)
}

fn remove_unreachable(graph: &mut Graph) -> bool {
    let mut changed = sweep(graph);
    let is_control = |graph: &Graph, node| matches!(graph.node(node).op, Op::If(_) | Op::Loop(_));
    if !graph.node_ids().into_iter().any(|node| is_control(graph, node)) {
        return changed;
    }
    for node in graph.topological().into_iter().rev() {
        let control = is_control(graph, node);
        let dead = graph.values(node).all(|v| graph.users(v).is_empty() && !graph.is_output(v));
        if control && dead {
            graph.remove(node);
            changed = true;
        }
    }
    changed | sweep(graph)
}

/// Removes what nothing needs from a node's expression.
fn prune(graph: &mut Graph, node: NodeId) -> bool {
    let Some(op) = graph.compute_of(node).cloned() else { return false };
    let values: Vec<ValueId> = graph.values(node).collect();
    let read: Vec<bool> =
        values.iter().map(|v| graph.is_output(*v) || !graph.users(*v).is_empty()).collect();
    let kept = |i: usize| read[i] || (i == 0 && !read.contains(&true));
    let wanted: Vec<usize> = (0..values.len()).filter(|&i| kept(i)).collect();
    let stages: Vec<usize> = wanted.iter().map(|&i| op.expr.outputs[i]).collect();
    if wanted.len() == values.len()
        && buffers(&op.expr, &stages).len() == op.expr.inputs.len() + op.expr.stages.len()
    {
        return false;
    }
    let (expr, inputs) = needed(&op.expr, &stages);
    let operands = graph.operands(node);
    let operands: Vec<ValueId> = inputs.iter().map(|&slot| operands[slot]).collect();
    let op = ComputeOp { kind: op.kind, expr: Arc::new(expr) };
    if wanted.len() == values.len() {
        set_op(graph, node, op, &operands);
        return true;
    }
    let Node { name, outputs, .. } = graph.node(node).clone();
    let outputs = wanted.iter().map(|&i| outputs[i].clone()).collect();
    let new = graph.add(&name, Op::Compute(op), &operands, outputs);
    for (out, &i) in wanted.iter().enumerate() {
        graph.replace(values[i], ValueId { node: new, out: out as u32 });
    }
    graph.remove(node);
    true
}

/// The part of `expr` that the stages `outputs` need, and the slots of the inputs it reads.
pub(crate) fn needed(expr: &Compute, outputs: &[usize]) -> (Compute, Vec<usize>) {
    let order: Vec<BufId> = buffers(expr, outputs).into_iter().collect();
    let renumber = |buffer| order.binary_search(&buffer).expect("needed buffers are listed");
    let slots: Vec<usize> =
        order.iter().filter(|b| expr.stage_of(**b).is_none()).map(|b| b.index()).collect();
    let stages = order.iter().filter_map(|b| expr.stage_of(*b)).map(|s| {
        let mut stage = expr.stages[s].clone();
        stage.body = renumbered(&stage.body, &renumber);
        stage
    });
    let part = Compute {
        inputs: slots.iter().map(|&slot| expr.inputs[slot].clone()).collect(),
        stages: stages.collect(),
        outputs: outputs.iter().map(|&s| renumber(expr.stage_buffer(s)) - slots.len()).collect(),
    };
    (part, slots)
}

/// The inputs and the stages that the stages `outputs` need, themselves among them.
fn buffers(expr: &Compute, outputs: &[usize]) -> BTreeSet<BufId> {
    let mut buffers: BTreeSet<BufId> = outputs.iter().map(|&s| expr.stage_buffer(s)).collect();
    for (index, stage) in expr.stages.iter().enumerate().rev() {
        if buffers.contains(&expr.stage_buffer(index)) {
            buffers.extend(stage.body.loads().into_iter().map(|(buffer, _)| buffer));
        }
    }
    buffers
}

fn renumbered(e: &Expr, f: &impl Fn(BufId) -> usize) -> Expr {
    e.rewrite(&mut |e| match e {
        Expr::Load(buffer, indices) => Some(Expr::load(f(*buffer), indices.clone())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::BinOp;
    use crate::ops::normalize;
    use crate::passes::testing::{Builder, check};

    #[test]
    fn unread_nodes_and_results_go() {
        let mut b = Builder::new(3);
        let x = b.input(&[4, 6]);
        let (scale, dead) = (b.constant(&[6]), b.constant(&[6]));
        b.binary(BinOp::Add, x, dead);
        let ty = |v| b.graph.ty(v).clone();
        let op = normalize::layer_norm(1, 1e-5, ansc_runtime::DType::F32, &ty(x), &ty(scale), None);
        let op = op.unwrap();
        assert_eq!(op.expr.outputs.len(), 3);
        let y = b.emit(op, &[x, scale]);
        let graph = check(b.finish(&[y]), run);
        assert_eq!(graph.len(), 3);
        let (_, y) = graph.outputs[0];
        assert_eq!(graph.compute_of(y.node).unwrap().expr.outputs.len(), 1);
    }
}
