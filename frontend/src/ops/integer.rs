//! The parts that products of quantised operands have in common.
//!
//! `sum (a - za) * (b - zb)` is computed as the product of the narrow integers as they are, which
//! machines are fast at, and corrected by sums that are often known at compile time:
//! `sum a * b - za * sum b - zb * sum a + count * za * zb`.

use ansc_graph::ops::map::map;
use ansc_graph::ops::reduce::sum_as;
use ansc_graph::ops::{OpError, quantize};
use ansc_graph::{BinOp, ComputeOp, Expr, Scalar, TensorType, ValueId};
use ansc_runtime::{DType, Tensor};

use super::compose::One;
use crate::problem::Problem;
use crate::walk::NodeCtx;

/// `x` widened to `i32` and summed over all but the axes `kept`, which stand alone in the result.
pub(crate) fn sum_keeping(ctx: &mut NodeCtx<'_>, x: ValueId, kept: &[usize]) -> One {
    let ty = ctx.ty(x);
    let axes: Vec<usize> = (0..ty.rank()).filter(|axis| !kept.contains(axis)).collect();
    ctx.emit1(sum_as(DType::I32, &axes, &ty), &[x])
}

/// An operand and its zero point.
pub(crate) type Operand = (ValueId, Option<ValueId>);

/// Operands of a product with a known right side as machines multiply them, four at a time: the
/// left one without a sign, the right one with. Both are moved by 128 together with their zero
/// points, which changes nothing of the product; the other way around is as good, and left alone.
pub(crate) fn as_multiplied(
    ctx: &mut NodeCtx<'_>,
    a: Operand,
    b: Operand,
) -> Result<[Operand; 2], Problem> {
    let types = [ctx.dtype(a.0), ctx.dtype(b.0)];
    match types {
        [DType::I8, DType::I8] if ctx.constant(b.0).is_some() => Ok([moved(ctx, a)?, b]),
        [DType::U8, DType::U8] if ctx.constant(b.0).is_some() => Ok([a, moved(ctx, b)?]),
        _ => Ok([a, b]),
    }
}

/// `i8` as `u8` that is 128 more, or `u8` as `i8` that is 128 less.
pub(crate) fn moved(ctx: &mut NodeCtx<'_>, (x, zero): Operand) -> Result<Operand, Problem> {
    let from = ctx.dtype(x);
    let to = if from == DType::I8 { DType::U8 } else { DType::I8 };
    let zero = match zero {
        Some(zero) => zero,
        None => ctx.add_const(Tensor::zeros(from, &[]))?,
    };
    let mut moved = |x| {
        // The highest bit is the sign of one and 128 of the other.
        let highest = Expr::Const(Scalar::from_i64(to, 128));
        ctx.map(&[x], to, |v| Expr::binary(BinOp::Xor, Expr::cast(from, to, v[0].clone()), highest))
    };
    let (x, zero) = (moved(x)?, moved(zero)?);
    Ok((x, Some(zero).filter(|&zero| !ctx.is_zero(zero))))
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

/// A value of floats, and the integers that it was made of.
pub(crate) struct Dequantised {
    pub(crate) value: ValueId,
    pub(crate) scale: ValueId,
    pub(crate) zero: Option<ValueId>,
}

/// The integers of 8 bits that a `DequantizeLinear` made floats of 32 bits of.
pub(crate) fn dequantised(ctx: &NodeCtx<'_>, y: ValueId) -> Option<Dequantised> {
    dequantised_from(ctx, y, &[DType::I8, DType::U8])
}

fn dequantised_from(ctx: &NodeCtx<'_>, y: ValueId, types: &[DType]) -> Option<Dequantised> {
    let graph = ctx.graph_here();
    let op = graph.compute_of(y.node)?;
    let inputs = &op.expr.inputs;
    let (x, scale) = (inputs.first()?, inputs.get(1)?);
    // The expression says what it is, whichever operator it came from.
    let expected = quantize::dequantize(DType::F32, x, scale, inputs.get(2)).ok()?;
    if !types.contains(&x.dtype) || scale.dtype != DType::F32 || *op != expected {
        return None;
    }
    let operands = graph.operands(y.node);
    Some(Dequantised { value: operands[0], scale: operands[1], zero: operands.get(2).copied() })
}

impl Dequantised {
    /// Whether one scale is for all elements.
    pub(crate) fn is_plain(&self, ctx: &NodeCtx<'_>) -> bool {
        self.parameters().all(|p| ctx.ty(p).len() == 1)
    }

    /// Whether there is one scale, or one for each of the `extent` elements of an axis.
    pub(crate) fn is_along(&self, ctx: &NodeCtx<'_>, axis: usize, extent: usize) -> bool {
        let from_end = ctx.ty(self.value).rank().checked_sub(axis);
        self.parameters().all(|p| {
            let ty = ctx.ty(p);
            let at = from_end.and_then(|back| ty.rank().checked_sub(back));
            ty.len() == 1 || ty.len() == extent && at.is_some_and(|at| ty.shape[at] == extent)
        })
    }

    /// Exchanges the last two axes.
    pub(crate) fn turn(&mut self, ctx: &mut NodeCtx<'_>) -> Result<(), Problem> {
        for value in [&mut self.value, &mut self.scale].into_iter().chain(&mut self.zero) {
            if ctx.ty(*value).len() != 1 {
                let lined_up = match ctx.shape(*value)[..] {
                    [n] => ctx.reshape(*value, &[1, n])?,
                    _ => *value,
                };
                *value = ctx.transpose_matrix(lined_up)?;
            }
        }
        Ok(())
    }

    fn parameters(&self) -> impl Iterator<Item = ValueId> {
        [self.scale].into_iter().chain(self.zero)
    }
}

/// A scale or zero point as a scalar, or as a vector.
pub(crate) fn flat(ctx: &mut NodeCtx<'_>, p: ValueId) -> One {
    match ctx.ty(p).len() {
        1 => ctx.reshape(p, &[]),
        n => ctx.reshape(p, &[n]),
    }
}

/// A bias in the units of a sum whose operands have these scales, if it was dequantised from such.
pub(crate) fn integer_bias(
    ctx: &NodeCtx<'_>,
    bias: ValueId,
    scales: [ValueId; 2],
) -> Option<ValueId> {
    let bias = dequantised_from(ctx, bias, &[DType::I32])?;
    let is_centred = bias.zero.is_none_or(|zero| ctx.is_zero(zero));
    let known = |v: ValueId| ctx.constant(v).map(|t| t.as_slice::<f32>().to_vec());
    let [a, b, own] = [known(scales[0])?, known(scales[1])?, known(bias.scale)?];
    let at = |of: &[f32], i: usize| of[i.min(of.len() - 1)];
    let lengths = [a.len(), b.len(), own.len()];
    let longest = lengths.into_iter().max()?;
    let fits = lengths.iter().all(|&n| n == 1 || n == longest);
    let same = |i: usize| at(&a, i) * at(&b, i) == at(&own, i);
    (is_centred && fits && (0..longest).all(same)).then_some(bias.value)
}

/// The integer sum `acc` as a float: each unit stands for the product of two scales.
pub(crate) fn scaled(ctx: &mut NodeCtx<'_>, acc: ValueId, [a, b]: [ValueId; 2]) -> One {
    let factor = ctx.binary(BinOp::Mul, a, b)?;
    let op = scaled_op(&ctx.ty(acc), &ctx.ty(factor));
    ctx.emit1(op, &[acc, factor])
}

/// A sum times what a unit of it stands for, as a float of the factor's type.
pub(crate) fn scaled_op(acc: &TensorType, factor: &TensorType) -> Result<ComputeOp, OpError> {
    let dtype = factor.dtype;
    map(&[acc.clone(), factor.clone()], dtype, |v| {
        Expr::cast(DType::I32, dtype, v[0].clone()) * v[1].clone()
    })
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
