//! `QGemm` of com.microsoft: a product of matrices of integers, scaled, as integers or as floats.

use ansc_graph::ValueId;
use ansc_runtime::DType;

use super::OpEntry;
use super::compose::One;
use super::gemm;
use super::integer::scaled as as_float;
use super::integer::{flat, requantized};
use super::matmul_integer::product;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::microsoft("QGemm", qgemm)];

/// Inputs: a, its scale and zero point, b, its, c in `i32`, the result's scale and zero point.
/// Without the last two the result is a float.
fn qgemm(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let operands = [turned(ctx, 0, "transA")?, turned(ctx, 3, "transB")?];
    let ranks = operands.map(|v| ctx.ty(v).rank());
    ctx.check(ranks == [2, 2], || "its operands must be matrices".into())?;
    let mut zeros = [ctx.non_zero(2), ctx.non_zero(5)];
    for zero in zeros.iter_mut().flatten() {
        *zero = flat(ctx, *zero)?;
    }
    let mut acc = product(ctx, operands, zeros)?;
    if let Some(c) = ctx.optional(6) {
        acc = ctx.add_values(acc, c)?;
    }
    let (a, b) = (ctx.input(1)?, ctx.input(4)?);
    let (a, b) = (flat(ctx, a)?, flat(ctx, b)?);
    let a = gemm::scaled(ctx, a, ctx.float("alpha", 1.0))?;
    let Some(scale) = ctx.optional(7) else {
        return Ok(vec![as_float(ctx, acc, [a, b])?]);
    };
    let scale = flat(ctx, scale)?;
    let to = ctx.optional(8).map_or(DType::U8, |zero| ctx.dtype(zero));
    let zero = ctx.non_zero(8).map(|z| flat(ctx, z)).transpose()?;
    Ok(vec![requantized(ctx, to, acc, [a, b, scale], zero)?])
}

fn turned(ctx: &mut NodeCtx<'_>, i: usize, attribute: &str) -> One {
    let x = ctx.input(i)?;
    if ctx.int(attribute, 0) == 0 { Ok(x) } else { ctx.transpose_matrix(x) }
}
