//! `DeformConv`: samples of the input at moved positions, times the weight.

use ansc_graph::ValueId;
use ansc_graph::ops::deform_conv::deformed_samples;

use super::OpEntry;
use super::conv::{add_bias, conv_attrs};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("DeformConv", 19, deform_conv)];

fn deform_conv(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, w, offset) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    let mask = ctx.optional(4);
    let attrs = conv_attrs(ctx, &ctx.shape(x), &ctx.shape(w))?;
    let offset_groups = ctx.size(ctx.int("offset_group", 1), "offset_group")?;
    let mask_ty = mask.map(|m| ctx.ty(m));
    let samples = deformed_samples(
        &attrs.window(),
        offset_groups,
        &ctx.ty(x),
        &ctx.ty(offset),
        mask_ty.as_ref(),
    );
    let inputs: Vec<ValueId> = [x, offset].into_iter().chain(mask).collect();
    let samples = ctx.emit1(samples, &inputs)?;
    let y = multiply(ctx, w, samples, attrs.groups, attrs.kernel.len())?;
    Ok(vec![add_bias(ctx, y, 3)?])
}

/// `w[m, c / groups, kernel..]` times `samples[n, c, kernel.., output..]`, group by group.
fn multiply(
    ctx: &mut NodeCtx<'_>,
    w: ValueId,
    samples: ValueId,
    groups: usize,
    spatial: usize,
) -> Result<ValueId, Problem> {
    let (weight, sample) = (ctx.shape(w), ctx.shape(samples));
    let output = &sample[2 + spatial..];
    let reduced: usize = weight[1..].iter().product();
    let channels = [groups, weight[1]];
    let fits = weight[2..] == sample[2..2 + spatial]
        && channels[0].checked_mul(channels[1]) == Some(sample[1])
        && groups > 0
        && weight[0] % groups == 0;
    ctx.check(fits, || format!("its weight of shape {weight:?} does not fit its input"))?;
    let w = ctx.reshape(w, &[groups, weight[0] / groups, reduced])?;
    let points = output.iter().product();
    let samples = ctx.reshape(samples, &[sample[0], groups, reduced, points])?;
    let y = ctx.matmul(w, samples)?;
    let shape = [&[sample[0], weight[0]], output].concat();
    ctx.reshape(y, &shape)
}
