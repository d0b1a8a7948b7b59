//! Elementwise operators of two operands: arithmetic, comparison, logic, bits.

use ansc_graph::ops::{elementwise, map};
use ansc_graph::{BinOp, Expr, Scalar, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use super::broadcast::{align, operands};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Add", 1, |ctx| number(ctx, BinOp::Add)),
    OpEntry::onnx("Sub", 1, |ctx| number(ctx, BinOp::Sub)),
    OpEntry::onnx("Mul", 1, |ctx| number(ctx, BinOp::Mul)),
    OpEntry::onnx("Div", 1, |ctx| number(ctx, BinOp::Div)),
    OpEntry::onnx("Mod", 10, modulo),
    OpEntry::onnx("Pow", 1, power),
    OpEntry::onnx("PRelu", 1, prelu),
    OpEntry::onnx("Equal", 1, |ctx| checked(ctx, BinOp::Eq, Order::Given, "", |_| true)),
    OpEntry::onnx("Less", 1, |ctx| compare(ctx, BinOp::Lt, Order::Given)),
    OpEntry::onnx("LessOrEqual", 12, |ctx| compare(ctx, BinOp::Le, Order::Given)),
    OpEntry::onnx("Greater", 1, |ctx| compare(ctx, BinOp::Lt, Order::Swapped)),
    OpEntry::onnx("GreaterOrEqual", 12, |ctx| compare(ctx, BinOp::Le, Order::Swapped)),
    OpEntry::onnx("And", 1, |ctx| logic(ctx, BinOp::And)),
    OpEntry::onnx("Or", 1, |ctx| logic(ctx, BinOp::Or)),
    OpEntry::onnx("Xor", 1, |ctx| logic(ctx, BinOp::Xor)),
    OpEntry::onnx("BitwiseAnd", 18, |ctx| bits(ctx, BinOp::And)),
    OpEntry::onnx("BitwiseOr", 18, |ctx| bits(ctx, BinOp::Or)),
    OpEntry::onnx("BitwiseXor", 18, |ctx| bits(ctx, BinOp::Xor)),
    OpEntry::onnx("BitShift", 11, shift),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Given,
    Swapped,
}

fn number(ctx: &mut NodeCtx<'_>, op: BinOp) -> Result<Vec<ValueId>, Problem> {
    checked(ctx, op, Order::Given, "numbers", |d| d != DType::Bool)
}

fn compare(ctx: &mut NodeCtx<'_>, op: BinOp, order: Order) -> Result<Vec<ValueId>, Problem> {
    checked(ctx, op, order, "numbers", |d| d != DType::Bool)
}

fn logic(ctx: &mut NodeCtx<'_>, op: BinOp) -> Result<Vec<ValueId>, Problem> {
    checked(ctx, op, Order::Given, "bool", |d| d == DType::Bool)
}

fn bits(ctx: &mut NodeCtx<'_>, op: BinOp) -> Result<Vec<ValueId>, Problem> {
    checked(ctx, op, Order::Given, "integers", DType::is_int)
}

fn checked(
    ctx: &mut NodeCtx<'_>,
    op: BinOp,
    order: Order,
    what: &str,
    accepts: fn(DType) -> bool,
) -> Result<Vec<ValueId>, Problem> {
    let (a, b) = operands(ctx)?;
    let dtype = ctx.ty(a).dtype;
    if !accepts(dtype) {
        return Err(ctx.problem(format!("its operands must be {what}, but are {dtype}")));
    }
    let (a, b) = if order == Order::Swapped { (b, a) } else { (a, b) };
    ctx.emit(map::binary(op, &ctx.ty(a), &ctx.ty(b)), &[a, b])
}

/// The sign of the result is the divisor's, or the dividend's with `fmod`.
fn modulo(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    match ctx.int("fmod", 0) {
        0 if ctx.ty(ctx.input(0)?).dtype.is_float() => float_modulo(ctx),
        0 => checked(ctx, BinOp::FloorMod, Order::Given, "numbers", DType::is_int),
        _ => number(ctx, BinOp::Rem),
    }
}

/// The remainder, moved to the divisor's side of zero; a zero too has the divisor's sign.
fn float_modulo(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (a, b) = operands(ctx)?;
    let dtype = ctx.ty(a).dtype;
    let result = ctx.map(&[a, b], dtype, |v| {
        let [a, b] = [0, 1].map(|i| v[i].clone());
        let constant = |x: f64| Expr::Const(Scalar::from_f64(dtype, x));
        let negative = |x: &Expr| x.clone().lt(constant(0.0));
        let rest = Expr::binary(BinOp::Rem, a, b.clone());
        let zero = Expr::select(negative(&b), constant(-0.0), constant(0.0));
        let apart = Expr::binary(BinOp::Ne, negative(&rest), negative(&b));
        let moved = Expr::select(apart, rest.clone() + b, rest.clone());
        Expr::select(Expr::binary(BinOp::Eq, rest, constant(0.0)), zero, moved)
    })?;
    Ok(vec![result])
}

fn shift(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let op = match ctx.string("direction", "").as_str() {
        "LEFT" => BinOp::Shl,
        "RIGHT" => BinOp::Shr,
        other => return Err(ctx.problem(format!("attribute `direction` is `{other}`"))),
    };
    checked(ctx, op, Order::Given, "integers", DType::is_int)
}

/// Squares and cubes are products: that is how exporters write them, and a power is slow.
fn power(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, exponent) = operands(ctx)?;
    let (ty, exponent_ty) = (ctx.ty(x), ctx.ty(exponent));
    let scalar = ctx
        .constant(exponent)
        .filter(|t| t.len() == 1 && t.rank() <= ty.rank())
        .map(|t| t.to_f64_vec()[0]);
    let square = || map::binary(BinOp::Mul, &ty, &ty);
    match scalar {
        Some(2.0) if ty.dtype != DType::Bool => ctx.emit(square(), &[x, x]),
        Some(3.0) if ty.dtype != DType::Bool => {
            let squared = ctx.emit1(square(), &[x, x])?;
            ctx.emit(square(), &[squared, x])
        }
        _ => ctx.emit(elementwise::power(&ty, &exponent_ty), &[x, exponent]),
    }
}

/// Before opset 7 a slope of one dimension belongs to the channels.
fn prelu(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, mut slope) = (ctx.input(0)?, ctx.input(1)?);
    let (ty, slope_ty) = (ctx.ty(x), ctx.ty(slope));
    if ctx.opset() < 7 && slope_ty.rank() == 1 && slope_ty.len() > 1 && ty.rank() > 1 {
        slope = align(ctx, slope, 1, &ty.shape)?;
    }
    ctx.emit(elementwise::prelu(&ty, &ctx.ty(slope)), &[x, slope])
}
