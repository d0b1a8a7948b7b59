//! Conversions between element types, of values and of bits.

use ansc_graph::ops::map;
use ansc_graph::{TensorType, Value, ValueId};
use ansc_runtime::DType;
use ansc_runtime::host::HostOp;

use super::OpEntry;
use crate::import::NodeCtx;
use crate::problem::Problem;
use crate::tensor;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("BitCast", 26, bit_cast),
    OpEntry::onnx("Cast", 6, cast),
    OpEntry::onnx("CastLike", 15, cast_like),
];

fn target(ctx: &NodeCtx<'_>) -> Result<DType, Problem> {
    let to = ctx.int_opt("to").ok_or_else(|| ctx.problem("attribute `to` is missing"))?;
    let to = i32::try_from(to).map_err(|_| ctx.problem(format!("element type {to} is unknown")))?;
    tensor::dtype(to).map_err(|reason| ctx.problem(reason))
}

fn cast(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let to = target(ctx)?;
    convert(ctx, to)
}

fn bit_cast(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, to) = (ctx.input(0)?, target(ctx)?);
    let ty = ctx.ty(x);
    ctx.check(ty.dtype.size() == to.size(), || {
        format!("an element of type {} does not have as many bits as one of {to}", ty.dtype)
    })?;
    let output = Value {
        dynamic: ctx.is_dynamic(x),
        ..Value::new(ctx.name(), TensorType::new(to, ty.shape))
    };
    ctx.host(HostOp::BitCast { to }, &[x], vec![output])
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
