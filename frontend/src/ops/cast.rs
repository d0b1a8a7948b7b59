//! Conversions between element types.

use ansc_graph::ValueId;
use ansc_graph::ops::map;
use ansc_runtime::DType;

use super::OpEntry;
use crate::import::NodeCtx;
use crate::problem::Problem;
use crate::tensor;

pub(crate) const OPS: &[OpEntry] =
    &[OpEntry::onnx("Cast", 6, cast), OpEntry::onnx("CastLike", 15, cast_like)];

fn cast(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let to = ctx.int_opt("to").ok_or_else(|| ctx.problem("attribute `to` is missing"))?;
    let to = i32::try_from(to).map_err(|_| ctx.problem(format!("element type {to} is unknown")))?;
    let to = tensor::dtype(to).map_err(|reason| ctx.problem(reason))?;
    convert(ctx, to)
}

fn cast_like(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let to = ctx.ty(ctx.input(1)?).dtype;
    convert(ctx, to)
}

fn convert(ctx: &mut NodeCtx<'_>, to: DType) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    if ty.dtype == to {
        return Ok(vec![x]);
    }
    ctx.emit(map::cast(&ty, to), &[x])
}
