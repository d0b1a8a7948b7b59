//! Names of nodes whose precision is asked for, and how far results may be from those of `f32`.

use std::collections::BTreeSet;

use ansc_frontend::similar;
use ansc_graph::passes::is_product;
use ansc_graph::{Graph, Op, TensorType};
use ansc_runtime::{DType, Precision, Precisions};

use crate::Error;

/// Nodes that an error lists as examples.
const EXAMPLES: usize = 3;

/// The error that outputs of an artifact may have, relative to the largest element of an output.
///
/// An output is the end of a few dozen layers, each of which rounds its operands by up to the unit
/// roundoff. Their errors have either sign, so that they add up to several times one of them, not
/// to dozens.
pub fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-4,
        rounded => 16.0 * rounded.unit_roundoff(),
    }
}

/// The same of a graph. One that rounds floats to bytes itself may have as much as integers cost:
/// what differs by the last bit may be rounded to another integer.
pub fn tolerance_of(graph: &Graph, precision: Precision) -> f64 {
    let own = tolerance(precision);
    if rounds_to_bytes(graph) { own.max(tolerance(Precision::Int8)) } else { own }
}

/// Whether a node of the graph makes bytes of floats.
pub fn rounds_to_bytes(graph: &Graph) -> bool {
    graph.node_ids().into_iter().filter_map(|id| graph.compute_of(id)).any(|op| {
        let byte = |ty: &TensorType| matches!(ty.dtype, DType::I8 | DType::U8);
        let floats = op.expr.inputs.iter().any(|ty| ty.dtype.is_float());
        let sums = op.expr.inputs.iter().any(|ty| ty.dtype == DType::I32);
        (floats || sums) && op.expr.output_types().iter().any(byte)
    })
}

/// The error that one kernel may have of its own, relative to the largest element of its result.
///
/// It rounds two operands and its result, of which the operands may be larger than what it leaves,
/// as before a clip.
pub fn tolerance_of_kernel(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-4,
        rounded => 8.0 * rounded.unit_roundoff(),
    }
}

/// An error for a name that no convolution or matrix product of the model has.
pub fn check(graph: &Graph, precisions: &Precisions) -> Result<(), Error> {
    if precisions.nodes.is_empty() {
        return Ok(());
    }
    let mut names = Names::default();
    names.collect(graph);
    for (name, precision) in &precisions.nodes {
        if !names.products.contains(name.as_str()) {
            let problem = names.problem(name);
            return Err(Error::Usage(format!("`--precision {name}={precision}`: {problem}")));
        }
    }
    Ok(())
}

/// Names of the nodes of a graph and of the bodies in it.
#[derive(Default)]
struct Names<'a> {
    all: BTreeSet<&'a str>,
    products: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    fn collect(&mut self, graph: &'a Graph) {
        for id in graph.node_ids() {
            let node = graph.node(id);
            match &node.op {
                Op::Compute(_) | Op::Host(_) => {
                    self.all.insert(&node.name);
                }
                Op::If(op) => {
                    self.collect(&op.then_branch);
                    self.collect(&op.else_branch);
                }
                Op::Loop(op) => self.collect(&op.body),
                Op::Input { .. } | Op::Const(_) => {}
            }
            if is_product(graph, id) {
                self.products.insert(&node.name);
            }
        }
    }

    /// The reason why a name is none to choose a precision for, and names that are.
    fn problem(&self, name: &str) -> String {
        let quoted = |names: &mut dyn Iterator<Item = &&str>| {
            names.take(EXAMPLES).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let reason = match self.all.contains(name) {
            true => format!(
                "`{name}` is no convolution or matrix product of f32 with enough terms, and only \
                 those round what they read"
            ),
            false => format!("the model has no node `{name}`"),
        };
        let near = similar(name, self.products.iter().copied());
        match (near.is_empty(), self.products.is_empty()) {
            (_, true) => format!("{reason}; this model has none"),
            (true, _) => format!("{reason}; such are {}", quoted(&mut self.products.iter())),
            (false, _) => format!("{reason}; similar names are {}", quoted(&mut near.iter())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_bits_are_given_more_tolerance() {
        let all @ [full, tf32, bf16, f16, _] = Precision::ALL.map(tolerance);
        assert!(full < f16 && f16 < bf16 && f16 == tf32, "{all:?}");
        for precision in Precision::ALL {
            assert!(tolerance_of_kernel(precision) <= tolerance(precision));
        }
    }

    #[test]
    fn names_are_suggested() {
        let names =
            Names { all: ["conv1", "relu1", "fc"].into(), products: ["conv1", "fc"].into() };
        let none = Names { all: ["relu1"].into(), products: BTreeSet::new() };
        for (names, name, expected) in [
            (&names, "con1", "the model has no node `con1`; similar names are `conv1`"),
            (&names, "pooling", "the model has no node `pooling`; such are `conv1`, `fc`"),
            (&none, "pooling", "the model has no node `pooling`; this model has none"),
        ] {
            assert_eq!(names.problem(name), expected);
        }
        assert!(names.problem("relu1").starts_with("`relu1` is no convolution"));
    }
}
