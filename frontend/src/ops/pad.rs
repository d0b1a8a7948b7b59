//! `Pad` in all its versions, and `CenterCropPad`, which is a pad with pads of either sign.

use ansc_graph::ops::pad::{self, PadMode};
use ansc_graph::{Scalar, TensorType, ValueId};

use super::OpEntry;
use super::args::extents;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] =
    &[OpEntry::onnx("Pad", 1, pad), OpEntry::onnx("CenterCropPad", 18, center_crop_pad)];

fn pad(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let (before, after) = pads(ctx, ty.rank())?;
    let (mode, value) = mode(ctx, &ty)?;
    Ok(vec![padded(ctx, x, value, mode, &before, &after)?])
}

/// Pads `x`; where all pads are zero that is `x` itself.
pub(super) fn padded(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    value: Option<ValueId>,
    mode: PadMode,
    before: &[i64],
    after: &[i64],
) -> Result<ValueId, Problem> {
    if ctx.passes_on(x, before.iter().chain(after).all(|&p| p == 0)) {
        return Ok(x);
    }
    let inputs: Vec<ValueId> = std::iter::once(x).chain(value).collect();
    let types: Vec<TensorType> = inputs.iter().map(|&v| ctx.ty(v)).collect();
    ctx.emit1(pad::pad(&types, mode, before, after), &inputs)
}

/// Pads before and after each axis.
fn pads(ctx: &NodeCtx<'_>, rank: usize) -> Result<(Vec<i64>, Vec<i64>), Problem> {
    let pads = match ctx.opset() {
        1 => ctx.ints("paddings").or_else(|| ctx.ints("pads")),
        ..11 => ctx.ints("pads"),
        _ => Some(ctx.known_i64s(1, "pads")?),
    };
    let pads = pads.ok_or_else(|| ctx.problem("it has no pads"))?;
    let axes = match ctx.optional(3) {
        Some(_) => ctx.known_i64s(3, "axes")?,
        None => (0..rank as i64).collect(),
    };
    if axes.len().checked_mul(2) != Some(pads.len()) {
        return Err(ctx.problem(format!("it has {} pads for {} axes", pads.len(), axes.len())));
    }
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    for (i, &axis) in axes.iter().enumerate() {
        let axis = ctx.axis(axis, rank)?;
        before[axis] = pads[i];
        after[axis] = pads[axes.len() + i];
    }
    Ok((before, after))
}

/// How to pad, and the constant where it is not known at compile time.
fn mode(ctx: &NodeCtx<'_>, x: &TensorType) -> Result<(PadMode, Option<ValueId>), Problem> {
    let mode = match ctx.string("mode", "constant").as_str() {
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Edge,
        "wrap" => PadMode::Wrap,
        "constant" => return constant(ctx, x),
        other => return Err(ctx.problem(format!("mode `{other}` is not known"))),
    };
    Ok((mode, None))
}

fn constant(ctx: &NodeCtx<'_>, x: &TensorType) -> Result<(PadMode, Option<ValueId>), Problem> {
    if ctx.opset() < 11 {
        let value = Scalar::from_f64(x.dtype, f64::from(ctx.float("value", 0.0)));
        return Ok((PadMode::Constant(value), None));
    }
    let Some(input) = ctx.optional(2) else {
        return Ok((PadMode::Constant(Scalar::zero(x.dtype)), None));
    };
    match ctx.constant(input) {
        None => Ok((PadMode::ConstantInput, Some(input))),
        Some(value) if value.len() == 1 => Ok((PadMode::Constant(Scalar::at(&value, 0)), None)),
        Some(value) if value.is_empty() => Ok((PadMode::Constant(Scalar::zero(x.dtype)), None)),
        Some(_) => Err(ctx.problem("the constant to pad with must be one element")),
    }
}

fn center_crop_pad(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let wanted = extents(ctx, &ctx.known_i64s(1, "shape")?, "shape")?;
    let axes = ctx.ints("axes").unwrap_or_else(|| (0..ty.rank() as i64).collect());
    if axes.len() != wanted.len() {
        return Err(ctx.problem(format!("its shape {wanted:?} does not fit its axes {axes:?}")));
    }
    let (mut before, mut after) = (vec![0; ty.rank()], vec![0; ty.rank()]);
    for (&axis, &extent) in axes.iter().zip(&wanted) {
        let axis = ctx.axis(axis, ty.rank())?;
        (before[axis], after[axis]) = centered(ty.shape[axis] as i64, extent as i64);
    }
    let zero = PadMode::Constant(Scalar::zero(ty.dtype));
    Ok(vec![padded(ctx, x, None, zero, &before, &after)?])
}

/// Pads that make `want` of `have` elements; what is odd goes to the end.
fn centered(have: i64, want: i64) -> (i64, i64) {
    let before = (want - have) / 2;
    (before, want - have - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_pads_and_crops_end_at_the_end() {
        assert_eq!(centered(10, 13), (1, 2));
        assert_eq!(centered(10, 7), (-1, -2));
        assert_eq!(centered(4, 4), (0, 0));
    }
}
