//! `Gather`, `GatherElements`, `GatherND`.

use ansc_graph::ValueId;
use ansc_graph::ops::{gather, slice};

use super::OpEntry;
use super::args::extent;
use super::indices::taken;
use crate::problem::Problem;
use crate::walk::NodeCtx;

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
    let op = gather::gather(&ty, &ctx.ty(indices), axis);
    taken(ctx, op, [data, indices], &[ty.shape[axis]])
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
    let op = gather::gather_elements(&ty, &ctx.ty(indices), axis);
    taken(ctx, op, [data, indices], &[ty.shape[axis]])
}

fn nd(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (data, indices) = (ctx.input(0)?, ctx.input(1)?);
    let batch_dims = extent(ctx, ctx.int("batch_dims", 0), "batch_dims")?;
    let (ty, index_ty) = (ctx.ty(data), ctx.ty(indices));
    let op = gather::gather_nd(&ty, &index_ty, batch_dims);
    let depth = index_ty.shape.last().copied().unwrap_or(0);
    let extents = ty.shape.iter().skip(batch_dims).take(depth);
    taken(ctx, op, [data, indices], &extents.copied().collect::<Vec<_>>())
}
