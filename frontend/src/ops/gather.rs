//! `Gather`, `GatherElements`, `GatherND`.

use ansc_graph::ValueId;
use ansc_graph::ops::{gather, slice};

use super::OpEntry;
use super::args::extent;
use crate::import::NodeCtx;
use crate::problem::Problem;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Gather", 1, gather),
    OpEntry::onnx("GatherElements", 11, elements),
    OpEntry::onnx("GatherND", 11, nd),
];

fn gather(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (data, indices) = (ctx.input(0)?, ctx.input(1)?);
    let ty = ctx.ty(data);
    let axis = ctx.axis(ctx.int("axis", 0), ty.rank())?;
    if let Some(index) = known_index(ctx, indices) {
        let index = ctx
            .axis(index, ty.shape[axis])
            .map_err(|_| ctx.problem(format!("index {index} is outside of axis {axis} of {ty}")))?;
        return ctx.emit(slice::select(&ty, axis, index), &[data]);
    }
    ctx.emit(gather::gather(&ty, &ctx.ty(indices), axis), &[data, indices])
}

/// The value of a scalar that is known: the choice is then a slice, which fuses better.
fn known_index(ctx: &NodeCtx<'_>, indices: ValueId) -> Option<i64> {
    let tensor = ctx.constant(indices).filter(|t| t.rank() == 0)?;
    tensor.to_i64_vec()?.first().copied()
}

fn elements(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (data, indices) = (ctx.input(0)?, ctx.input(1)?);
    let ty = ctx.ty(data);
    let axis = ctx.axis(ctx.int("axis", 0), ty.rank())?;
    ctx.emit(gather::gather_elements(&ty, &ctx.ty(indices), axis), &[data, indices])
}

fn nd(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (data, indices) = (ctx.input(0)?, ctx.input(1)?);
    let batch_dims = extent(ctx, ctx.int("batch_dims", 0), "batch_dims")?;
    let op = gather::gather_nd(&ctx.ty(data), &ctx.ty(indices), batch_dims);
    ctx.emit(op, &[data, indices])
}
