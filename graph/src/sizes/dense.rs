//! Inputs that are read where the caller has them, whatever their sizes.
//!
//! In: a graph for a range of sizes. Out: the same, and for each input whether it lies densely in
//! the memory of its largest size: large ones of which an inner axis varies, and which are read
//! element by element. Others are copied to where the elements of the largest one are.
//!
//! ```text
//! y[h, i] = x[h, i] + 1                                        x: [4, s], s in 1..=100
//! ->  flat = reshape(x, [400])
//!     y[h, i] = select(i < s, flat[h * s + i], 0) + 1
//! ```
//!
//! Nothing beyond the caller's elements is read.

use std::sync::Arc;

use ansc_runtime::Extent;

use super::Ranged;
use super::build::Readers;
use super::formula::{expression, slots, used};
use crate::compute::{Compute, Stage};
use crate::expr::Expr;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind, Op};
use crate::ops::shape;
use crate::passes::rewrite;
use crate::scalar::Scalar;

/// A smaller input is copied in no time.
const LEAST_BYTES: usize = 1 << 18;

/// Reads inputs densely where that pays; tells for each whether it does.
pub fn read_dense(ranged: &mut Ranged) -> Vec<bool> {
    let inputs = ranged.graph.inputs().to_vec();
    let sizes: Vec<ValueId> =
        inputs[ranged.inputs.len()..].iter().map(|&node| ValueId { node, out: 0 }).collect();
    let graph = &mut ranged.graph;
    let each = inputs.iter().zip(&ranged.inputs).map(|(&node, extents)| {
        let axis = inner_axis(graph, node, extents).filter(|_| is_mapped(graph, node));
        axis.is_some_and(|axis| read(graph, node, (axis, &extents[axis]), &sizes).is_some())
    });
    each.collect()
}

/// The only axis that varies, if the rows before it are several, and all is worth it.
fn inner_axis(graph: &Graph, node: NodeId, extents: &[Extent]) -> Option<usize> {
    let ty = graph.ty(ValueId { node, out: 0 });
    let mut varying = (0..extents.len()).filter(|&axis| !extents[axis].is_constant());
    let (Some(axis), None) = (varying.next(), varying.next()) else { return None };
    let rows: usize = ty.shape[..axis].iter().product();
    (rows > 1 && ty.bytes() >= LEAST_BYTES).then_some(axis)
}

/// Whether each element is read for a result of its own: no sum goes over them.
fn is_mapped(graph: &Graph, node: NodeId) -> bool {
    let value = ValueId { node, out: 0 };
    let is_map = |node: NodeId| match &graph.node(node).op {
        Op::Compute(op) => op.expr.stages.iter().all(|stage| stage.reduce.is_none()),
        _ => false,
    };
    let is_bound = matches!(graph.node(node).op, Op::Input { bound: Some(_) });
    !is_bound && !graph.is_output(value) && graph.users(value).iter().all(|(user, _)| is_map(*user))
}

fn read(
    graph: &mut Graph,
    node: NodeId,
    (axis, extent): (usize, &Extent),
    sizes: &[ValueId],
) -> Option<()> {
    let value = ValueId { node, out: 0 };
    let ty = graph.ty(value).clone();
    let readers = Readers::of(graph, value);
    let name = graph.node(node).name.clone();
    let flat = rewrite::add(graph, &name, shape::reshape(&ty, &[ty.len()]).ok()?, &[value]);
    let used = used(std::iter::once(extent));
    let end = expression(extent, &slots(&used, 1));
    let at = |axes: std::ops::Range<usize>| {
        let indices: Vec<Expr> = axes.clone().map(Expr::var).collect();
        crate::flat::flattened(&indices, &ty.shape[axes])
    };
    let inner: usize = ty.shape[axis + 1..].iter().product();
    let row = at(0..axis) * end.clone() + Expr::var(axis);
    let place = row * Expr::index(inner) + at(axis + 1..ty.rank());
    let body = Expr::select(
        Expr::var(axis).lt(end),
        Expr::load(0, vec![place]),
        Expr::Const(Scalar::zero(ty.dtype)),
    );
    let inputs: Vec<ValueId> =
        std::iter::once(flat).chain(used.iter().map(|&size| sizes[size])).collect();
    let types = inputs.iter().map(|input| graph.ty(*input).clone()).collect();
    let expr = Compute::single(types, Stage::map("dense", ty, body));
    let op = ComputeOp { kind: Kind::Other("dense".into()), expr: Arc::new(expr) };
    let new = rewrite::add(graph, &name, op, &inputs);
    readers.read(graph, new);
    Some(())
}
