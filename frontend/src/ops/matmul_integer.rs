//! Matrix products of quantised operands.

use ansc_graph::{Expr, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use super::compose::One;
use super::integer::{
    as_multiplied, corrected, dequantised, flat, integer_bias, requantized, scaled, sum_keeping,
};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("MatMulInteger", 10, matmul_integer),
    OpEntry::onnx("QLinearMatMul", 10, qlinear_matmul),
    OpEntry::microsoft("QLinearMatMul", qlinear_matmul),
    OpEntry::microsoft("MatMulIntegerToFloat", matmul_integer_to_float),
    OpEntry::microsoft("DynamicQuantizeMatMul", dynamic_quantize_matmul),
];

/// `(a - zero_a) * (b - zero_b)` as `i32`.
pub(super) fn product(
    ctx: &mut NodeCtx<'_>,
    [a, b]: [ValueId; 2],
    [zero_a, zero_b]: [Option<ValueId>; 2],
) -> One {
    ctx.product_of(a, b, |ctx, a, b| {
        let [(a, zero_a), (b, zero_b)] = as_multiplied(ctx, (a, zero_a), (b, zero_b))?;
        let rank = [ctx.ty(a).rank(), ctx.ty(b).rank()];
        let zero_a = zero_a.map(|z| per_row(ctx, z)).transpose()?;
        // Refuses what has no axis to sum over.
        let mut y = ctx.matmul(a, b)?;
        let inner = ctx.shape(a)[rank[0] - 1];
        if let Some(zero_a) = zero_a {
            let columns = sums(ctx, b, rank[1] - 2)?;
            y = corrected(ctx, y, zero_a, columns)?;
        }
        let Some(zero_b) = zero_b else { return Ok(y) };
        let mut rows = sums(ctx, a, rank[0] - 1)?;
        if let Some(zero_a) = zero_a {
            // The product of both zero points, counted twice so far.
            let wide = ctx.cast(zero_a, DType::I32)?;
            rows = ctx.map(&[rows, wide], DType::I32, |v| {
                v[0].clone() - v[1].clone() * Expr::float(DType::I32, inner as f64)
            })?;
        }
        corrected(ctx, y, zero_b, rows)
    })
}

/// Sums along `axis`, which stays with extent 1.
fn sums(ctx: &mut NodeCtx<'_>, x: ValueId, axis: usize) -> One {
    let mut shape = ctx.shape(x);
    let kept: Vec<usize> = (0..shape.len()).filter(|&a| a != axis).collect();
    let sum = sum_keeping(ctx, x, &kept)?;
    shape[axis] = 1;
    ctx.reshape(sum, &shape)
}

/// A parameter of the left operand: one axis counts rows.
fn per_row(ctx: &mut NodeCtx<'_>, p: ValueId) -> One {
    let shape = ctx.shape(p);
    match shape[..] {
        [1] => ctx.reshape(p, &[]),
        [rows] => ctx.reshape(p, &[rows, 1]),
        _ => Ok(p),
    }
}

/// A parameter that is the same for the whole tensor loses its axis.
fn plain(ctx: &mut NodeCtx<'_>, p: ValueId) -> One {
    if ctx.ty(p).len() == 1 { ctx.reshape(p, &[]) } else { Ok(p) }
}

pub(super) fn plain_zero(ctx: &mut NodeCtx<'_>, i: usize) -> Result<Option<ValueId>, Problem> {
    let zero = ctx.non_zero(i);
    zero.map(|z| plain(ctx, z)).transpose()
}

fn matmul_integer(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let operands = [ctx.input(0)?, ctx.input(1)?];
    let zeros = [plain_zero(ctx, 2)?, plain_zero(ctx, 3)?];
    Ok(vec![product(ctx, operands, zeros)?])
}

fn qlinear_matmul(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let operands = [ctx.input(0)?, ctx.input(3)?];
    let zeros = [plain_zero(ctx, 2)?, plain_zero(ctx, 5)?];
    let scales = [ctx.input(1)?, ctx.input(4)?, ctx.input(6)?];
    let to = ctx.dtype(ctx.input(7)?);
    let acc = product(ctx, operands, zeros)?;
    let matrix = ctx.ty(acc).rank() >= 2 && ctx.ty(operands[0]).rank() >= 2;
    let a = if matrix { per_row(ctx, scales[0])? } else { plain(ctx, scales[0])? };
    let (b, y) = (plain(ctx, scales[1])?, plain(ctx, scales[2])?);
    let zero = plain_zero(ctx, 7)?;
    Ok(vec![requantized(ctx, to, acc, [a, b, y], zero)?])
}

/// Inputs: a, b, their scales, their zero points, a bias.
fn matmul_integer_to_float(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let operands = [ctx.input(0)?, ctx.input(1)?];
    let scales = [ctx.input(2)?, ctx.input(3)?];
    let zeros = [plain_zero(ctx, 4)?, plain_zero(ctx, 5)?];
    let bias = ctx.optional(6);
    Ok(vec![to_float(ctx, operands, scales, zeros, bias)?])
}

/// A product of integers as floats.
pub(super) struct Sum {
    pub(super) value: ValueId,
    /// Whether the bias was added, in integers.
    pub(super) has_bias: bool,
}

/// The product of what two `DequantizeLinear` give, the last two axes of which may be `turned`, if
/// integers can make it; see
/// [`conv_integer::of_dequantised`](super::conv_integer::of_dequantised).
pub(super) fn of_dequantised(
    ctx: &mut NodeCtx<'_>,
    [a, b]: [ValueId; 2],
    turned: [bool; 2],
    bias: Option<ValueId>,
) -> Result<Option<Sum>, Problem> {
    let (Some(mut a), Some(mut b)) = (dequantised(ctx, a), dequantised(ctx, b)) else {
        return Ok(None);
    };
    for (operand, _) in [&mut a, &mut b].into_iter().zip(turned).filter(|(_, turned)| *turned) {
        operand.turn(ctx)?;
    }
    let shape = ctx.shape(b.value);
    let columns = match shape[..] {
        [.., columns] if shape.len() >= 2 => b.is_along(ctx, shape.len() - 1, columns),
        _ => b.is_plain(ctx),
    };
    if !a.is_plain(ctx) || !columns {
        return Ok(None);
    }
    let mut zeros = [None, None];
    for (zero, of) in zeros.iter_mut().zip([a.zero, b.zero]) {
        let of = of.filter(|&z| !ctx.is_zero(z));
        *zero = of.map(|z| flat(ctx, z)).transpose()?;
    }
    let scales = [flat(ctx, a.scale)?, flat(ctx, b.scale)?];
    let mut acc = product(ctx, [a.value, b.value], zeros)?;
    let bias = bias.and_then(|bias| integer_bias(ctx, bias, scales));
    if let Some(bias) = bias {
        acc = ctx.add_values(acc, bias)?;
    }
    let [a, b] = scales;
    let value = scaled(ctx, acc, [a, b])?;
    Ok(Some(Sum { value, has_bias: bias.is_some() }))
}

/// The product of integers with these scales and zero points as floats, and a bias added.
pub(super) fn to_float(
    ctx: &mut NodeCtx<'_>,
    operands: [ValueId; 2],
    scales: [ValueId; 2],
    zeros: [Option<ValueId>; 2],
    bias: Option<ValueId>,
) -> One {
    let acc = product(ctx, operands, zeros)?;
    let (a, b) = (plain(ctx, scales[0])?, plain(ctx, scales[1])?);
    let y = scaled(ctx, acc, [a, b])?;
    match bias {
        Some(bias) => ctx.add_values(y, bias),
        None => Ok(y),
    }
}

/// Inputs: a (float), b, its scale, its zero point, a bias.
fn dynamic_quantize_matmul(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let operands = [ctx.input(0)?, ctx.input(1)?];
    let (scale, zero, bias) = (ctx.input(2)?, plain_zero(ctx, 3)?, ctx.optional(4));
    Ok(vec![dynamic_product(ctx, operands, scale, zero, bias)?])
}

/// The product of floats, which are quantised by what they are, and quantised values.
pub(super) fn dynamic_product(
    ctx: &mut NodeCtx<'_>,
    [a, b]: [ValueId; 2],
    scale: ValueId,
    zero: Option<ValueId>,
    bias: Option<ValueId>,
) -> One {
    let quantized = ctx.emit(ansc_graph::ops::quantize::dynamic_quantize(&ctx.ty(a)), &[a])?;
    let [a, a_scale, a_zero] = quantized[..] else {
        return Err(ctx.problem("quantisation gives three results"));
    };
    to_float(ctx, [a, b], [a_scale, scale], [Some(a_zero), zero], bias)
}
