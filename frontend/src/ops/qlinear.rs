//! Operators of com.microsoft on quantised values: each dequantises its inputs, computes with
//! floats and quantises the result, which for elementwise ones is a single map.

use ansc_graph::ops::concat::concat;
use ansc_graph::ops::pool::{GlobalPool, global_pool};
use ansc_graph::ops::quantize;
use ansc_graph::ops::reduce::{Reduction, reduce};
use ansc_graph::ops::softmax::softmax;
use ansc_graph::{BinOp, Expr, TensorType, UnOp, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use super::compose::One;
use super::pool::average;
use super::quantize::{dequantized, quantized};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::microsoft("QLinearAdd", |ctx| binary(ctx, BinOp::Add)),
    OpEntry::microsoft("QLinearMul", |ctx| binary(ctx, BinOp::Mul)),
    OpEntry::microsoft("QLinearSigmoid", |ctx| unary(ctx, |x| Expr::unary(UnOp::Sigmoid, x))),
    OpEntry::microsoft("QLinearLeakyRelu", |ctx| {
        let slope = Expr::float(DType::F32, ctx.float("alpha", 0.01).into());
        let zero = Expr::float(DType::F32, 0.0);
        unary(ctx, |x| Expr::select(x.clone().lt(zero), x.clone() * slope, x))
    }),
    OpEntry::microsoft("QLinearSoftmax", qlinear_softmax),
    OpEntry::microsoft("QLinearAveragePool", |ctx| pooled(ctx, average)),
    OpEntry::microsoft("QLinearGlobalAveragePool", |ctx| {
        pooled(ctx, |ctx, x| ctx.emit1(global_pool(GlobalPool::Average, &ctx.ty(x)), &[x]))
    }),
    OpEntry::microsoft("QLinearConcat", qlinear_concat),
    OpEntry::microsoft("QLinearReduceMean", qlinear_reduce_mean),
    OpEntry::microsoft("QLinearWhere", qlinear_where),
];

/// A quantised operand: values, scale and zero point, the last two of one element.
struct Quantised {
    value: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
}

/// The operand at inputs `i`, `i + 1` and `i + 2`.
fn operand(ctx: &mut NodeCtx<'_>, i: usize) -> Result<Quantised, Problem> {
    let value = ctx.input(i)?;
    let (scale, zero) = scaling(ctx, i + 1)?;
    Ok(Quantised { value, scale, zero })
}

/// Scale and zero point at inputs `i` and `i + 1`.
fn scaling(ctx: &mut NodeCtx<'_>, i: usize) -> Result<(ValueId, Option<ValueId>), Problem> {
    let scale = ctx.input(i)?;
    let scale = ctx.reshape(scale, &[])?;
    let zero = ctx.non_zero(i + 1).map(|z| ctx.reshape(z, &[])).transpose()?;
    Ok((scale, zero))
}

fn dequantise(ctx: &mut NodeCtx<'_>, x: &Quantised) -> One {
    dequantized(ctx, x.value, x.scale, x.zero)
}

/// One map from quantised operands to the quantised result, which has the first operand's type and
/// the scaling at input `i`.
fn map(
    ctx: &mut NodeCtx<'_>,
    operands: &[Quantised],
    i: usize,
    f: impl FnOnce(Vec<Expr>) -> Expr,
) -> One {
    let (scale, zero) = scaling(ctx, i)?;
    let mut inputs = Vec::new();
    for x in operands {
        inputs.extend([x.value, x.scale]);
        inputs.extend(x.zero);
    }
    inputs.push(scale);
    inputs.extend(zero);
    let types: Vec<DType> = inputs.iter().map(|&v| ctx.dtype(v)).collect();
    let to = types[0];
    ctx.map(&inputs, to, |v| {
        let mut elements = types.into_iter().zip(v);
        let mut next = || elements.next().expect("as many elements as inputs");
        let mut reals = Vec::new();
        for x in operands {
            let (value, scale) = (next(), next().1);
            let zero = x.zero.map(|_| next());
            reals.push(quantize::centred(DType::F32, value, zero) * scale);
        }
        let quotient = f(reals) / next().1;
        let zero = zero.map(|_| next()).map(|(ty, z)| Expr::cast(ty, DType::F32, z));
        quantize::quantized(DType::F32, to, quotient, zero)
    })
}

fn binary(ctx: &mut NodeCtx<'_>, op: BinOp) -> Result<Vec<ValueId>, Problem> {
    let operands = [operand(ctx, 0)?, operand(ctx, 3)?];
    let y = map(ctx, &operands, 6, |v| {
        v.into_iter().reduce(|a, b| Expr::binary(op, a, b)).expect("there are two operands")
    })?;
    Ok(vec![y])
}

fn unary(ctx: &mut NodeCtx<'_>, f: impl FnOnce(Expr) -> Expr) -> Result<Vec<ValueId>, Problem> {
    let x = [operand(ctx, 0)?];
    Ok(vec![map(ctx, &x, 3, |mut v| f(v.remove(0)))?])
}

fn qlinear_softmax(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = operand(ctx, 0)?;
    let ty = ctx.ty(x.value);
    let axis = ctx.axis(ctx.int("axis", -1), ty.rank())?;
    // Before opset 13 softmax was over all axes from `axis` on.
    let end = if ctx.int("opset", 13) < 13 { ty.rank() } else { axis + 1 };
    let real = dequantise(ctx, &x)?;
    let axes: Vec<usize> = (axis..end).collect();
    let y = ctx.emit1(softmax(&axes, &ctx.ty(real)), &[real])?;
    Ok(vec![requantise(ctx, ty.dtype, y, 3)?])
}

/// `y` quantised by the scaling at input `i`.
fn requantise(ctx: &mut NodeCtx<'_>, to: DType, y: ValueId, i: usize) -> One {
    let (scale, zero) = scaling(ctx, i)?;
    quantized(ctx, to, y, scale, zero)
}

fn pooled(
    ctx: &mut NodeCtx<'_>,
    pool: impl FnOnce(&mut NodeCtx<'_>, ValueId) -> One,
) -> Result<Vec<ValueId>, Problem> {
    let x = operand(ctx, 0)?;
    let channels_last = ctx.int("channels_last", 0) != 0;
    let (to, rank) = (ctx.dtype(x.value), ctx.ty(x.value).rank());
    ctx.check(rank >= 3, || "its input has no spatial axis".into())?;
    let mut real = dequantise(ctx, &x)?;
    if channels_last {
        let to_first: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
        real = ctx.transpose(real, &to_first)?;
    }
    let mut y = pool(ctx, real)?;
    if channels_last {
        let to_last: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
        y = ctx.transpose(y, &to_last)?;
    }
    Ok(vec![requantise(ctx, to, y, 3)?])
}

/// The mean along the axes of the attribute, all of them where it is absent.
fn qlinear_reduce_mean(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = operand(ctx, 0)?;
    let (to, rank) = (ctx.dtype(x.value), ctx.ty(x.value).rank());
    let axes = ctx.ints("axes").filter(|axes| !axes.is_empty());
    let axes = axes.unwrap_or_else(|| (0..rank as i64).collect());
    let axes: Vec<usize> = axes.iter().map(|&a| ctx.axis(a, rank)).collect::<Result<_, _>>()?;
    let real = dequantise(ctx, &x)?;
    let keep = ctx.flag("keepdims", true);
    let y = ctx.emit1(reduce(Reduction::Mean, &axes, keep, &ctx.ty(real)), &[real])?;
    Ok(vec![requantise(ctx, to, y, 3)?])
}

/// Inputs: a condition, then value, scale and zero point of both sides, and those of the result.
/// Each side is quantised anew before one is chosen.
fn qlinear_where(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let condition = ctx.input(0)?;
    let mut sides = vec![condition];
    for i in [1, 4] {
        let x = operand(ctx, i)?;
        let to = ctx.dtype(x.value);
        let real = dequantise(ctx, &x)?;
        sides.push(requantise(ctx, to, real, 7)?);
    }
    let to = ctx.dtype(sides[1]);
    let y = ctx.map(&sides, to, |v| Expr::select(v[0].clone(), v[1].clone(), v[2].clone()))?;
    Ok(vec![y])
}

/// Inputs: the result's scale and zero point, then for each operand value, scale and zero point.
fn qlinear_concat(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let count = ctx.n_inputs().saturating_sub(2) / 3;
    ctx.check(count > 0, || "it has no operand".into())?;
    let mut parts = Vec::new();
    for i in 0..count {
        let x = operand(ctx, 2 + 3 * i)?;
        let to = ctx.dtype(x.value);
        let real = dequantise(ctx, &x)?;
        parts.push(requantise(ctx, to, real, 0)?);
    }
    let types: Vec<TensorType> = parts.iter().map(|&p| ctx.ty(p)).collect();
    let axis = ctx.axis(ctx.int("axis", 0), types[0].rank())?;
    Ok(vec![ctx.emit1(concat(&types, axis), &parts)?])
}
