//! `DepthToSpace`, `SpaceToDepth`, `Trilu`, `ReverseSequence`, `Col2Im`.

use ansc_graph::ops::col2im::{Col2ImAttrs, col2im as col2im_op};
use ansc_graph::ops::rearrange::{self, DepthOrder, Diagonal};
use ansc_graph::{TensorType, ValueId};

use super::OpEntry;
use super::args::{extent, extents, only_int};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("DepthToSpace", 1, depth_to_space),
    OpEntry::onnx("SpaceToDepth", 1, space_to_depth),
    OpEntry::onnx("Trilu", 14, trilu),
    OpEntry::onnx("ReverseSequence", 10, reverse_sequence),
    OpEntry::onnx("Col2Im", 18, col2im),
];

fn block(ctx: &NodeCtx<'_>) -> Result<usize, Problem> {
    extent(ctx, ctx.int("blocksize", 0), "blocksize")
}

fn order(ctx: &NodeCtx<'_>) -> Result<DepthOrder, Problem> {
    match ctx.string("mode", "DCR").as_str() {
        "DCR" => Ok(DepthOrder::DepthColumnRow),
        "CRD" => Ok(DepthOrder::ColumnRowDepth),
        other => Err(ctx.problem(format!("mode `{other}` is not known"))),
    }
}

fn depth_to_space(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    ctx.emit(rearrange::depth_to_space(&ctx.ty(x), block(ctx)?, order(ctx)?), &[x])
}

fn space_to_depth(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    ctx.emit(rearrange::space_to_depth(&ctx.ty(x), block(ctx)?, order(ctx)?), &[x])
}

fn trilu(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let mut inputs = vec![ctx.input(0)?];
    let diagonal = match ctx.optional(1) {
        None => Diagonal::At(0),
        Some(k) if ctx.constant(k).is_some() => Diagonal::At(only_int(ctx, 1, "diagonal")?),
        Some(k) => {
            inputs.push(k);
            Diagonal::Input
        }
    };
    let types: Vec<TensorType> = inputs.iter().map(|&v| ctx.ty(v)).collect();
    ctx.emit(rearrange::triangle(&types, ctx.int("upper", 1) != 0, diagonal), &inputs)
}

fn reverse_sequence(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, lengths) = (ctx.input(0)?, ctx.input(1)?);
    let ty = ctx.ty(x);
    let batch = ctx.axis(ctx.int("batch_axis", 1), ty.rank())?;
    let time = ctx.axis(ctx.int("time_axis", 0), ty.rank())?;
    ctx.emit(rearrange::reverse_sequence(&ty, &ctx.ty(lengths), batch, time), &[x, lengths])
}

fn col2im(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let image = extents(ctx, &ctx.known_i64s(1, "image shape")?, "image shape")?;
    let block = extents(ctx, &ctx.known_i64s(2, "block shape")?, "block shape")?;
    let list = |name: &str, default: i64, len: usize| {
        extents(ctx, &ctx.ints(name).unwrap_or_else(|| vec![default; len]), name)
    };
    let rank = image.len();
    let mut pads_begin = list("pads", 0, 2 * rank)?;
    let pads_end = pads_begin.split_off(rank.min(pads_begin.len()));
    let attrs = Col2ImAttrs {
        strides: list("strides", 1, rank)?,
        dilations: list("dilations", 1, rank)?,
        image,
        block,
        pads_begin,
        pads_end,
    };
    ctx.emit(col2im_op(&ctx.ty(x), &attrs), &[x])
}
