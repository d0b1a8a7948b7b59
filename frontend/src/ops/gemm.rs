//! Matrix products of floats: `MatMul`, `Gemm`, and their fused forms.

use ansc_graph::{Expr, ValueId};

use super::OpEntry;
use super::activation::Activation;
use super::compose::One;
use super::matmul_integer;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("MatMul", 1, matmul),
    OpEntry::onnx("Gemm", 1, |ctx| Ok(vec![gemm(ctx)?])),
    OpEntry::microsoft("FusedMatMul", fused_matmul),
    OpEntry::microsoft("FusedGemm", fused_gemm),
];

fn matmul(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (a, b) = (ctx.input(0)?, ctx.input(1)?);
    Ok(vec![product(ctx, a, b)?])
}

/// The matrix product, of integers if both operands are dequantised.
fn product(ctx: &mut NodeCtx<'_>, a: ValueId, b: ValueId) -> One {
    match matmul_integer::of_dequantised(ctx, [a, b], [false; 2], None)? {
        Some(sum) => Ok(sum.value),
        None => ctx.product_of(a, b, NodeCtx::matmul),
    }
}

/// `alpha * a * b + beta * c`.
fn gemm(ctx: &mut NodeCtx<'_>) -> One {
    let operands = [ctx.input(0)?, ctx.input(1)?];
    let ranks = operands.map(|v| ctx.ty(v).rank());
    ctx.check(ranks == [2, 2], || "its operands must be matrices".into())?;
    let (alpha, beta) = (ctx.float("alpha", 1.0), ctx.float("beta", 1.0));
    let c = ctx.optional(2).filter(|_| beta != 0.0);
    let turned = ["transA", "transB"].map(|name| ctx.int(name, 0) != 0);
    let bias = c.filter(|_| (alpha, beta) == (1.0, 1.0));
    let y = match matmul_integer::of_dequantised(ctx, operands, turned, bias)? {
        Some(sum) if sum.has_bias => return Ok(sum.value),
        Some(sum) => sum.value,
        None => {
            let (a, b) = (transposed(ctx, 0, "transA")?, transposed(ctx, 1, "transB")?);
            ctx.matmul(a, b)?
        }
    };
    let Some(c) = c else {
        return scaled(ctx, y, alpha);
    };
    let (product, dtype) = (ctx.ty(y), ctx.dtype(y));
    let factor = |e: &Expr, by: f32| match by {
        1.0 => e.clone(),
        by => e.clone() * Expr::float(dtype, by.into()),
    };
    let sum = ctx.map(&[y, c], dtype, |v| factor(&v[0], alpha) + factor(&v[1], beta))?;
    ctx.check(ctx.shape(sum) == product.shape, || {
        format!(
            "its operand C of shape {:?} does not broadcast to {:?}",
            ctx.shape(c),
            product.shape
        )
    })?;
    Ok(sum)
}

fn transposed(ctx: &mut NodeCtx<'_>, i: usize, attribute: &str) -> One {
    let x = ctx.input(i)?;
    if ctx.int(attribute, 0) == 0 { Ok(x) } else { ctx.transpose_matrix(x) }
}

pub(crate) fn scaled(ctx: &mut NodeCtx<'_>, x: ValueId, by: f32) -> One {
    if by == 1.0 {
        return Ok(x);
    }
    let dtype = ctx.dtype(x);
    ctx.map(&[x], dtype, |v| v[0].clone() * Expr::float(dtype, by.into()))
}

fn fused_matmul(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let a = fused_operand(ctx, 0, "transBatchA", "transA")?;
    let b = fused_operand(ctx, 1, "transBatchB", "transB")?;
    let y = ctx.product_of(a, b, NodeCtx::matmul)?;
    let alpha = ctx.float("alpha", 1.0);
    Ok(vec![scaled(ctx, y, alpha)?])
}

/// With `batch`, the first axis is that of the matrix and the batch axes follow it.
fn fused_operand(ctx: &mut NodeCtx<'_>, i: usize, batch: &str, attribute: &str) -> One {
    let x = ctx.input(i)?;
    let rank = ctx.ty(x).rank();
    let x = if ctx.int(batch, 0) != 0 && rank > 2 {
        let mut perm: Vec<usize> = (1..rank - 1).collect();
        perm.extend([0, rank - 1]);
        ctx.transpose(x, &perm)?
    } else {
        x
    };
    if ctx.int(attribute, 0) == 0 { Ok(x) } else { ctx.transpose_matrix(x) }
}

fn fused_gemm(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let name = ctx.string("activation", "");
    let given = ["activation_alpha", "activation_beta"].map(|n| ctx.float_opt(n));
    let parameters: Vec<f32> = given.into_iter().map_while(|p| p).collect();
    let activation = Activation::parse(ctx, &name, &parameters)?;
    let y = gemm(ctx)?;
    Ok(vec![activation.emit(ctx, y)?])
}
