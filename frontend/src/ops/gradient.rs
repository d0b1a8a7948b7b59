//! `Gradient`: the derivatives of one tensor of the graph by others, in reverse mode.
//!
//! The operators between `xs` and `y` are walked backwards; each adds its adjoint, which follows
//! from its expression. Nothing of this is left after the import:
//!
//! ```text
//! c = Add(a, b);  d = Mul(c, a);  Gradient<xs = [a], y = d>(a)   ->   dc = 1 * a;  da = 1 * c + dc
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ansc_graph::ops::adjoint::adjoint;
use ansc_graph::ops::{fill, map};
use ansc_graph::{BinOp, NodeId, Op, Scalar, ValueId};

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::training("Gradient", gradient)];

fn gradient(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let xs = independent(ctx)?;
    let name = ctx.string("y", "");
    let y = ctx
        .named(&name)
        .ok_or_else(|| ctx.problem(format!("nothing computes the tensor `{name}`, its `y`")))?;
    let mut gradients = BTreeMap::from([(y, filled(ctx, y, 1.0)?)]);
    let path = path(ctx, &xs, y);
    let leads = |v: &ValueId| xs.contains(v) || path.contains(&v.node);
    for &node in &path {
        backward(ctx, node, &leads, &mut gradients)?;
    }
    let count = ctx.strings("xs").map_or(0, |xs| xs.len());
    xs[..count]
        .iter()
        .map(|x| gradients.get(x).map_or_else(|| filled(ctx, *x, 0.0), |&g| Ok(g)))
        .collect()
}

/// The tensors of `xs`, then those of `zs`: gradients end at them.
fn independent(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let names = ["xs", "zs"].map(|name| ctx.strings(name).unwrap_or_default()).concat();
    let values = ctx.all_inputs()?;
    ctx.check(names.len() == values.len(), || "its inputs are not its `xs` and `zs`".into())?;
    for (name, value) in names.iter().zip(&values) {
        let own = ctx.named(name) == Some(*value);
        ctx.check(own, || format!("its input for `{name}` is another tensor than `{name}`"))?;
    }
    Ok(values)
}

/// A tensor of the type of `like`, every element `value`.
fn filled(ctx: &mut NodeCtx<'_>, like: ValueId, value: f64) -> Result<ValueId, Problem> {
    let ty = ctx.ty(like);
    ctx.check(ty.dtype.is_float(), || format!("there is no gradient of type {}", ty.dtype))?;
    ctx.emit1(fill::constant(Scalar::from_f64(ty.dtype, value), &ty.shape), &[])
}

/// The nodes that `y` depends on and that depend on `xs`, readers before operands.
fn path(ctx: &NodeCtx<'_>, xs: &[ValueId], y: ValueId) -> Vec<NodeId> {
    let graph = ctx.graph_here();
    let mut above = BTreeSet::new();
    let mut pending = vec![y];
    while let Some(value) = pending.pop() {
        if !xs.contains(&value) && above.insert(value.node) {
            pending.extend(graph.operands(value.node));
        }
    }
    let mut between = BTreeSet::new();
    let mut order: Vec<NodeId> = vec![];
    for node in graph.topological().into_iter().filter(|node| above.contains(node)) {
        let reads = |v: &ValueId| xs.contains(v) || between.contains(&v.node);
        if graph.operands(node).iter().any(reads) {
            between.insert(node);
            order.push(node);
        }
    }
    order.reverse();
    order
}

/// Hands the gradients of a node's results on to those operands that lead to an independent tensor.
fn backward(
    ctx: &mut NodeCtx<'_>,
    node: NodeId,
    leads: &impl Fn(&ValueId) -> bool,
    gradients: &mut BTreeMap<ValueId, ValueId>,
) -> Result<(), Problem> {
    let graph = ctx.graph_here();
    let name = graph.node(node).name.clone();
    let Op::Compute(op) = &graph.node(node).op else {
        return Err(ctx.problem(format!("`{name}` cannot be differentiated")));
    };
    let (compute, mut inputs) = (Arc::clone(&op.expr), graph.operands(node));
    let results: Vec<ValueId> = graph.values(node).collect();
    if !results.iter().any(|v| gradients.contains_key(v)) {
        return Ok(());
    }
    let wanted: Vec<bool> = inputs.iter().map(leads).collect();
    let receivers: Vec<ValueId> = inputs.iter().copied().filter(leads).collect();
    for result in results {
        let known = gradients.get(&result).copied();
        inputs.push(known.map_or_else(|| filled(ctx, result, 0.0), Ok)?);
    }
    let made = adjoint(&compute, &wanted);
    let made = made.map_err(|e| ctx.problem(format!("through `{name}`: {e}")))?;
    for (operand, part) in receivers.iter().zip(ctx.emit(Ok(made), &inputs)?) {
        let total = match gradients.get(operand) {
            Some(&so_far) => {
                let ty = ctx.ty(part);
                ctx.emit1(map::binary(BinOp::Add, &ty, &ty), &[so_far, part])?
            }
            None => part,
        };
        gradients.insert(*operand, total);
    }
    Ok(())
}
