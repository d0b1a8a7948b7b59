//! Constant folding: operators whose operands are all constants become constants.
//!
//! ```text
//! %3 = add(const, const)   ->   %3 = const
//! ```
//!
//! Results are those of the reference interpreter. A result stays uncomputed where it is larger
//! than [`Options::fold_bytes`] and than twice the constants it comes from, so that a small model
//! file cannot ask for terabytes (integers of 4 bits are not unpacked at all then: what reads them
//! does); or where it needs more than [`Options::fold_flops`] operations. All results together have
//! limits of that kind too.

use std::collections::HashMap;
use std::sync::Arc;

use ansc_runtime::Tensor;
use ansc_runtime::host::{self, HostOp};

use super::algebra::size;
use super::rewrite::{compute, sweep};
use super::{Options, PassError};
use crate::compute::{Compute, Stage};
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::ops::nibbles::is_unpack;

pub(crate) fn run(graph: &mut Graph, options: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    let mut budget = Budget::new(graph, options);
    for node in graph.topological() {
        if let Some(results) = evaluated(graph, node, options, &mut budget)? {
            replace(graph, node, results);
            changed = true;
        }
    }
    changed |= sweep(graph);
    Ok(changed)
}

fn evaluated(
    graph: &Graph,
    node: NodeId,
    options: &Options,
    budget: &mut Budget,
) -> Result<Option<Vec<Tensor>>, PassError> {
    let operands = graph.operands(node);
    let inputs: Option<Vec<Arc<Tensor>>> =
        operands.iter().map(|v| graph.const_of(*v).cloned()).collect();
    let Some(inputs) = inputs.filter(|inputs| fits(graph, node, inputs, options, budget)) else {
        return Ok(None);
    };
    let name = &graph.node(node).name;
    match &graph.node(node).op {
        Op::Compute(op) => compute(name, op, &inputs).map(Some),
        // Another number in each run.
        Op::Host(HostOp::Draw { .. }) => Ok(None),
        Op::Host(op) => {
            let inputs: Vec<&Tensor> = inputs.iter().map(|t| &**t).collect();
            let failed = |source| PassError::Host { node: name.clone(), source };
            host::run(op, &inputs).map(Some).map_err(failed)
        }
        _ => Ok(None),
    }
}

fn fits(
    graph: &Graph,
    node: NodeId,
    inputs: &[Arc<Tensor>],
    options: &Options,
    budget: &mut Budget,
) -> bool {
    let is_read = graph.values(node).any(|v| graph.is_output(v) || !graph.users(v).is_empty());
    if !is_read && !graph.node(node).op.is_check() {
        return false;
    }
    let read: usize = inputs.iter().map(|t| t.bytes().len()).sum();
    match &graph.node(node).op {
        Op::Compute(op) => {
            let all = op.expr.stages.iter().map(|s| s.ty.bytes());
            let written = all.fold(0usize, usize::saturating_add);
            let flops = operations(&op.expr);
            let of_read = if is_unpack(&op.kind) { 0 } else { read.saturating_mul(2) };
            written <= options.fold_bytes.max(of_read)
                && flops <= options.fold_flops
                && budget.spend(written, flops)
        }
        Op::Host(_) => {
            let all = graph.node(node).outputs.iter().map(|v| v.ty.bytes());
            let written = all.fold(0usize, usize::saturating_add);
            written <= options.fold_bytes && budget.spend(written, 0)
        }
        _ => false,
    }
}

/// The bytes and operations that folding may still take. Each result may be twice as large as its
/// operands, so a chain of a few dozen would fill any memory.
struct Budget {
    bytes: usize,
    flops: u64,
}

impl Budget {
    fn new(graph: &Graph, options: &Options) -> Budget {
        let tensors = graph.node_ids().into_iter().filter_map(|n| match &graph.node(n).op {
            Op::Const(tensor) => Some((Arc::as_ptr(tensor), tensor.bytes().len())),
            _ => None,
        });
        let distinct: HashMap<_, usize> = tensors.collect();
        let given = distinct.values().fold(0usize, |sum, &n| sum.saturating_add(n));
        Budget {
            bytes: given.saturating_mul(4).saturating_add(options.fold_bytes.saturating_mul(256)),
            flops: options.fold_flops.saturating_mul(8),
        }
    }

    fn spend(&mut self, bytes: usize, flops: u64) -> bool {
        let admitted = bytes <= self.bytes && flops <= self.flops;
        if admitted {
            self.bytes -= bytes;
            self.flops -= flops;
        }
        admitted
    }
}

/// About how many operations an expression takes.
fn operations(expr: &Compute) -> u64 {
    let stage = |s: &Stage| {
        let points = s.extents().iter().fold(1u64, |n, &d| n.saturating_mul(d as u64));
        points.saturating_mul(size(&s.body) as u64)
    };
    expr.stages.iter().map(stage).fold(0, u64::saturating_add)
}

/// Values of a size that only the data decided get their actual type.
fn replace(graph: &mut Graph, node: NodeId, results: Vec<Tensor>) {
    let values: Vec<_> = graph.values(node).collect();
    for (value, result) in values.into_iter().zip(results) {
        let name = graph.value(value).name.clone();
        let constant = graph.add_const(&name, result);
        graph.replace(value, constant);
    }
    if graph.node(node).op.is_check() {
        graph.remove(node);
    }
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;

    use super::*;
    use crate::compute::TensorType;
    use crate::expr::{BinOp, Expr};
    use crate::ops::concat::concat;
    use crate::ops::map;
    use crate::passes::testing::{Builder, check};

    #[test]
    fn chains_of_constants_become_one() {
        let mut b = Builder::new(1);
        let (c, d) = (b.constant(&[2, 3]), b.constant(&[3]));
        let sum = b.binary(BinOp::Add, c, d);
        let turned = b.transpose(sum, &[1, 0]);
        let x = b.input(&[3, 2]);
        let y = b.binary(BinOp::Mul, x, turned);
        let after = check(b.finish(&[y]), run);
        assert_eq!(after.len(), 3);
    }

    /// A check that holds goes, one that fails is an error, and one of what is not known stays.
    #[test]
    fn checks_of_known_indices_are_made() {
        let indices = Tensor::from_slice(&[2], &[0i64, 4]);
        for (extent, known, expected) in
            [(5, true, Ok(0)), (4, true, Err("lookup")), (4, false, Ok(1))]
        {
            let mut b = Builder::new(1);
            let x = b.input(&[2]);
            let ty = TensorType::of(&indices);
            let checked = match known {
                true => b.graph.add_const("indices", indices.clone()),
                false => b.graph.add_input("indices", ty, None),
            };
            let check = Op::Host(HostOp::CheckIndices { extents: vec![extent] });
            b.graph.add("lookup", check, &[checked], vec![]);
            let mut graph = b.finish(&[x]);
            let left = run(&mut graph, &Options::default()).map(|_| {
                let nodes = graph.node_ids();
                nodes.into_iter().filter(|n| graph.node(*n).op.is_check()).count()
            });
            match (left, expected) {
                (Ok(left), Ok(expected)) => assert_eq!(left, expected),
                (Err(PassError::Host { node, .. }), Err(expected)) => assert_eq!(node, expected),
                (left, expected) => panic!("{left:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn what_doubles_again_and_again_is_not_materialised() {
        let mut b = Builder::new(1);
        let mut value = b.constant(&[1 << 10]);
        for _ in 0..32 {
            let ty = b.graph.ty(value).clone();
            value = b.emit(concat(&[ty.clone(), ty], 0).unwrap(), &[value, value]);
        }
        let mut graph = b.finish(&[value]);
        let options = Options { fold_bytes: 1 << 12, ..Options::default() };
        assert!(run(&mut graph, &options).unwrap());
        let bytes = graph.node_ids().into_iter().filter_map(|n| match &graph.node(n).op {
            Op::Const(tensor) => Some(tensor.bytes().len()),
            _ => None,
        });
        assert!(bytes.sum::<usize>() <= 256 << 12);
    }

    #[test]
    fn a_bomb_is_not_materialised() {
        let mut b = Builder::new(1);
        let ty = TensorType::new(DType::F32, [1 << 20, 1 << 20]);
        let op = map::map_to(&[], ty, |_| Expr::float(DType::F32, 1.0)).unwrap();
        let bomb = b.emit(op, &[]);
        let mut graph = b.finish(&[bomb]);
        assert!(!run(&mut graph, &Options::default()).unwrap());
    }
}
