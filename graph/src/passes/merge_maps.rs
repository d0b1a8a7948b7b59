//! An elementwise expression with one reader, which is elementwise too and reads it once, becomes
//! part of that reader.
//!
//! ```text
//! %1 = sub(x, mean);  %2 = mul(%1, scale)   ->   %2 = mul(sub(x, mean), scale)
//! ```
//!
//! Fusion would put both into one kernel anyway; in one expression they can be simplified together.
//!
//! Where two products meet, only one of them can take what follows. The other one is stored, and
//! keeps the map that makes its result narrower:
//!
//! ```text
//! %1 = conv(..): i32;  %2 = u8(round(%1 * s))     stays, stored as u8
//! %3 = conv(..): i32;  %4 = add(f32(u8(round(%3 * t))), f32(%2))
//! ```

use super::algebra::size;
use super::rewrite::{close, only_user, open_map, renumbered, set_op, sweep};
use super::{Options, PassError};
use crate::expr::{BufId, Expr};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Kind;

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
        if narrows(graph, operand) && meets_product(graph, operand, node) {
            continue;
        }
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

/// Whether a product becomes narrower by this map.
fn narrows(graph: &Graph, result: ValueId) -> bool {
    let bytes = |v: ValueId| graph.ty(v).dtype.size();
    graph
        .operands(result.node)
        .into_iter()
        .any(|v| is_product(graph, v) && bytes(result) < bytes(v))
}

/// Whether the maps that alone read the value lead to another product.
fn meets_product(graph: &Graph, value: ValueId, reader: NodeId) -> bool {
    let shape = &graph.ty(value).shape;
    let is_other = |v: &ValueId| *v != value && graph.ty(*v).shape == *shape;
    if graph.operands(reader).iter().any(|v| is_other(v) && ends_product(graph, *v)) {
        return true;
    }
    let result = graph.values(reader).next();
    let next = result.and_then(|v| Some((v, only_user(graph, v)?)));
    next.is_some_and(|(v, next)| open_map(graph, next).is_some() && meets_product(graph, v, next))
}

/// Whether the value is a product's, or made of one by maps that nothing else reads.
fn ends_product(graph: &Graph, value: ValueId) -> bool {
    let is_own = |v: &ValueId| graph.ty(*v).shape == graph.ty(value).shape;
    only_user(graph, value).is_some()
        && (is_product(graph, value)
            || open_map(graph, value.node).is_some()
                && graph.operands(value.node).iter().any(|v| is_own(v) && ends_product(graph, *v)))
}

fn is_product(graph: &Graph, value: ValueId) -> bool {
    let kind = graph.compute_of(value.node).map(|op| &op.kind);
    matches!(kind, Some(Kind::Conv(_) | Kind::MatMul))
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
    use ansc_runtime::DType;

    use super::*;
    use crate::expr::BinOp;
    use crate::ops::map;
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

    /// Two products that meet are each stored as narrow as they are read; the map of a single one
    /// merges with what follows.
    #[test]
    fn products_that_meet_are_stored_narrow() {
        let half = |b: &mut Builder, v| {
            let op = map::cast(b.graph.ty(v), DType::F16).unwrap();
            let narrow = b.emit(op, &[v]);
            let op = map::cast(b.graph.ty(narrow), DType::F32).unwrap();
            b.emit(op, &[narrow])
        };
        for meet in [true, false] {
            let mut b = Builder::new(12);
            let (x, other) = (b.input(&[2, 3]), b.input(&[2, 4]));
            let w = b.constant(&[3, 4]);
            let one = b.matmul(x, w);
            let left = half(&mut b, one);
            let right = if meet {
                let two = b.matmul(x, w);
                half(&mut b, two)
            } else {
                other
            };
            let y = b.binary(BinOp::Add, left, right);
            let after = check(b.finish(&[y]), run);
            assert_eq!(count(&after, |k| *k == Kind::Map), if meet { 3 } else { 1 });
        }
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
