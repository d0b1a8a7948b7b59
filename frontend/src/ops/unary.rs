//! Elementwise operators of one operand that are one operation of the expression language.

use ansc_graph::ops::map;
use ansc_graph::{BinOp, Expr, UnOp, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Abs", 1, |ctx| number(ctx, UnOp::Abs)),
    OpEntry::onnx("Neg", 1, |ctx| number(ctx, UnOp::Neg)),
    OpEntry::onnx("Sign", 9, |ctx| number(ctx, UnOp::Sign)),
    OpEntry::onnx("Exp", 1, |ctx| float(ctx, UnOp::Exp)),
    OpEntry::onnx("Log", 1, |ctx| float(ctx, UnOp::Log)),
    OpEntry::onnx("Sqrt", 1, |ctx| float(ctx, UnOp::Sqrt)),
    OpEntry::onnx("Tanh", 1, |ctx| float(ctx, UnOp::Tanh)),
    OpEntry::onnx("Sigmoid", 1, |ctx| float(ctx, UnOp::Sigmoid)),
    OpEntry::onnx("Erf", 9, |ctx| number(ctx, UnOp::Erf)),
    OpEntry::onnx("Sin", 7, |ctx| float(ctx, UnOp::Sin)),
    OpEntry::onnx("Cos", 7, |ctx| float(ctx, UnOp::Cos)),
    OpEntry::onnx("Tan", 7, |ctx| float(ctx, UnOp::Tan)),
    OpEntry::onnx("Asin", 7, |ctx| float(ctx, UnOp::Asin)),
    OpEntry::onnx("Acos", 7, |ctx| float(ctx, UnOp::Acos)),
    OpEntry::onnx("Atan", 7, |ctx| float(ctx, UnOp::Atan)),
    OpEntry::onnx("Sinh", 9, |ctx| float(ctx, UnOp::Sinh)),
    OpEntry::onnx("Cosh", 9, |ctx| float(ctx, UnOp::Cosh)),
    OpEntry::onnx("Asinh", 9, |ctx| float(ctx, UnOp::Asinh)),
    OpEntry::onnx("Acosh", 9, |ctx| float(ctx, UnOp::Acosh)),
    OpEntry::onnx("Atanh", 9, |ctx| float(ctx, UnOp::Atanh)),
    OpEntry::onnx("Floor", 1, |ctx| float(ctx, UnOp::Floor)),
    OpEntry::onnx("Ceil", 1, |ctx| float(ctx, UnOp::Ceil)),
    OpEntry::onnx("Round", 11, |ctx| float(ctx, UnOp::Round)),
    OpEntry::onnx("IsNaN", 9, |ctx| float(ctx, UnOp::IsNan)),
    OpEntry::onnx("IsInf", 10, is_inf),
    OpEntry::onnx("Not", 1, |ctx| checked(ctx, UnOp::Not, "bool", |d| d == DType::Bool)),
    OpEntry::onnx("BitwiseNot", 18, |ctx| checked(ctx, UnOp::Not, "an integer", DType::is_int)),
];

fn number(ctx: &mut NodeCtx<'_>, op: UnOp) -> Result<Vec<ValueId>, Problem> {
    checked(ctx, op, "a number", |d| d != DType::Bool)
}

fn float(ctx: &mut NodeCtx<'_>, op: UnOp) -> Result<Vec<ValueId>, Problem> {
    checked(ctx, op, "a float", DType::is_float)
}

fn checked(
    ctx: &mut NodeCtx<'_>,
    op: UnOp,
    what: &str,
    accepts: fn(DType) -> bool,
) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    if !accepts(ty.dtype) {
        return Err(ctx.problem(format!("its operand must be {what}, but is {}", ty.dtype)));
    }
    // The error function of the expression language is one of floats.
    if op == UnOp::Erf && !ty.dtype.is_float() {
        let wide = ctx.emit1(map::cast(&ty, DType::F64), &[x])?;
        let y = ctx.emit1(map::unary(op, &ctx.ty(wide)), &[wide])?;
        return ctx.emit(map::cast(&ctx.ty(y), ty.dtype), &[y]);
    }
    ctx.emit(map::unary(op, &ty), &[x])
}

/// Attributes choose which of the two infinities count.
fn is_inf(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (positive, negative) =
        (ctx.int("detect_positive", 1) != 0, ctx.int("detect_negative", 1) != 0);
    if positive && negative {
        return float(ctx, UnOp::IsInf);
    }
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    if !ty.dtype.is_float() {
        return Err(ctx.problem(format!("its operand must be a float, but is {}", ty.dtype)));
    }
    let infinity = if positive { f64::INFINITY } else { f64::NEG_INFINITY };
    let op = map::map(std::slice::from_ref(&ty), DType::Bool, |v| match positive || negative {
        true => Expr::binary(BinOp::Eq, v[0].clone(), Expr::float(ty.dtype, infinity)),
        false => Expr::bool(false),
    });
    ctx.emit(op, &[x])
}
