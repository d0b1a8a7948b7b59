//! `GatherBlockQuantized` of com.microsoft: slices of a table of integers, dequantised by blocks.
//!
//! The importer dequantises the chosen rows, not the table. Elements of 4 bits that come as bytes
//! lie two in one, along the last axis.

use ansc_graph::ops::fill::constant;
use ansc_graph::ops::gather::gather;
use ansc_graph::ops::nibbles::unpack;
use ansc_graph::ops::quantize::{Blocks, dequantize_blocked};
use ansc_graph::ops::slice::narrow;
use ansc_graph::{Scalar, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use super::compose::One;
use super::indices::checked;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::microsoft("GatherBlockQuantized", import)];

/// Inputs: data, indices, scales, zero points.
fn import(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (data, indices, scales) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    let rank = ctx.ty(data).rank();
    let gather_axis = ctx.axis(ctx.int("gather_axis", 0), rank)?;
    let axis = ctx.axis(ctx.int("quantize_axis", 1), rank)?;
    ctx.check(gather_axis != axis, || "its gather_axis is its quantize_axis".into())?;
    let bits = ctx.int("bits", 4);
    let in_bytes = ctx.dtype(data) == DType::U8 && !ctx.is_of_nibbles(0);
    let packed = in_bytes && bits == 4;
    ctx.check(!packed || axis == rank - 1, || {
        "elements of 4 bits in bytes must be quantised along the last axis".into()
    })?;
    ctx.check(!in_bytes || bits == 4 || bits == 8, || format!("{bits} bits are not supported"))?;
    checked(ctx, indices, &[ctx.shape(data)[gather_axis]])?;
    let chosen = |ctx: &mut NodeCtx<'_>, x: ValueId| {
        ctx.emit1(gather(&ctx.ty(x), &ctx.ty(indices), gather_axis), &[x, indices])
    };
    let (mut x, scale) = (chosen(ctx, data)?, chosen(ctx, scales)?);
    let mut zero = match ctx.optional(3) {
        Some(zero) => Some(chosen(ctx, zero)?),
        None => None,
    };
    if packed {
        let blocks = ctx.shape(scale).last().copied().unwrap_or(0);
        x = widened(ctx, x, 2 * ctx.shape(x).last().copied().unwrap_or(0))?;
        zero = zero.map(|zero| widened(ctx, zero, blocks)).transpose()?;
    }
    if zero.is_none() && in_bytes {
        zero = Some(middle(ctx, if packed { 8 } else { 128 }, scale)?);
    }
    // Axes of the indices stand in place of the axis that they choose along.
    let axis = if axis > gather_axis { axis + ctx.ty(indices).rank() - 1 } else { axis };
    let blocks = Blocks { axis, block: ctx.size(ctx.int("block_size", 128), "block_size")? };
    let to = ctx.dtype(scale);
    let zero_ty = zero.map(|z| ctx.ty(z));
    let op = dequantize_blocked(to, blocks, &ctx.ty(x), &ctx.ty(scale), zero_ty.as_ref());
    let inputs: Vec<ValueId> = [x, scale].into_iter().chain(zero).collect();
    Ok(vec![ctx.emit1(op, &inputs)?])
}

/// Bytes of two elements as bytes of one; the last axis has `extent` of these, an even number or
/// one less.
fn widened(ctx: &mut NodeCtx<'_>, x: ValueId, extent: usize) -> One {
    let ty = ctx.ty(x);
    let mut shape = ty.shape.clone();
    let bytes = shape.last().copied().unwrap_or(0);
    ctx.check(extent.div_ceil(2) == bytes, || {
        format!("{bytes} bytes do not hold {extent} elements of 4 bits")
    })?;
    if let Some(last) = shape.last_mut() {
        *last = 2 * bytes;
    }
    let flat = ctx.reshape(x, &[ty.len()])?;
    let all = ctx.emit1(unpack(DType::U8, &shape, &ctx.ty(flat)), &[flat])?;
    let axis = shape.len() - 1;
    ctx.emit1(narrow(&ctx.ty(all), axis, 0, extent), &[all])
}

/// Zero points that are the same everywhere.
fn middle(ctx: &mut NodeCtx<'_>, value: i64, like: ValueId) -> One {
    let shape = ctx.shape(like);
    ctx.emit1(constant(Scalar::from_i64(DType::U8, value), &shape), &[])
}
