//! A scale per channel behind a convolution or a matrix product moves into its weight.
//!
//! ```text
//! relu(conv(x, w) * a + b)   ->   relu(conv(x, w * a) + b)
//! ```
//!
//! The product must be read by one elementwise expression only, its weight must be constant, and
//! the scale must vary along the axis of output channels only. What the batch norm adds stays where
//! it is, as the bias. Results round differently.

use std::sync::Arc;

use ansc_runtime::Tensor;

use super::affine::{Affine, Form};
use super::rewrite::{
    built, close, compute, evaluate, only_user, open_map, reshaped, set_op, sweep,
};
use super::{Options, PassError};
use crate::compute::TensorType;
use crate::expr::{BinOp, BufId, Expr};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{Channels, Kind};
use crate::ops::map::{self, broadcast_shapes};

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        while let Some(scaled) = find(graph, node)? {
            apply(graph, node, scaled)?;
            changed = true;
        }
    }
    changed |= sweep(graph);
    Ok(changed)
}

/// A scale that moves into the weight of `product`.
struct Scaled {
    product: NodeId,
    /// One factor for each output channel, or one for all.
    factors: Tensor,
    /// The expression without the scale, in open form over the operands of its node.
    rest: Expr,
}

/// The first operand of the elementwise `node` from whose product a scale can be taken.
fn find(graph: &Graph, node: NodeId) -> Result<Option<Scaled>, PassError> {
    let Some(body) = open_map(graph, node) else { return Ok(None) };
    let operands = graph.operands(node);
    for (slot, &operand) in operands.iter().enumerate() {
        let dtype = graph.ty(operand).dtype;
        if !dtype.is_float() || weight_axis(graph, operand).is_none() {
            continue;
        }
        let alone = only_user(graph, operand) == Some(node);
        let Some((scale, rest)) = common_scale(graph, &operands, slot, &body) else { continue };
        if alone && let Some(factors) = factors(graph, operand, &operands, &scale)? {
            return Ok(Some(Scaled { product: operand.node, factors, rest }));
        }
    }
    Ok(None)
}

/// For the result of a product with constant weight: the axis of output channels of the result,
/// and that of the weight.
fn weight_axis(graph: &Graph, value: ValueId) -> Option<(usize, usize)> {
    let op = graph.compute_of(value.node)?;
    let weight = *graph.operands(value.node).get(1)?;
    graph.const_of(weight)?;
    let (out, w) = (graph.ty(value).rank(), graph.ty(weight).rank());
    match &op.kind {
        Kind::Conv(attrs) => match attrs.channels {
            Channels::First => Some((1, 0)),
            Channels::Last => Some((out - 1, w - 1)),
        },
        Kind::MatMul => Some((out - 1, w - 1)),
        _ => None,
    }
}

/// The scale that every affine part in the operand has, and the expression without it.
fn common_scale(
    graph: &Graph,
    operands: &[ValueId],
    slot: usize,
    body: &Expr,
) -> Option<(Expr, Expr)> {
    let form = Form {
        x: BufId::new(slot),
        dtype: graph.ty(operands[slot]).dtype,
        is_const: |b: BufId| graph.const_of(operands[b.index()]).is_some(),
    };
    let mut scales = Vec::new();
    let rest = form.replace(body, &mut |_, Affine { scale, offset }| {
        scales.push(scale);
        let x = Expr::load(slot, vec![]);
        offset.into_iter().fold(x, |x, offset| x + offset)
    });
    let first = scales.first()?.clone()?;
    scales.iter().all(|s| s.as_ref() == Some(&first)).then_some((first, rest))
}

/// The scale's values, if they depend on the output channel at most.
fn factors(
    graph: &Graph,
    product: ValueId,
    operands: &[ValueId],
    scale: &Expr,
) -> Result<Option<Tensor>, PassError> {
    let out = graph.ty(product);
    let shapes: Vec<&[usize]> =
        scale.loads().iter().map(|(b, _)| graph.ty(operands[b.index()]).shape.as_slice()).collect();
    let Some((axis, _)) = weight_axis(graph, product) else { return Ok(None) };
    let Ok(shape) = broadcast_shapes(shapes) else { return Ok(None) };
    let skip = out.rank().wrapping_sub(shape.len());
    let per_channel = shape.len() <= out.rank()
        && shape.iter().enumerate().all(|(i, &extent)| extent == 1 || i + skip == axis);
    if !per_channel {
        return Ok(None);
    }
    let (op, inputs) = close(graph, operands, TensorType::new(out.dtype, shape), scale);
    let tensors: Vec<Arc<Tensor>> =
        inputs.iter().filter_map(|v| graph.const_of(*v).cloned()).collect();
    let values = compute(&graph.node(product.node).name, &op, &tensors)?.swap_remove(0);
    let count = values.len();
    Ok((count == 1 || count == out.shape[axis]).then(|| values.reshaped(&[count])))
}

fn apply(graph: &mut Graph, node: NodeId, scaled: Scaled) -> Result<(), PassError> {
    let Scaled { product, factors, rest } = scaled;
    let result = ValueId { node: product, out: 0 };
    let (_, axis) = weight_axis(graph, result).expect("found above");
    let operands = graph.operands(product);
    let weight = scaled_weight(graph, product, operands[1], factors, axis)?;
    graph.set_operands(product, &[operands[0], weight]);
    graph.value_mut(result).name += "/unscaled";
    let values = graph.operands(node);
    let ty = graph.node(node).outputs[0].ty.clone();
    let (op, inputs) = close(graph, &values, ty, &rest);
    set_op(graph, node, op, &inputs);
    Ok(())
}

/// `weight` times `factors` along `axis`.
fn scaled_weight(
    graph: &mut Graph,
    product: NodeId,
    weight: ValueId,
    factors: Tensor,
    axis: usize,
) -> Result<ValueId, PassError> {
    let name = graph.value(weight).name.clone();
    let mut shape = vec![1; graph.ty(weight).rank()];
    shape[axis] = factors.len();
    let factors = graph.add_const(&name, factors);
    let factors = reshaped(graph, &name, factors, &shape)?;
    let op = map::binary(BinOp::Mul, graph.ty(weight), graph.ty(factors));
    let op = built(&graph.node(product).name, op)?;
    let tensors: Vec<Arc<Tensor>> =
        [weight, factors].iter().filter_map(|v| graph.const_of(*v).cloned()).collect();
    evaluate(graph, &name, &op, &tensors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::{Builder, check, check_all};
    use crate::passes::{fold, hoist, merge_maps, simplify};

    /// Sizes of the expressions behind products, after all that leads up to this pass.
    fn folded(graph: Graph) -> Graph {
        check_all(graph, |graph| {
            for pass in [fold::run, simplify::run, merge_maps::run, hoist::run, run] {
                pass(graph, &Options::default())?;
            }
            Ok(())
        })
    }

    fn multiplications(graph: &Graph) -> usize {
        let maps = graph.node_ids().into_iter().filter_map(|n| open_map(graph, n));
        maps.map(|body| {
            let mut count = 0;
            body.visit(&mut |e| count += usize::from(matches!(e, Expr::Binary(BinOp::Mul, ..))));
            count
        })
        .sum()
    }

    #[test]
    fn behind_a_convolution() {
        let mut b = Builder::new(15);
        let x = b.input(&[2, 3, 5, 5]);
        let y = b.conv(x, 4, 3, 1);
        let y = b.batch_norm(y);
        let y = b.relu(y);
        let after = folded(b.finish(&[y]));
        assert_eq!(multiplications(&after), 0);
        // x, weight, convolution, bias, relu of the sum
        assert_eq!(after.len(), 5);
    }

    #[test]
    fn behind_two_convolutions_that_are_added() {
        let mut b = Builder::new(16);
        let x = b.input(&[1, 3, 5, 5]);
        let (p, q) = (b.conv(x, 4, 3, 1), b.conv(x, 4, 1, 1));
        let (p, q) = (b.batch_norm(p), b.batch_norm(q));
        let sum = b.binary(BinOp::Add, p, q);
        let y = b.relu(sum);
        let before = b.finish(&[y]);
        let after = check_all(folded(before), |graph| run(graph, &Options::default()).map(drop));
        assert_eq!(multiplications(&after), 0);
    }

    #[test]
    fn behind_a_matrix_product() {
        let mut b = Builder::new(17);
        let (x, w) = (b.input(&[2, 4, 3]), b.constant(&[3, 5]));
        let (a, c) = (b.constant(&[5]), b.constant(&[4, 1]));
        let y = b.matmul(x, w);
        let y = b.binary(BinOp::Mul, y, a);
        let per_row = b.binary(BinOp::Mul, y, c);
        assert_eq!(multiplications(&check(b.finish(&[per_row]), run)), 1);
    }

    #[test]
    fn not_where_the_product_has_other_readers() {
        let mut b = Builder::new(18);
        let (x, w) = (b.input(&[4, 3]), b.constant(&[3, 5]));
        let a = b.constant(&[5]);
        let y = b.matmul(x, w);
        let scaled = b.binary(BinOp::Mul, y, a);
        let mut graph = b.finish(&[y, scaled]);
        assert!(!run(&mut graph, &Options::default()).unwrap());
    }
}
