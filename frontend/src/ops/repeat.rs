//! `Expand` and `Tile`.

use ansc_graph::ops::map::{broadcast_shapes, map_to};
use ansc_graph::ops::rearrange;
use ansc_graph::{TensorType, ValueId};

use super::OpEntry;
use super::args::extents;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] =
    &[OpEntry::onnx("Expand", 8, expand), OpEntry::onnx("Tile", 6, tile)];

fn expand(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let wanted = extents(ctx, &ctx.known_i64s(1, "shape")?, "shape")?;
    Ok(vec![expanded(ctx, x, &wanted)?])
}

/// `x` broadcast together with `shape`.
pub(super) fn expanded(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    shape: &[usize],
) -> Result<ValueId, Problem> {
    let ty = ctx.ty(x);
    let shape =
        broadcast_shapes([ty.shape.as_slice(), shape]).map_err(|e| ctx.problem(e.to_string()))?;
    if ctx.passes_on(x, shape == ty.shape) {
        return Ok(x);
    }
    let out = TensorType::new(ty.dtype, shape);
    ctx.emit1(map_to(&[ty], out, |v| v[0].clone()), &[x])
}

fn tile(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let repeats = extents(ctx, &ctx.known_i64s(1, "repeats")?, "repeats")?;
    let once = repeats.iter().all(|&r| r == 1) && repeats.len() == ctx.ty(x).rank();
    if ctx.passes_on(x, once) {
        return Ok(vec![x]);
    }
    ctx.emit(rearrange::tile(&ctx.ty(x), &repeats), &[x])
}
