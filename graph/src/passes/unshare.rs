//! Each reader of a weight that is made of bytes gets a weight of its own, which it makes where it
//! reads it.
//!
//! ```text
//! %2 = mul(cast(%codes), %scale);  gather(%2, %ids);  matmul(%x, transpose(%2))
//! ->
//! %2 = mul(cast(%codes), %scale);  gather(%2, %ids);  %3 = mul(cast(%codes), %scale);  matmul(%x, transpose(%3))
//! ```
//!
//! Shared, it would be in memory as a whole, several times as large as its bytes: it was too large
//! to be folded. It comes after the last search for common subexpressions, which undoes it.

use std::collections::BTreeSet;

use super::{Options, PassError};
use crate::fuse::{Pattern, pattern};
use crate::graph::{Graph, NodeId, ValueId};

/// Readers of one value that get their own at most.
const MOST: usize = 8;

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let order = graph.topological();
    let made = made_of_bytes(graph, &order);
    let mut changed = false;
    // Readers first: what a copy of them reads has one reader more.
    for &node in order.iter().rev().filter(|node| made.contains(node)) {
        let value = ValueId { node, out: 0 };
        let users = graph.users(value);
        if graph.is_output(value) || users.len() > MOST {
            continue;
        }
        for (reader, slot) in users.into_iter().skip(1) {
            let copy = copied(graph, node);
            let mut operands = graph.operands(reader);
            operands[slot as usize] = copy;
            graph.set_operands(reader, &operands);
            changed = true;
        }
    }
    Ok(changed)
}

/// Elementwise or moved, of constants alone, some of which have elements of a byte.
fn made_of_bytes(graph: &Graph, order: &[NodeId]) -> BTreeSet<NodeId> {
    let (mut known, mut of_bytes) = (BTreeSet::new(), BTreeSet::new());
    for &node in order {
        let Some(op) = graph.compute_of(node) else { continue };
        let operands = graph.operands(node);
        let is_known = |v: &ValueId| graph.const_of(*v).is_some() || known.contains(&v.node);
        if pattern(op) > Pattern::Injective || !operands.iter().all(is_known) {
            continue;
        }
        known.insert(node);
        let is_of_bytes = |v: &ValueId| {
            let ty = graph.ty(*v);
            let bytes = graph.const_of(*v).is_some() && ty.dtype.is_int() && ty.dtype.size() == 1;
            bytes || of_bytes.contains(&v.node)
        };
        if operands.iter().any(is_of_bytes) {
            of_bytes.insert(node);
        }
    }
    of_bytes
}

fn copied(graph: &mut Graph, node: NodeId) -> ValueId {
    let (operands, original) = (graph.operands(node), graph.node(node).clone());
    let node = graph.add(&original.name, original.op, &operands, original.outputs);
    ValueId { node, out: 0 }
}

#[cfg(test)]
mod tests {
    use ansc_runtime::{DType, Tensor};

    use super::*;
    use crate::ops::quantize::dequantize;
    use crate::passes::testing::{Builder, check};

    /// A dequantised table, and the same transposed.
    fn table(b: &mut Builder) -> (ValueId, ValueId) {
        let codes = b.graph.add_const("codes", Tensor::from_slice(&[4, 3], &[5i8; 12]));
        let scale = b.constant(&[4, 1]);
        let types = [codes, scale].map(|v| b.graph.ty(v).clone());
        let op = dequantize(DType::F32, &types[0], &types[1], None).unwrap();
        let table = b.emit(op, &[codes, scale]);
        (table, b.transpose(table, &[1, 0]))
    }

    #[test]
    fn every_reader_gets_its_own() {
        let mut b = Builder::new(7);
        let (table, turned) = table(&mut b);
        let (x, y) = (b.input(&[2, 3]), b.input(&[2, 4]));
        let outputs = [b.matmul(x, turned), b.matmul(y, table), b.matmul(x, turned)];
        let after = check(b.finish(&outputs), run);
        let shared = after.node_ids().into_iter().filter(|&n| after.compute_of(n).is_some());
        assert!(shared.into_iter().all(|n| after.users(ValueId { node: n, out: 0 }).len() <= 1));
        // Three products, three tables, two of them transposed; an input twice, two constants.
        assert_eq!(after.len(), 3 + 3 + 2 + 2 + 2);
    }

    #[test]
    fn results_and_floats_stay_shared() {
        let mut b = Builder::new(7);
        let (table, turned) = table(&mut b);
        let x = b.input(&[2, 3]);
        let product = b.matmul(x, turned);
        let floats = b.constant(&[3, 4]);
        let doubled = b.relu(floats);
        let more = [b.matmul(x, doubled), b.matmul(x, doubled)];
        let mut graph = b.finish(&[table, product, more[0], more[1]]);
        assert!(!run(&mut graph, &Options::default()).unwrap());
    }
}
