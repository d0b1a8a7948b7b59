//! Conversions between element types, of values and of bits.

use ansc_graph::ops::map;
use ansc_graph::ops::nibbles::element;
use ansc_graph::{Expr, TensorType, Value, ValueId};
use ansc_runtime::DType;
use ansc_runtime::host::HostOp;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;
use crate::{nibbles, tensor_type};

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("BitCast", 26, bit_cast),
    OpEntry::onnx("Cast", 6, cast),
    OpEntry::onnx("CastLike", 15, cast_like),
];

fn number(ctx: &NodeCtx<'_>) -> Result<i32, Problem> {
    let to = ctx.int_opt("to").ok_or_else(|| ctx.problem("attribute `to` is missing"))?;
    i32::try_from(to).map_err(|_| ctx.problem(format!("element type {to} is unknown")))
}

fn target(ctx: &NodeCtx<'_>) -> Result<DType, Problem> {
    tensor_type::dtype(number(ctx)?).map_err(|reason| ctx.problem(reason))
}

fn cast(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    if let Some(to) = nibbles::wide(number(ctx)?) {
        return low_bits(ctx, to);
    }
    let to = target(ctx)?;
    convert(ctx, to)
}

/// A conversion to elements of 4 bits, of which integers keep the lowest.
fn low_bits(ctx: &mut NodeCtx<'_>, to: DType) -> Result<Vec<ValueId>, Problem> {
    let values = convert(ctx, to)?;
    let x = values[0];
    let low = map::map(&[ctx.ty(x)], to, |v| element(to, Expr::cast(to, DType::I32, v[0].clone())));
    ctx.marks_nibbles();
    ctx.emit(low, &[x])
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
