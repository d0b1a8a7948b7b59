//! Which nodes are sums of products that gain by operands of fewer bits.

use ansc_runtime::DType;
use half::{bf16, f16};

use crate::compute::{Compute, TensorType};
use crate::graph::{Graph, NodeId};
use crate::op::{ComputeOp, ConvAttrs, Kind};

/// Sums of fewer terms stay as they are. They are few operations for each result, and among them
/// are products of positions with frequencies, which need all bits.
const FEWEST_TERMS: usize = 8;

/// Convolutions of fewer channels stay as they are if their windows are small, too, as many a
/// network's first one: rearranging the input would take as long as all products.
const FEWEST_CHANNELS: usize = 4;
const FEWEST_TERMS_OF_FEW_CHANNELS: usize = 64;

/// Whether the node sums products of two `f32` operands, and enough of them. A depthwise
/// convolution is none of these: each element of its input meets few others.
pub fn is_product(graph: &Graph, node: NodeId) -> bool {
    let Some(op) = graph.compute_of(node) else { return false };
    let wide = |ty: &TensorType| ty.dtype == DType::F32;
    let all_wide = op.expr.inputs.iter().chain(&op.expr.output_types()).all(wide);
    op.expr.inputs.len() == 2 && all_wide && sums_products(op) && terms(&op.expr) >= FEWEST_TERMS
}

/// Whether constants among the operands stay finite as this type.
pub(super) fn fits(graph: &Graph, node: NodeId, dtype: DType) -> bool {
    let operands = graph.operands(node).into_iter();
    let mut constants = operands.filter_map(|v| graph.const_of(v));
    let stays_finite = |v: f32| match dtype {
        DType::F16 => f16::from_f32(v).is_finite(),
        DType::BF16 => bf16::from_f32(v).is_finite(),
        _ => true,
    };
    constants.all(|tensor| {
        let mut values = tensor.as_slice::<f32>().iter();
        values.all(|v| !v.is_finite() || stays_finite(*v))
    })
}

fn sums_products(op: &ComputeOp) -> bool {
    match &op.kind {
        Kind::Conv(attrs) => {
            let x = &op.expr.inputs[0];
            let channels = x.shape[attrs.input.axis(x.rank())] / attrs.groups.max(1);
            let is_worth =
                channels >= FEWEST_CHANNELS || terms(&op.expr) >= FEWEST_TERMS_OF_FEW_CHANNELS;
            is_worth && !is_depthwise(attrs, &op.expr.inputs)
        }
        Kind::MatMul => true,
        // Einstein's summation, for one.
        Kind::Other(_) => op.expr.is_sum_of_products(),
        _ => false,
    }
}

/// Whether a convolution has a single channel in each of several groups.
pub(super) fn is_depthwise(attrs: &ConvAttrs, inputs: &[TensorType]) -> bool {
    let channels = |x: &TensorType| x.shape[attrs.input.axis(x.rank())];
    attrs.groups > 1 && inputs.first().is_some_and(|x| channels(x) == attrs.groups)
}

fn terms(expr: &Compute) -> usize {
    let sums = expr.stages.iter().filter_map(|s| s.reduce.as_ref());
    sums.map(|r| r.extents.iter().product()).max().unwrap_or(0)
}
