//! Normalisation by statistics of the input itself, and the forms that exporters fuse with an
//! addition.

use ansc_graph::ops::normalize::{self, Lrn};
use ansc_graph::{TensorType, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use super::compose::One;
use crate::problem::Problem;
use crate::tensor_type;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("InstanceNormalization", 6, instance_norm),
    OpEntry::onnx("GroupNormalization", 18, group_norm),
    OpEntry::onnx("LayerNormalization", 1, layer_norm),
    OpEntry::onnx("RMSNormalization", 23, rms_norm),
    OpEntry::onnx("SimplifiedLayerNormalization", 1, rms_norm),
    OpEntry::onnx("LRN", 1, lrn),
    OpEntry::onnx("LpNormalization", 1, lp_norm),
    OpEntry::onnx("MeanVarianceNormalization", 9, mean_variance_norm),
    OpEntry::microsoft("LayerNormalization", layer_norm),
    OpEntry::microsoft("SimplifiedLayerNormalization", rms_norm),
    OpEntry::microsoft("SkipLayerNormalization", skip_layer_norm),
    OpEntry::microsoft("SkipSimplifiedLayerNormalization", skip_rms_norm),
];

fn instance_norm(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let channels = ctx.shape(ctx.input(0)?).get(1).copied().unwrap_or(0);
    grouped(ctx, channels)
}

fn group_norm(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let groups = ctx.size(ctx.int("num_groups", 0), "num_groups")?;
    grouped(ctx, groups)
}

fn grouped(ctx: &mut NodeCtx<'_>, groups: usize) -> Result<Vec<ValueId>, Problem> {
    let inputs = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
    let [x, scale, bias] = inputs.map(|v| ctx.ty(v));
    let epsilon = ctx.float("epsilon", 1e-5);
    ctx.emit(normalize::group_norm(groups, epsilon, &x, &scale, &bias), &inputs)
}

/// The type of statistics that are results: `stash_type`, an ONNX element type.
fn stash_type(ctx: &NodeCtx<'_>) -> Result<DType, Problem> {
    let code = ctx.int("stash_type", 1);
    let code = i32::try_from(code).map_err(|_| ctx.problem(format!("its stash_type is {code}")))?;
    tensor_type::dtype(code).map_err(|reason| ctx.problem(reason))
}

/// The attribute `axis` of input `x`.
fn axis(ctx: &NodeCtx<'_>, x: &TensorType) -> Result<usize, Problem> {
    ctx.axis(ctx.int("axis", -1), x.rank())
}

fn layer_norm(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, scale, bias) = (ctx.input(0)?, ctx.input(1)?, ctx.optional(2));
    emit_layer_norm(ctx, x, scale, bias, 1e-5)
}

fn emit_layer_norm(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    scale: ValueId,
    bias: Option<ValueId>,
    epsilon: f32,
) -> Result<Vec<ValueId>, Problem> {
    let (ty, scale_ty, bias_ty) = (ctx.ty(x), ctx.ty(scale), bias.map(|b| ctx.ty(b)));
    let (axis, stash) = (axis(ctx, &ty)?, stash_type(ctx)?);
    let epsilon = ctx.float("epsilon", epsilon);
    let op = normalize::layer_norm(axis, epsilon, stash, &ty, &scale_ty, bias_ty.as_ref());
    let inputs: Vec<ValueId> = [x, scale].into_iter().chain(bias).collect();
    ctx.emit(op, &inputs)
}

fn rms_norm(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, scale) = (ctx.input(0)?, ctx.input(1)?);
    emit_rms_norm(ctx, x, scale, 1e-5)
}

fn emit_rms_norm(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    scale: ValueId,
    epsilon: f32,
) -> Result<Vec<ValueId>, Problem> {
    let (ty, scale_ty) = (ctx.ty(x), ctx.ty(scale));
    let (axis, stash) = (axis(ctx, &ty)?, stash_type(ctx)?);
    let epsilon = ctx.float("epsilon", epsilon);
    ctx.emit(normalize::rms_norm(axis, epsilon, stash, &ty, &scale_ty), &[x, scale])
}

/// Results: y, mean, inverse deviation, and the sum that was normalised.
fn skip_layer_norm(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let sum = skipped(ctx, 4)?;
    let (scale, bias) = (ctx.input(2)?, ctx.optional(3));
    let mut results = emit_layer_norm(ctx, sum, scale, bias, 1e-12)?;
    results.push(sum);
    Ok(results)
}

fn skip_rms_norm(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    ctx.check(!ctx.wants_output(1), || "it has no mean to give as an output".into())?;
    let sum = skipped(ctx, 3)?;
    let scale = ctx.input(2)?;
    let results = emit_rms_norm(ctx, sum, scale, 1e-12)?;
    let [y, inverse] = results[..] else {
        return Err(ctx.problem("it gives two results"));
    };
    Ok(vec![y, inverse, inverse, sum])
}

/// Input plus skip (which may be one sample for all), plus the bias at input `bias`.
fn skipped(ctx: &mut NodeCtx<'_>, bias: usize) -> One {
    let (x, skip) = (ctx.input(0)?, ctx.input(1)?);
    let sum = ctx.add_values(x, skip)?;
    match ctx.optional(bias) {
        Some(bias) => ctx.add_values(sum, bias),
        None => Ok(sum),
    }
}

fn lrn(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let lrn = Lrn {
        size: ctx.size(ctx.int("size", 0), "size")?,
        alpha: ctx.float("alpha", 1e-4),
        beta: ctx.float("beta", 0.75),
        bias: ctx.float("bias", 1.0),
    };
    ctx.emit(normalize::local_response_norm(lrn, &ctx.ty(x)), &[x])
}

fn lp_norm(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let (axis, p) = (axis(ctx, &ty)?, ctx.int("p", 2));
    ctx.check(p > 0, || format!("its p is {p}"))?;
    ctx.emit(normalize::lp_norm(axis, p, &ty), &[x])
}

fn mean_variance_norm(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let axes = ctx.ints("axes").unwrap_or_else(|| vec![0, 2, 3]);
    let mut axes: Vec<usize> =
        axes.into_iter().map(|a| ctx.axis(a, ty.rank())).collect::<Result<_, _>>()?;
    axes.sort_unstable();
    axes.dedup();
    ctx.emit(normalize::mean_variance_norm(&axes, &ty), &[x])
}
