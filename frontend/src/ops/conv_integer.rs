//! Convolutions of quantised operands.
//!
//! The zero point of the input is what padding is filled with: then the convolution of the narrow
//! integers themselves needs only one correction per output channel. An unsigned weight is shifted
//! to a signed one; where its zero point still is not zero, both operands are widened first. A
//! signed input of a signed weight is shifted to an unsigned one, as machines multiply them.

use ansc_graph::ValueId;
use ansc_graph::op::ConvAttrs;
use ansc_graph::ops::conv::conv;
use ansc_runtime::{DType, Tensor};

use super::OpEntry;
use super::compose::One;
use super::conv::{add_bias, conv_attrs};
use super::integer::{
    Operand, centred, corrected, dequantised, flat, integer_bias, moved, requantized, scaled,
    sum_keeping,
};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("ConvInteger", 10, conv_integer),
    OpEntry::onnx("QLinearConv", 10, qlinear_conv),
    OpEntry::microsoft("QLinearConv", qlinear_conv),
];

/// Products that machines add up in one instruction.
const QUAD: usize = 4;

fn conv_integer(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let operands = [ctx.input(0)?, ctx.input(1)?];
    let zeros = [ctx.non_zero(2), ctx.non_zero(3)];
    Ok(vec![product(ctx, operands, zeros)?])
}

/// Inputs: x, its scale and zero point, w, its, y's, and a bias in `i32`.
fn qlinear_conv(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    ctx.check(ctx.int("channels_last", 0) == 0, || "channels_last is not supported".into())?;
    let operands = [ctx.input(0)?, ctx.input(3)?];
    let zeros = [ctx.non_zero(2), ctx.non_zero(5)];
    let mut acc = product(ctx, operands, zeros)?;
    let rank = ctx.ty(acc).rank();
    if let Some(bias) = ctx.optional(8) {
        let bias = ctx.along(bias, 1, rank)?;
        acc = ctx.add_values(acc, bias)?;
    }
    let mut scales = [ctx.input(1)?, ctx.input(4)?, ctx.input(6)?];
    for scale in &mut scales {
        *scale = ctx.along(*scale, 1, rank)?;
    }
    let to = ctx.dtype(ctx.input(7)?);
    let zero = ctx.non_zero(7).map(|z| ctx.along(z, 1, rank)).transpose()?;
    Ok(vec![requantized(ctx, to, acc, scales, zero)?])
}

/// The convolution of what two `DequantizeLinear` give, and its bias, if integers can make it: the
/// product of the integers, scaled.
///
/// ```text
/// conv(dequantize(x, sx, zx), dequantize(w, sw)) + dequantize(b, sx * sw)
/// ->   f32(conv(x - zx, w) + b) * (sx * sw)
/// ```
pub(super) fn of_dequantised(
    ctx: &mut NodeCtx<'_>,
    [x, w]: [ValueId; 2],
) -> Result<Option<ValueId>, Problem> {
    let (Some(x), Some(w)) = (dequantised(ctx, x), dequantised(ctx, w)) else { return Ok(None) };
    let channels = ctx.shape(w.value).first().copied().unwrap_or(0);
    if !x.is_plain(ctx) || !w.is_along(ctx, 0, channels) {
        return Ok(None);
    }
    let zeros = [x.zero, w.zero.filter(|&zero| !ctx.is_zero(zero))];
    let zeros = [zeros[0], zeros[1].map(|z| flat(ctx, z)).transpose()?];
    let acc = product(ctx, [x.value, w.value], zeros)?;
    scaled_and_biased(ctx, acc, [x.scale, w.scale]).map(Some)
}

/// The sum of products of integers with these scales, and the bias of the node.
pub(super) fn scaled_and_biased(
    ctx: &mut NodeCtx<'_>,
    mut acc: ValueId,
    [x, w]: [ValueId; 2],
) -> One {
    let rank = ctx.ty(acc).rank();
    let flat = [flat(ctx, x)?, flat(ctx, w)?];
    let bias = ctx.optional(2).and_then(|bias| integer_bias(ctx, bias, flat));
    if let Some(bias) = bias {
        let bias = ctx.along(bias, 1, rank)?;
        acc = ctx.add_values(acc, bias)?;
    }
    let scales = [ctx.along(flat[0], 1, rank)?, ctx.along(flat[1], 1, rank)?];
    let y = scaled(ctx, acc, scales)?;
    match bias {
        Some(_) => Ok(y),
        None => add_bias(ctx, y, 2),
    }
}

/// `conv(x - zero_x, w - zero_w)` as `i32`.
fn product(
    ctx: &mut NodeCtx<'_>,
    [x, w]: [ValueId; 2],
    [zero_x, zero_w]: [Option<ValueId>; 2],
) -> One {
    let attrs = conv_attrs(ctx, &ctx.shape(x), &ctx.shape(w))?;
    let rank = ctx.ty(x).rank();
    let (w, zero_w) = signed(ctx, (w, zero_w))?;
    if let Some(zero_w) = zero_w.filter(|&z| !ctx.is_zero(z)) {
        let zero_w = ctx.along(zero_w, 0, rank)?;
        let zero_x = zero_x.map(|z| ctx.reshape(z, &[])).transpose()?;
        let (x, w) = (centred(ctx, x, zero_x)?, centred(ctx, w, Some(zero_w))?);
        return ctx.emit1(conv(attrs, &ctx.ty(x), &ctx.ty(w)), &[x, w]);
    }
    let [x, w] = in_quads(ctx, [x, w], &attrs)?;
    let both_signed = ctx.dtype(x) == DType::I8 && ctx.dtype(w) == DType::I8;
    let (x, zero_x) = match both_signed && ctx.constant(w).is_some() {
        true => moved(ctx, (x, zero_x))?,
        false => (x, zero_x),
    };
    let Some(zero_x) = zero_x else {
        return ctx.emit1(conv(attrs, &ctx.ty(x), &ctx.ty(w)), &[x, w]);
    };
    let (x, attrs) = padded(ctx, x, zero_x, attrs)?;
    let y = ctx.emit1(conv(attrs, &ctx.ty(x), &ctx.ty(w)), &[x, w])?;
    let sums = sum_keeping(ctx, w, &[0])?;
    let sums = ctx.along(sums, 1, rank)?;
    let zero_x = ctx.reshape(zero_x, &[])?;
    corrected(ctx, y, zero_x, sums)
}

/// Operands with a number of channels that divides by four, as machines multiply them. The weight
/// has no zero point: what is added to it is zero, and counts for nothing.
fn in_quads(
    ctx: &mut NodeCtx<'_>,
    [x, w]: [ValueId; 2],
    attrs: &ConvAttrs,
) -> Result<[ValueId; 2], Problem> {
    let channels = ctx.shape(w).get(1).copied().unwrap_or(0);
    let missing = channels.next_multiple_of(QUAD) - channels;
    if missing == 0 || channels == 0 || attrs.groups != 1 || ctx.constant(w).is_none() {
        return Ok([x, w]);
    }
    let mut after = vec![0; ctx.ty(x).rank()];
    after[1] = missing as i64;
    let none = vec![0; after.len()];
    let mut wider = [x, w];
    for v in &mut wider {
        let zero = ctx.add_const(Tensor::zeros(ctx.dtype(*v), &[]))?;
        *v = ctx.pad_by(*v, zero, &none, &after)?;
    }
    Ok(wider)
}

/// A known unsigned weight and its zero point, both 128 less.
pub(super) fn signed(ctx: &mut NodeCtx<'_>, (w, zero): Operand) -> Result<Operand, Problem> {
    let known = zero.filter(|&z| ctx.constant(w).is_some() && ctx.constant(z).is_some());
    match known.filter(|_| ctx.dtype(w) == DType::U8) {
        Some(zero) => moved(ctx, (w, Some(zero))),
        None => Ok((w, zero)),
    }
}

/// The input with its padding written out as `fill`, and the attributes without.
pub(super) fn padded(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    fill: ValueId,
    attrs: ConvAttrs,
) -> Result<(ValueId, ConvAttrs), Problem> {
    if attrs.pads_begin.iter().chain(&attrs.pads_end).all(|&p| p == 0) {
        return Ok((x, attrs));
    }
    let wide = |pads: &[usize]| -> Vec<i64> {
        [0, 0].into_iter().chain(pads.iter().map(|&p| p as i64)).collect()
    };
    let x = ctx.pad_by(x, fill, &wide(&attrs.pads_begin), &wide(&attrs.pads_end))?;
    let none = vec![0; attrs.kernel.len()];
    Ok((x, ConvAttrs { pads_begin: none.clone(), pads_end: none, ..attrs }))
}
