//! `GridSample` and `AffineGrid`.

use ansc_graph::ValueId;
use ansc_graph::ops::grid::{self, GridAttrs, GridMode, GridPadding};

use super::OpEntry;
use super::args::extents;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] =
    &[OpEntry::onnx("GridSample", 16, grid_sample), OpEntry::onnx("AffineGrid", 20, affine_grid)];

fn grid_sample(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, at) = (ctx.input(0)?, ctx.input(1)?);
    let mode = match ctx.string("mode", "linear").as_str() {
        "linear" | "bilinear" => GridMode::Linear,
        "cubic" | "bicubic" => GridMode::Cubic,
        "nearest" => GridMode::Nearest,
        other => return Err(ctx.problem(format!("mode `{other}` is not known"))),
    };
    let padding = match ctx.string("padding_mode", "zeros").as_str() {
        "zeros" => GridPadding::Zeros,
        "border" => GridPadding::Border,
        "reflection" => GridPadding::Reflection,
        other => return Err(ctx.problem(format!("padding mode `{other}` is not known"))),
    };
    let attrs = GridAttrs { mode, padding, align_corners: ctx.int("align_corners", 0) != 0 };
    ctx.emit(grid::grid_sample(&ctx.ty(x), &ctx.ty(at), attrs), &[x, at])
}

fn affine_grid(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let theta = ctx.input(0)?;
    let size = extents(ctx, &ctx.known_i64s(1, "size")?, "size")?;
    ctx.check(size.len() > 2 && ctx.shape(theta).first() == size.first(), || {
        format!("its size {size:?} does not fit its maps")
    })?;
    let align_corners = ctx.int("align_corners", 0) != 0;
    ctx.emit(grid::affine_grid(&ctx.ty(theta), &size[2..], align_corners), &[theta])
}
