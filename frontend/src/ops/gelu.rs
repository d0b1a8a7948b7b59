//! Forms of the Gaussian error linear unit that exporters fuse.

use ansc_graph::{Expr, UnOp, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use super::compose::One;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::microsoft("Gelu", |ctx| biased(ctx, exact)),
    OpEntry::microsoft("BiasGelu", |ctx| biased(ctx, exact)),
    OpEntry::microsoft("FastGelu", |ctx| biased(ctx, by_tanh)),
    OpEntry::microsoft("QuickGelu", |ctx| {
        let alpha = ctx.float("alpha", 1.702);
        biased(ctx, |acc, x| x.clone() * Expr::unary(UnOp::Sigmoid, x * real(acc, alpha)))
    }),
];

/// `f` of the sum of the input and, if there is one, the bias, computed in `f32` for half floats.
fn biased(
    ctx: &mut NodeCtx<'_>,
    f: impl FnOnce(DType, Expr) -> Expr,
) -> Result<Vec<ValueId>, Problem> {
    let mut inputs = vec![ctx.input(0)?];
    inputs.extend(ctx.optional(1));
    Ok(vec![emit(ctx, &inputs, f)?])
}

fn emit(ctx: &mut NodeCtx<'_>, inputs: &[ValueId], f: impl FnOnce(DType, Expr) -> Expr) -> One {
    let dtype = ctx.dtype(inputs[0]);
    let acc = dtype.accumulator();
    ctx.map(inputs, dtype, |v| {
        let wide = v.into_iter().map(|e| Expr::cast(dtype, acc, e));
        let x = wide.reduce(|a, b| a + b).expect("there is an input");
        Expr::cast(acc, dtype, f(acc, x))
    })
}

/// `x / 2 * (1 + erf(x / sqrt 2))`.
fn exact(acc: DType, x: Expr) -> Expr {
    let scaled = x.clone() * real(acc, std::f32::consts::FRAC_1_SQRT_2);
    x * real(acc, 0.5) * (real(acc, 1.0) + Expr::unary(UnOp::Erf, scaled))
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
fn by_tanh(acc: DType, x: Expr) -> Expr {
    let factor = 0.797_884_6;
    let square = x.clone() * x.clone();
    let inner = x.clone() * (real(acc, factor) + square * real(acc, factor * 0.044_715));
    x * real(acc, 0.5) * (real(acc, 1.0) + Expr::unary(UnOp::Tanh, inner))
}

fn real(dtype: DType, value: f32) -> Expr {
    Expr::float(dtype, value.into())
}
