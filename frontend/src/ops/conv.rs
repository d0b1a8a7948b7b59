//! `Conv`, also with the activation that exporters fuse into it.

use ansc_graph::ValueId;
use ansc_graph::op::ConvAttrs;
use ansc_graph::ops::conv::conv;

use super::OpEntry;
use super::activation::Activation;
use super::compose::One;
use super::conv_integer;
use super::window::{WindowAttrs, spatial};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Conv", 1, |ctx| Ok(vec![biased(ctx)?])),
    OpEntry::microsoft("FusedConv", fused_conv),
];

fn biased(ctx: &mut NodeCtx<'_>) -> One {
    let (x, w) = (ctx.input(0)?, ctx.input(1)?);
    if let Some(y) = conv_integer::of_dequantised(ctx, [x, w])? {
        return Ok(y);
    }
    let attrs = conv_attrs(ctx, &ctx.shape(x), &ctx.shape(w))?;
    let y = ctx.emit1(conv(attrs, &ctx.ty(x), &ctx.ty(w)), &[x, w])?;
    add_bias(ctx, y, 2)
}

/// The attributes of a convolution; the kernel's extents are those of the weight where not given.
pub(crate) fn conv_attrs(
    ctx: &NodeCtx<'_>,
    x: &[usize],
    w: &[usize],
) -> Result<ConvAttrs, Problem> {
    let kernel = match ctx.ints("kernel_shape") {
        Some(kernel) => ctx.sizes(&kernel, "kernel_shape")?,
        None => w.get(2..).unwrap_or_default().to_vec(),
    };
    let groups = ctx.size(ctx.int("group", 1), "group")?;
    Ok(WindowAttrs::read(ctx, spatial(ctx, x)?, kernel)?.conv(groups))
}

/// Adds the bias of input `i`, one element per channel, if there is one.
pub(crate) fn add_bias(ctx: &mut NodeCtx<'_>, y: ValueId, i: usize) -> One {
    let Some(bias) = ctx.optional(i) else {
        return Ok(y);
    };
    let rank = ctx.ty(y).rank();
    let bias = ctx.along(bias, 1, rank)?;
    ctx.add_values(y, bias)
}

/// `activation(conv(x, w) + bias + z)`.
fn fused_conv(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let name = ctx.string("activation", "");
    let parameters = ctx.floats("activation_params").unwrap_or_default();
    let activation = Activation::parse(ctx, &name, &parameters)?;
    let mut y = biased(ctx)?;
    if let Some(z) = ctx.optional(3) {
        y = ctx.add_values(y, z)?;
    }
    Ok(vec![activation.emit(ctx, y)?])
}
