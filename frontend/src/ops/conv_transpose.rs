//! `ConvTranspose`.

use ansc_graph::ops::conv::conv;
use ansc_graph::ops::conv_transpose::{ConvTransposeAttrs, Phases};
use ansc_graph::{Scalar, ValueId};

use super::compose::One;
use super::conv::add_bias;
use super::window::{per_axis, spatial};
use super::{OpEntry, conv_transpose_integer};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("ConvTranspose", 1, conv_transpose)];

fn conv_transpose(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, w) = (ctx.input(0)?, ctx.input(1)?);
    let shape = ctx.shape(x);
    let input = spatial(ctx, &shape)?;
    let attrs = attributes(ctx, input, &ctx.shape(w))?;
    if let Some(y) = conv_transpose_integer::of_dequantised(ctx, [x, w], &attrs)? {
        return Ok(vec![y]);
    }
    let types = [x, w].map(|v| ctx.ty(v));
    let phases = Phases::new(&attrs, types.each_ref(), |best| ctx.settled(best));
    let phases = phases.map_err(|e| ctx.problem(e.to_string()))?;
    let w = ctx.emit1(phases.weight(&ctx.ty(w)), &[w])?;
    let x = match phases.spread(&ctx.ty(x), Scalar::zero(ctx.dtype(x))) {
        Some(spread) => ctx.emit1(spread, &[x])?,
        None => x,
    };
    let y = ctx.emit1(conv(phases.conv.clone(), &ctx.ty(x), &ctx.ty(w)), &[x, w])?;
    let y = in_order(ctx, &phases, y)?;
    Ok(vec![add_bias(ctx, y, 2)?])
}

/// The results of the convolution of the phases, each element at its place.
pub(super) fn in_order(ctx: &mut NodeCtx<'_>, phases: &Phases, mut y: ValueId) -> One {
    if let Some(gather) = phases.gather(&ctx.ty(y)) {
        y = ctx.emit1(gather, &[y])?;
    }
    if let Some(interleave) = phases.interleave(&ctx.ty(y)) {
        y = ctx.emit1(interleave, &[y])?;
    }
    Ok(y)
}

fn attributes(
    ctx: &NodeCtx<'_>,
    input: &[usize],
    w: &[usize],
) -> Result<ConvTransposeAttrs, Problem> {
    let n = input.len();
    let kernel = match ctx.ints("kernel_shape") {
        Some(kernel) => ctx.sizes(&kernel, "kernel_shape")?,
        None => w.get(2..).unwrap_or_default().to_vec(),
    };
    ctx.check(kernel.len() == n, || format!("its kernel {kernel:?} does not have {n} axes"))?;
    let strides = per_axis(ctx, "strides", n, 1)?;
    let dilations = per_axis(ctx, "dilations", n, 1)?;
    let extra = per_axis(ctx, "output_padding", n, 0)?;
    let whole = |i: usize| whole_extent([input[i], kernel[i], strides[i], dilations[i], extra[i]]);
    let whole: Option<Vec<usize>> = (0..n).map(whole).collect();
    let whole = whole.ok_or_else(|| ctx.problem("its output overflows, or has a negative size"))?;
    let wanted = output_shape(ctx, input, &strides)?;
    let (pads_begin, output) = match wanted {
        Some(output) => (pads_for(ctx, &whole, &output), output),
        None => explicit(ctx, &whole)?,
    };
    let groups = ctx.size(ctx.int("group", 1), "group")?;
    Ok(ConvTransposeAttrs { kernel, strides, dilations, pads_begin, output, groups })
}

/// The extent of the result before padding is cut off.
fn whole_extent([input, kernel, stride, dilation, extra]: [usize; 5]) -> Option<usize> {
    let steps = input.checked_mul(stride)?;
    let span = kernel.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
    // Without elements there is one step less than none.
    steps.checked_add(span)?.checked_add(extra)?.checked_sub(stride)
}

/// The output's extents, where attributes ask for them and padding follows.
fn output_shape(
    ctx: &NodeCtx<'_>,
    input: &[usize],
    strides: &[usize],
) -> Result<Option<Vec<usize>>, Problem> {
    if let Some(shape) = ctx.ints("output_shape").filter(|s| !s.is_empty()) {
        let n = input.len();
        let skip = shape.len().saturating_sub(n);
        let output = ctx.sizes(&shape[skip..], "output_shape")?;
        ctx.check(output.len() == n, || format!("its output_shape does not have {n} entries"))?;
        return Ok(Some(output));
    }
    if !ctx.string("auto_pad", "NOTSET").starts_with("SAME") {
        return Ok(None);
    }
    let output: Option<Vec<usize>> =
        input.iter().zip(strides).map(|(&i, &s)| i.checked_mul(s)).collect();
    output.map(Some).ok_or_else(|| ctx.problem("its output overflows"))
}

/// How much is cut off at the beginning to get `output`.
fn pads_for(ctx: &NodeCtx<'_>, whole: &[usize], output: &[usize]) -> Vec<usize> {
    let surplus_at_begin = ctx.string("auto_pad", "NOTSET") != "SAME_UPPER";
    let pad = |(&whole, &output): (&usize, &usize)| {
        let total = whole.saturating_sub(output);
        if surplus_at_begin { total - total / 2 } else { total / 2 }
    };
    whole.iter().zip(output).map(pad).collect()
}

fn explicit(ctx: &NodeCtx<'_>, whole: &[usize]) -> Result<(Vec<usize>, Vec<usize>), Problem> {
    let n = whole.len();
    let mut begin = per_axis(ctx, "pads", 2 * n, 0)?;
    let end = begin.split_off(n);
    let cut = |i: usize| whole[i].checked_sub(begin[i])?.checked_sub(end[i]);
    let output: Option<Vec<usize>> = (0..n).map(cut).collect();
    let output = output.ok_or_else(|| ctx.problem("its pads cut off the whole output"))?;
    Ok((begin, output))
}
