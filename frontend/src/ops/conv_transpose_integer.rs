//! Transposed convolutions of quantised operands.
//!
//! ```text
//! conv_transpose(dequantize(x, sx, zx), dequantize(w, sw)) + dequantize(b, sx * sw)
//! ->   f32(interleave(conv(x, w') - zx * sum w') + b) * (sx * sw)    w': the weights by phases
//! ```
//!
//! The ordinary convolution reads the zero point beyond the input, so that one correction is right
//! for all results of a channel and a phase. Weights that a phase lacks are zero.

use ansc_graph::op::ConvAttrs;
use ansc_graph::ops::conv::conv;
use ansc_graph::ops::conv_transpose::{ConvTransposeAttrs, Phases};
use ansc_graph::{Scalar, ValueId};
use ansc_runtime::DType;

use super::compose::One;
use super::conv_integer::{padded, scaled_and_biased, signed};
use super::conv_transpose::in_order;
use super::integer::{Operand, corrected, dequantised, moved, sum_keeping};
use crate::problem::Problem;
use crate::walk::NodeCtx;

/// The transposed convolution of what two `DequantizeLinear` give, and its bias, if integers can
/// make it.
pub(super) fn of_dequantised(
    ctx: &mut NodeCtx<'_>,
    [x, w]: [ValueId; 2],
    attrs: &ConvTransposeAttrs,
) -> Result<Option<ValueId>, Problem> {
    let (Some(x), Some(w)) = (dequantised(ctx, x), dequantised(ctx, w)) else { return Ok(None) };
    let channels = ctx.shape(w.value).get(1).copied().unwrap_or(0);
    let by_channel = attrs.groups == 1 && w.is_along(ctx, 1, channels);
    let known = x.zero.is_none_or(|zero| ctx.constant(zero).is_some());
    if !known || !x.is_plain(ctx) || !(by_channel || w.is_plain(ctx)) {
        return Ok(None);
    }
    let (weight, zero) = signed(ctx, (w.value, w.zero))?;
    if ctx.dtype(weight) != DType::I8 || zero.is_some_and(|zero| !ctx.is_zero(zero)) {
        return Ok(None);
    }
    let input = match ctx.dtype(x.value) {
        DType::I8 => moved(ctx, (x.value, x.zero))?,
        _ => (x.value, x.zero.filter(|&zero| !ctx.is_zero(zero))),
    };
    let acc = product(ctx, input, weight, attrs)?;
    scaled_and_biased(ctx, acc, [x.scale, w.scale]).map(Some)
}

/// `conv_transpose(x - zero, w)` as `i32`.
fn product(
    ctx: &mut NodeCtx<'_>,
    (x, zero): Operand,
    w: ValueId,
    attrs: &ConvTransposeAttrs,
) -> One {
    let types = [x, w].map(|v| ctx.ty(v));
    let phases = Phases::new(attrs, types.each_ref(), |best| ctx.settled(best));
    let phases = phases.map_err(|e| ctx.problem(e.to_string()))?;
    let w = ctx.emit1(phases.weight(&ctx.ty(w)), &[w])?;
    let byte = zero.and_then(|zero| ctx.constant(zero)).map_or(0, |t| t.as_slice::<u8>()[0]);
    let x = match phases.spread(&ctx.ty(x), Scalar::from_i64(DType::U8, byte.into())) {
        Some(spread) => ctx.emit1(spread, &[x])?,
        None => x,
    };
    let y = match zero {
        Some(zero) => {
            let zero = ctx.reshape(zero, &[])?;
            let (x, attrs) = padded(ctx, x, zero, phases.conv.clone())?;
            let y = convolved(ctx, [x, w], attrs)?;
            let sums = sum_keeping(ctx, w, &[0])?;
            let sums = ctx.along(sums, 1, ctx.ty(y).rank())?;
            corrected(ctx, y, zero, sums)?
        }
        None => convolved(ctx, [x, w], phases.conv.clone())?,
    };
    in_order(ctx, &phases, y)
}

fn convolved(ctx: &mut NodeCtx<'_>, [x, w]: [ValueId; 2], attrs: ConvAttrs) -> One {
    ctx.emit1(conv(attrs, &ctx.ty(x), &ctx.ty(w)), &[x, w])
}
