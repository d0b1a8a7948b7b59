//! `CausalConvWithState`: a depthwise convolution along time that continues where the last call
//! ended.
//!
//! ```text
//! p = concat(past, x);  y = activation(conv(p, w) + bias);  present = the last k - 1 steps of p
//! ```

use ansc_graph::ValueId;
use ansc_graph::op::{Channels, ConvAttrs};
use ansc_graph::ops::activation::{self, Activation};
use ansc_graph::ops::conv::conv;
use ansc_graph::ops::slice;

use super::OpEntry;
use super::conv::add_bias;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("CausalConvWithState", 27, causal_conv)];

fn causal_conv(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, w) = (ctx.input(0)?, ctx.input(1)?);
    let (shape, kernel) = (ctx.shape(x), ctx.shape(w));
    let (&[batch, channels, length], &[_, 1, width @ 1..=usize::MAX]) = (&shape[..], &kernel[..])
    else {
        return Err(ctx.problem(format!("an input of {shape:?} has no kernel of {kernel:?}")));
    };
    let past = [batch, channels, width - 1];
    let state = match ctx.optional(3) {
        Some(state) => state,
        None => ctx.zeros(ctx.dtype(x), &past)?,
    };
    ctx.check(ctx.shape(state) == past, || format!("its state must be of shape {past:?}"))?;
    let whole = if width == 1 { x } else { ctx.concat(&[state, x], 2)? };
    let y = ctx.emit1(conv(depthwise(channels, width), &ctx.ty(whole), &ctx.ty(w)), &[whole, w])?;
    let y = add_bias(ctx, y, 2)?;
    let y = activated(ctx, y)?;
    let present = ctx.emit1(slice::narrow(&ctx.ty(whole), 2, length, width - 1), &[whole])?;
    Ok(vec![y, present])
}

fn depthwise(channels: usize, width: usize) -> ConvAttrs {
    ConvAttrs {
        channels: Channels::First,
        input: Channels::First,
        kernel: vec![width],
        strides: vec![1],
        dilations: vec![1],
        pads_begin: vec![0],
        pads_end: vec![0],
        groups: channels,
    }
}

fn activated(ctx: &mut NodeCtx<'_>, y: ValueId) -> Result<ValueId, Problem> {
    match ctx.string("activation", "none").as_str() {
        "none" => Ok(y),
        "silu" | "swish" => {
            let swish = Activation::Swish { alpha: 1.0 };
            ctx.emit1(activation::activation(swish, &ctx.ty(y)), &[y])
        }
        other => Err(ctx.problem(format!("its activation `{other}` is not known"))),
    }
}
