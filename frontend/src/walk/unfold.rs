//! How much work it is to import a model whose functions call each other.
//!
//! A function is imported at each of its calls, and so is the body of a loop for each copy of it.
//! Nested, a few lines of a file unfold to more nodes than there is time for. So each body is
//! counted before it is imported, with everything in it that import looks at.

use tract_onnx::pb::{AttributeProto, ModelProto, NodeProto};

use super::build::MAX_DEPTH;
use crate::order::subgraphs;
use crate::problem::Problem;

/// Nodes that a model may unfold to, whatever its size.
const BASE: u64 = 1 << 17;
/// Bytes of names and attributes that are as much work as a node.
const BYTES_PER_NODE: usize = 256;

pub(super) struct Unfolding {
    imported: u64,
    limit: u64,
}

impl Unfolding {
    pub(super) fn of(model: &ModelProto) -> Unfolding {
        let main = model.graph.iter().map(|g| weight(&g.node));
        let functions = model.functions.iter().map(|f| weight(&f.node));
        // A body is counted for each level that it is nested in.
        let listed: u64 = main.chain(functions).sum();
        Unfolding { imported: 0, limit: BASE + listed.saturating_mul(MAX_DEPTH as u64) }
    }

    pub(super) fn add(&mut self, nodes: &[NodeProto]) -> Result<(), Problem> {
        self.imported = self.imported.saturating_add(weight(nodes));
        if self.imported <= self.limit {
            return Ok(());
        }
        let limit = self.limit;
        let reason = format!(
            "the model unfolds to more than {limit} nodes: each call of a function, and each copy of a \
             loop's body, counts with all nodes in it"
        );
        let remedy = "nest functions less deeply, or let fewer nodes call them";
        Err(Problem::new(reason).remedy(remedy))
    }
}

fn weight(nodes: &[NodeProto]) -> u64 {
    let inner = |node: &NodeProto| subgraphs(node).map(|g| weight(&g.node)).sum::<u64>();
    nodes.iter().map(|node| 1 + (bytes(node) / BYTES_PER_NODE) as u64 + inner(node)).sum()
}

/// The bytes that the import of a node reads. Tensors do not count, since they are decoded once.
fn bytes(node: &NodeProto) -> usize {
    let names = node.input.iter().chain(&node.output).chain([&node.name, &node.op_type]);
    let attribute = |a: &AttributeProto| {
        let texts: usize = a.strings.iter().map(Vec::len).sum();
        size_of_val(&a.ints[..]) + size_of_val(&a.floats[..]) + a.s.len() + texts + a.name.len()
    };
    names.map(String::len).sum::<usize>() + node.attribute.iter().map(attribute).sum::<usize>()
}
