//! Pointwise convolutions, and products of a batch with one matrix, become plain matrix products.
//!
//! ```text
//! conv(x: [n, h, w, c], w: [1, 1, c, m])  ->  reshape([n, h, w, m], matmul([n * h * w, c], [c, m]))
//! conv(x: [n, c, h, w], w: [m, c, 1, 1])  ->  reshape([n, m, h, w], matmul([m, c], [n, c, h * w]))
//! matmul(a: [b, m, k], w: [k, n])         ->  reshape([b, m, n], matmul([b * m, k], [k, n]))
//! ```
//!
//! Convolutions must have neither padding nor groups, and stride 1 if they are channels-last;
//! channels-first ones read a slice if they have another. Reshapes cost nothing; `reshapes` moves
//! them behind what is elementwise.

use super::rewrite::{add, built, reshaped, supersede, sweep};
use super::{Options, PassError};
use crate::compute::TensorType;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{Channels, ConvAttrs, Kind};
use crate::ops::{matmul, slice};

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        let Some(op) = graph.compute_of(node) else { continue };
        if graph.node(node).outputs[0].ty.is_empty() {
            continue;
        }
        match &op.kind {
            Kind::Conv(attrs) if is_pointwise(attrs) => flatten(graph, node)?,
            Kind::MatMul if has_one_matrix(graph, node) => flatten(graph, node)?,
            Kind::Conv(attrs)
                if is_product_as_it_stands(attrs, graph.ty(graph.operands(node)[0])) =>
            {
                let strides = attrs.strides.clone();
                flatten_first(graph, node, &strides)?;
            }
            _ => continue,
        }
        changed = true;
    }
    changed |= sweep(graph);
    Ok(changed)
}

fn is_pointwise(attrs: &ConvAttrs) -> bool {
    [attrs.channels, attrs.input] == [Channels::Last; 2]
        && is_product(attrs)
        && attrs.strides.iter().all(|&stride| stride == 1)
}

/// Pixels that fill vectors well enough.
const ENOUGH_PIXELS: usize = 128;

/// Whether a convolution of `x` is a product of matrices without any transpose, and as good as a
/// channels-last one.
pub(super) fn is_product_as_it_stands(attrs: &ConvAttrs, x: &TensorType) -> bool {
    [attrs.channels, attrs.input] == [Channels::First; 2]
        && is_product(attrs)
        && x.dtype.is_float()
        && sliced(&x.shape, &attrs.strides)[2..].iter().product::<usize>() >= ENOUGH_PIXELS
}

fn is_product(attrs: &ConvAttrs) -> bool {
    let all = |values: &[usize], value| values.iter().all(|&v| v == value);
    attrs.groups == 1
        && all(&attrs.kernel, 1)
        && all(&attrs.pads_begin, 0)
        && all(&attrs.pads_end, 0)
}

/// The shape of what windows of one pixel read.
fn sliced(shape: &[usize], strides: &[usize]) -> Vec<usize> {
    let (outer, pixels) = shape.split_at(2);
    let read = pixels.iter().zip(strides).map(|(extent, stride)| extent.div_ceil(*stride));
    outer.iter().copied().chain(read).collect()
}

/// Whether the second operand is one matrix for all of a batch that the first one has.
fn has_one_matrix(graph: &Graph, node: NodeId) -> bool {
    let operands = graph.operands(node);
    let (a, b) = (graph.ty(operands[0]), graph.ty(operands[1]));
    let batch = &b.shape[..b.rank() - 2];
    a.rank() > 2 && a.rank() >= b.rank() && batch.iter().all(|&extent| extent == 1)
}

/// Both operators contract the last axis of the first operand with the last but one of the second.
fn flatten(graph: &mut Graph, node: NodeId) -> Result<(), PassError> {
    let operands = graph.operands(node);
    let name = graph.node(node).name.clone();
    let value = ValueId { node, out: 0 };
    let shape = graph.ty(value).shape.clone();
    let weight = &graph.ty(operands[1]).shape;
    let [k, n] = [weight[weight.len() - 2], weight[weight.len() - 1]];
    let rows = shape[..shape.len() - 1].iter().product();
    let a = reshaped(graph, &name, operands[0], &[rows, k])?;
    let b = reshaped(graph, &name, operands[1], &[k, n])?;
    let op = built(&name, matmul::matmul(graph.ty(a), graph.ty(b)))?;
    let product = add(graph, &name, op, &[a, b]);
    let result = reshaped(graph, &name, product, &shape)?;
    supersede(graph, value, result);
    Ok(())
}

/// The pixels that are read are the columns of the second factor.
fn flatten_first(graph: &mut Graph, node: NodeId, strides: &[usize]) -> Result<(), PassError> {
    let operands = graph.operands(node);
    let name = graph.node(node).name.clone();
    let value = ValueId { node, out: 0 };
    let shape = graph.ty(value).shape.clone();
    let x = read_by(graph, &name, operands[0], strides)?;
    let (batch, channels) = (shape[0], graph.ty(x).shape[1]);
    let columns = vec![batch, channels, shape[2..].iter().product()];
    let b = reshaped(graph, &name, x, if batch == 1 { &columns[1..] } else { &columns })?;
    let a = reshaped(graph, &name, operands[1], &[shape[1], channels])?;
    let op = built(&name, matmul::matmul(graph.ty(a), graph.ty(b)))?;
    let product = add(graph, &name, op, &[a, b]);
    let result = reshaped(graph, &name, product, &shape)?;
    supersede(graph, value, result);
    Ok(())
}

/// The pixels at which windows begin, as a slice where there is a stride.
fn read_by(
    graph: &mut Graph,
    name: &str,
    x: ValueId,
    strides: &[usize],
) -> Result<ValueId, PassError> {
    let steps: Vec<i64> = [1, 1].into_iter().chain(strides.iter().map(|&s| s as i64)).collect();
    if steps.iter().all(|&step| step == 1) {
        return Ok(x);
    }
    let ty = graph.ty(x);
    let extents = sliced(&ty.shape, strides);
    let op = built(name, slice::slice(ty, &vec![0; steps.len()], &steps, &extents))?;
    Ok(add(graph, name, op, &[x]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::layout;
    use crate::passes::testing::{Builder, check, count};

    fn products(graph: &Graph) -> Vec<Vec<usize>> {
        let is_product =
            |n: &NodeId| graph.compute_of(*n).is_some_and(|op| op.kind == Kind::MatMul);
        let nodes = graph.topological().into_iter().filter(is_product);
        nodes.map(|n| graph.node(n).outputs[0].ty.shape.clone()).collect()
    }

    #[test]
    fn channels_last() {
        let mut b = Builder::new(30);
        let x = b.input(&[2, 3, 4, 4]);
        let y = b.conv(x, 5, 1, 1);
        let y = b.conv(y, 6, 1, 2);
        let graph = check(b.finish(&[y]), layout::run);
        let after = check(graph, run);
        assert_eq!(products(&after), [[32, 5]]);
        assert_eq!(count(&after, |k| matches!(k, Kind::Conv(_))), 1);
    }

    #[test]
    fn channels_first() {
        for (batch, stride, expected) in
            [(1, 1, vec![5, 27 * 25]), (1, 2, vec![5, 14 * 13]), (2, 2, vec![2, 5, 14 * 13])]
        {
            let mut b = Builder::new(32);
            let x = b.input(&[batch, 3, 27, 25]);
            let y = b.conv(x, 5, 1, stride);
            let after = check(b.finish(&[y]), run);
            assert_eq!(products(&after), [expected]);
        }
        let mut b = Builder::new(33);
        let x = b.input(&[1, 3, 8, 8]);
        let y = b.conv(x, 5, 1, 1);
        assert!(products(&check(b.finish(&[y]), run)).is_empty(), "few pixels");
    }

    #[test]
    fn batches_with_one_matrix() {
        let mut b = Builder::new(31);
        let (x, w, v) = (b.input(&[2, 4, 3]), b.constant(&[3, 5]), b.input(&[2, 5, 6]));
        let y = b.matmul(x, w);
        let z = b.matmul(y, v);
        let after = check(b.finish(&[z]), run);
        assert_eq!(products(&after), [vec![8, 5], vec![2, 4, 6]]);
    }
}
