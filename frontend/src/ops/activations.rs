//! Activation functions.

use ansc_graph::ops::activation::{self, Activation};
use ansc_graph::{BinOp, ValueId};

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Relu", 1, relu),
    OpEntry::onnx("Shrink", 9, shrink),
    OpEntry::onnx("Celu", 12, |ctx| {
        let alpha = ctx.float("alpha", 1.0);
        simple(ctx, Activation::Celu { alpha })
    }),
    OpEntry::onnx("Elu", 1, |ctx| {
        let alpha = ctx.float("alpha", 1.0);
        simple(ctx, Activation::Elu { alpha })
    }),
    OpEntry::onnx("Gelu", 20, gelu),
    OpEntry::onnx("HardSigmoid", 1, |ctx| {
        let (alpha, beta) = (ctx.float("alpha", 0.2), ctx.float("beta", 0.5));
        simple(ctx, Activation::HardSigmoid { alpha, beta })
    }),
    OpEntry::onnx("HardSwish", 14, |ctx| simple(ctx, Activation::HardSwish)),
    OpEntry::onnx("LeakyRelu", 1, |ctx| {
        let alpha = ctx.float("alpha", 0.01);
        simple(ctx, Activation::LeakyRelu { alpha })
    }),
    OpEntry::onnx("Mish", 18, |ctx| simple(ctx, Activation::Mish)),
    OpEntry::onnx("Reciprocal", 1, |ctx| simple(ctx, Activation::Reciprocal)),
    OpEntry::onnx("Selu", 1, selu),
    OpEntry::onnx("Softplus", 1, |ctx| simple(ctx, Activation::Softplus)),
    OpEntry::onnx("Softsign", 1, |ctx| simple(ctx, Activation::Softsign)),
    OpEntry::onnx("SwiGLU", 28, swiglu),
    OpEntry::onnx("Swish", 24, |ctx| {
        let alpha = ctx.float("alpha", 1.0);
        simple(ctx, Activation::Swish { alpha })
    }),
    OpEntry::onnx("ThresholdedRelu", 10, |ctx| {
        let alpha = ctx.float("alpha", 1.0);
        simple(ctx, Activation::ThresholdedRelu { alpha })
    }),
];

fn simple(ctx: &mut NodeCtx<'_>, kind: Activation) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    ctx.emit(activation::activation(kind, &ctx.ty(x)), &[x])
}

fn relu(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    ctx.emit(activation::relu(&ctx.ty(x)), &[x])
}

fn shrink(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (lambda, bias) = (ctx.float("lambd", 0.5), ctx.float("bias", 0.0));
    let x = ctx.input(0)?;
    ctx.emit(activation::shrink(lambda, bias, &ctx.ty(x)), &[x])
}

fn gelu(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    match ctx.string("approximate", "none").as_str() {
        "none" => simple(ctx, Activation::Gelu),
        "tanh" => simple(ctx, Activation::GeluTanh),
        other => Err(ctx.problem(format!("attribute `approximate` is `{other}`"))),
    }
}

/// `swish(a) * b`.
fn swiglu(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let kind = Activation::Swish { alpha: ctx.float("alpha", 1.0) };
    let (a, b) = (ctx.input(0)?, ctx.input(1)?);
    let (a_ty, b_ty) = (ctx.ty(a), ctx.ty(b));
    ctx.check(a_ty == b_ty && a_ty.dtype.is_float(), || {
        format!("its operands must be floats of one type, not {a_ty} and {b_ty}")
    })?;
    let gate = ctx.emit1(activation::activation(kind, &a_ty), &[a])?;
    Ok(vec![ctx.binary(BinOp::Mul, gate, b)?])
}

/// The first versions rounded the defaults to four digits.
fn selu(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let defaults = if ctx.opset() < 6 { (1.6732, 1.0507) } else { (1.673_263_2, 1.050_701) };
    let (alpha, gamma) = (ctx.float("alpha", defaults.0), ctx.float("gamma", defaults.1));
    simple(ctx, Activation::Selu { alpha, gamma })
}
