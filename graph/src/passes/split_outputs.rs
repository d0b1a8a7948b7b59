//! Expressions with several results that share no stage become one node for each result, so that
//! fusion can place each with its reader.
//!
//! ```text
//! %a, %b = split(x)   ->   %a = slice(x);  %b = slice(x)
//! ```

use super::dce::needed;
use super::rewrite::{add, supersede};
use super::{Options, PassError};
use crate::compute::Compute;
use crate::expr::{BinOp, Expr};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind};

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        changed |= split(graph, node);
    }
    Ok(changed)
}

fn split(graph: &mut Graph, node: NodeId) -> bool {
    let Some(op) = graph.compute_of(node).cloned() else { return false };
    let parts: Vec<_> = op.expr.outputs.iter().map(|&s| needed(&op.expr, &[s])).collect();
    let stages: usize = parts.iter().map(|(part, _)| part.stages.len()).sum();
    if parts.len() < 2 || stages != op.expr.stages.len() {
        return false;
    }
    let operands = graph.operands(node);
    let name = graph.node(node).name.clone();
    for (out, (part, slots)) in parts.into_iter().enumerate() {
        let inputs: Vec<ValueId> = slots.iter().map(|&slot| operands[slot]).collect();
        let kind = kind_of(&part, &op.kind);
        let new = add(graph, &name, ComputeOp::new(kind, part), &inputs);
        supersede(graph, ValueId { node, out: out as u32 }, new);
    }
    graph.remove(node);
    true
}

/// The kind of one result: a slice can be told from its expression.
fn kind_of(part: &Compute, whole: &Kind) -> Kind {
    match part.stages.as_slice() {
        [stage] if stage.reduce.is_none() && is_slice(&stage.body) => Kind::Slice,
        _ => whole.clone(),
    }
}

fn is_slice(body: &Expr) -> bool {
    let Expr::Load(_, indices) = body else { return false };
    indices.iter().enumerate().all(|(axis, index)| match index {
        Expr::Binary(BinOp::Add, v, offset) => {
            **v == Expr::var(axis) && offset.as_const().is_some()
        }
        v => *v == Expr::var(axis),
    })
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;

    use super::*;
    use crate::compute::{Stage, TensorType};
    use crate::graph::Value;
    use crate::op::Op;
    use crate::passes::testing::{Builder, check, count};

    #[test]
    fn a_split_becomes_slices() {
        let mut b = Builder::new(4);
        let x = b.input(&[2, 6]);
        let ty = TensorType::new(DType::F32, [2, 3]);
        let half = |by| {
            let column = Expr::var(1) + Expr::int(by);
            Stage::map("part", ty.clone(), Expr::load(0, vec![Expr::var(0), column]))
        };
        let expr = Compute {
            inputs: vec![b.graph.ty(x).clone()],
            stages: vec![half(0), half(3)],
            outputs: vec![1, 0],
        };
        let outputs = vec![Value::new("high", ty.clone()), Value::new("low", ty.clone())];
        let op = Op::Compute(ComputeOp::new(Kind::Other("Split".into()), expr));
        let node = b.graph.add("split", op, &[x], outputs);
        let values: Vec<ValueId> = b.graph.values(node).collect();
        let after = check(b.finish(&values), run);
        assert_eq!(count(&after, |k| *k == Kind::Slice), 2);
        assert_eq!(after.value(after.outputs[0].1).name, "high");
    }
}
