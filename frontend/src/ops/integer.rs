//! What products of quantised operands have in common.
//!
//! `sum (a - za) * (b - zb)` is computed as the product of the narrow integers as they are, which
//! machines are fast at, and corrected by sums that are often known at compile time:
//! `sum a * b - za * sum b - zb * sum a + count * za * zb`.

use ansc_graph::ops::einsum::{Labels, einsum};
use ansc_graph::ops::quantize;
use ansc_graph::{BinOp, Expr, ValueId};
use ansc_runtime::DType;

use super::compose::One;
use crate::import::NodeCtx;

/// `x` widened to `i32` and summed over all but the axes `kept`, which stand alone in the result.
pub(crate) fn sum_keeping(ctx: &mut NodeCtx<'_>, x: ValueId, kept: &[usize]) -> One {
    let wide = ctx.cast(x, DType::I32)?;
    let ty = ctx.ty(wide);
    let labels = Labels { operands: vec![(0..ty.rank()).collect()], output: kept.to_vec() };
    ctx.emit1(einsum(&labels, &[ty]), &[wide])
}

/// `y - zero * sum`, all `i32` but `zero`.
pub(crate) fn corrected(ctx: &mut NodeCtx<'_>, y: ValueId, zero: ValueId, sum: ValueId) -> One {
    let zero = ctx.cast(zero, DType::I32)?;
    let product = ctx.binary(BinOp::Mul, zero, sum)?;
    ctx.binary(BinOp::Sub, y, product)
}

/// `x - zero` as `i32`.
pub(crate) fn centred(ctx: &mut NodeCtx<'_>, x: ValueId, zero: Option<ValueId>) -> One {
    let wide = ctx.cast(x, DType::I32)?;
    let Some(zero) = zero else {
        return Ok(wide);
    };
    let zero = ctx.cast(zero, DType::I32)?;
    ctx.binary(BinOp::Sub, wide, zero)
}

/// The integer sum `acc` of products of values with scales `a` and `b` as a value with scale `y`.
pub(crate) fn requantized(
    ctx: &mut NodeCtx<'_>,
    to: DType,
    acc: ValueId,
    [a, b, y]: [ValueId; 3],
    zero: Option<ValueId>,
) -> One {
    let mut scales = Vec::new();
    for scale in [a, b, y] {
        scales.push(ctx.cast(scale, DType::F32)?);
    }
    let factor = ctx.map(&scales, DType::F32, |v| v[0].clone() * v[1].clone() / v[2].clone())?;
    let inputs: Vec<ValueId> = [acc, factor].into_iter().chain(zero).collect();
    let zero_type = zero.map(|z| ctx.dtype(z));
    ctx.map(&inputs, to, |v| {
        let real = Expr::cast(DType::I32, DType::F32, v[0].clone()) * v[1].clone();
        let zero = zero_type.map(|ty| Expr::cast(ty, DType::F32, v[2].clone()));
        quantize::quantized(DType::F32, to, real, zero)
    })
}
