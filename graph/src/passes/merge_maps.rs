//! An elementwise expression with one reader, which is elementwise too and reads it once, becomes
//! part of that reader.
//!
//! ```text
//! %1 = sub(x, mean);  %2 = mul(%1, scale)   ->   %2 = mul(sub(x, mean), scale)
//! ```
//!
//! Fusion would put both into one kernel anyway; in one expression they can be simplified together.

use super::algebra::size;
use super::rewrite::{close, only_user, open_map, renumbered, set_op, sweep};
use super::{Options, PassError};
use crate::expr::{BufId, Expr};
use crate::graph::{Graph, NodeId, ValueId};

/// Expressions are merged up to this size, and up to this number of operands.
const MAX_SIZE: usize = 128;
const MAX_INPUTS: usize = 12;

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        while merge_one(graph, node) {
            changed = true;
        }
    }
    changed |= sweep(graph);
    Ok(changed)
}

/// Merges the first operand that can be merged into `node`.
fn merge_one(graph: &mut Graph, node: NodeId) -> bool {
    let Some(body) = open_map(graph, node) else { return false };
    let operands = graph.operands(node);
    let ty = graph.node(node).outputs[0].ty.clone();
    for (slot, &operand) in operands.iter().enumerate() {
        let once = reads(&body, slot) == 1 && only_user(graph, operand) == Some(node);
        if !once || graph.ty(operand).shape != ty.shape {
            continue;
        }
        let Some(inner) = open_map(graph, operand.node) else { continue };
        let mut values = operands.clone();
        let merged = substituted(&body, slot, &inner, operands.len());
        values.extend(graph.operands(operand.node));
        if size(&merged) <= MAX_SIZE && distinct(&values, &merged) <= MAX_INPUTS {
            let (op, inputs) = close(graph, &values, ty, &merged);
            set_op(graph, node, op, &inputs);
            return true;
        }
    }
    false
}

fn reads(body: &Expr, slot: usize) -> usize {
    body.loads().iter().filter(|(buffer, _)| buffer.index() == slot).count()
}

/// `body` with `inner`, whose loads are numbered from `first` on, for the load of `slot`.
fn substituted(body: &Expr, slot: usize, inner: &Expr, first: usize) -> Expr {
    let inner = renumbered(inner, &|buffer| buffer.index() + first);
    body.rewrite(&mut |e| match e {
        Expr::Load(buffer, _) if *buffer == BufId::new(slot) => Some(inner.clone()),
        _ => None,
    })
}

fn distinct(values: &[ValueId], body: &Expr) -> usize {
    let all: std::collections::BTreeSet<ValueId> =
        body.loads().iter().map(|(buffer, _)| values[buffer.index()]).collect();
    all.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::BinOp;
    use crate::op::Kind;
    use crate::passes::testing::{Builder, check, count};

    #[test]
    fn chains_merge_and_shared_values_do_not() {
        let mut b = Builder::new(12);
        let x = b.input(&[2, 3]);
        let (c, d) = (b.constant(&[3]), b.constant(&[2, 1]));
        let sum = b.binary(BinOp::Add, x, c);
        let shared = b.binary(BinOp::Mul, sum, d);
        let left = b.relu(shared);
        let y = b.binary(BinOp::Sub, shared, left);
        let after = check(b.finish(&[y]), run);
        // add and mul in one; max and sub in the other.
        assert_eq!(count(&after, |k| *k == Kind::Map), 2);
    }

    #[test]
    fn a_broadcast_operand_is_not_recomputed() {
        let mut b = Builder::new(12);
        let (x, s) = (b.input(&[2, 3]), b.input(&[2, 1]));
        let gate = b.binary(BinOp::Mul, s, s);
        let y = b.binary(BinOp::Mul, x, gate);
        let after = check(b.finish(&[y]), run);
        assert_eq!(count(&after, |k| *k == Kind::Map), 2);
    }
}
