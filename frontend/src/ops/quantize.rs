//! `QuantizeLinear`, `DequantizeLinear`, `DynamicQuantizeLinear`.

use ansc_graph::ops::map::map;
use ansc_graph::ops::quantize::{self, Blocks};
use ansc_graph::{Expr, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use super::compose::One;
use super::{moved_bytes, requantize};
use crate::problem::Problem;
use crate::walk::NodeCtx;
use crate::{nibbles, tensor_type};

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("QuantizeLinear", 10, |ctx| import(ctx, Direction::Quantize)),
    OpEntry::onnx("DequantizeLinear", 10, |ctx| import(ctx, Direction::Dequantize)),
    OpEntry::onnx("DynamicQuantizeLinear", 11, dynamic),
    OpEntry::microsoft("QuantizeLinear", |ctx| import(ctx, Direction::Quantize)),
    OpEntry::microsoft("DequantizeLinear", |ctx| import(ctx, Direction::Dequantize)),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Quantize,
    Dequantize,
}

fn import(ctx: &mut NodeCtx<'_>, direction: Direction) -> Result<Vec<ValueId>, Problem> {
    let (x, scale) = (ctx.input(0)?, ctx.input(1)?);
    let to = result_type(ctx, direction, scale)?;
    let zero = ctx.non_zero(2);
    let y = if let Some(blocks) = blocks(ctx, x, scale)? {
        blocked(ctx, direction, to, blocks, [x, scale], zero)?
    } else {
        let scale = line_up(ctx, scale, x)?;
        let zero = zero.map(|z| line_up(ctx, z, x)).transpose()?;
        let found = match direction {
            Direction::Quantize => known_integers(ctx, to, x, scale, zero)?,
            Direction::Dequantize => None,
        };
        match found {
            Some(y) => y,
            None => emit(ctx, direction, to, [x, scale], zero)?,
        }
    };
    let few_bits = direction == Direction::Quantize && gives_nibbles(ctx);
    Ok(vec![if few_bits { narrowed(ctx, y)? } else { y }])
}

/// The quantised value of floats that were integers before.
fn known_integers(
    ctx: &mut NodeCtx<'_>,
    to: DType,
    x: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
) -> Result<Option<ValueId>, Problem> {
    match moved_bytes::of_moved(ctx, to, x, scale, zero)? {
        None => requantize::of_sum(ctx, to, x, scale, zero),
        moved => Ok(moved),
    }
}

/// Whether the result has 4 bits an element.
fn gives_nibbles(ctx: &NodeCtx<'_>) -> bool {
    match i32::try_from(ctx.int("output_dtype", 0)) {
        Ok(0) | Err(_) => ctx.is_of_nibbles(2),
        Ok(code) => nibbles::wide(code).is_some(),
    }
}

/// Integers of 8 bits as those of 4 bits that are nearest.
fn narrowed(ctx: &mut NodeCtx<'_>, y: ValueId) -> One {
    let ty = ctx.ty(y);
    let (least, most) = if ty.dtype == DType::I8 { (-8.0, 7.0) } else { (0.0, 15.0) };
    let bound = |x| Expr::float(ty.dtype, x);
    let op = map(std::slice::from_ref(&ty), ty.dtype, |v| {
        v[0].clone().max(bound(least)).min(bound(most))
    });
    ctx.marks_nibbles();
    ctx.emit1(op, &[y])
}

fn emit(
    ctx: &mut NodeCtx<'_>,
    direction: Direction,
    to: DType,
    [x, scale]: [ValueId; 2],
    zero: Option<ValueId>,
) -> One {
    let (x_ty, scale_ty, zero_ty) = (ctx.ty(x), ctx.ty(scale), zero.map(|z| ctx.ty(z)));
    let inputs: Vec<ValueId> = [x, scale].into_iter().chain(zero).collect();
    match direction {
        Direction::Quantize => {
            ctx.emit1(quantize::quantize(to, &x_ty, &scale_ty, zero_ty.as_ref()), &inputs)
        }
        // Products look for the integers behind it: see `integer::dequantised`.
        Direction::Dequantize => {
            let op = quantize::dequantize(to, &x_ty, &scale_ty, zero_ty.as_ref());
            Ok(ctx.emit_unfolded(op, &inputs)?[0])
        }
    }
}

/// `x` as floats; `zero` may be absent. Scale and zero point already line up with `x`.
pub(crate) fn dequantized(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
) -> One {
    let to = ctx.dtype(scale);
    emit(ctx, Direction::Dequantize, to, [x, scale], zero)
}

/// `x` as integers of type `to`.
pub(crate) fn quantized(
    ctx: &mut NodeCtx<'_>,
    to: DType,
    x: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
) -> One {
    emit(ctx, Direction::Quantize, to, [x, scale], zero)
}

fn result_type(ctx: &NodeCtx<'_>, direction: Direction, scale: ValueId) -> Result<DType, Problem> {
    let given = match ctx.int("output_dtype", 0) {
        0 => None,
        code => {
            let code = i32::try_from(code).unwrap_or(i32::MAX);
            let dtype = nibbles::wide(code).map_or_else(|| tensor_type::dtype(code), Ok);
            Some(dtype.map_err(|reason| ctx.problem(reason))?)
        }
    };
    let default = match direction {
        Direction::Quantize => ctx.optional(2).map_or(DType::U8, |zero| ctx.dtype(zero)),
        Direction::Dequantize => ctx.dtype(scale),
    };
    Ok(given.unwrap_or(default))
}

fn blocks(ctx: &NodeCtx<'_>, x: ValueId, scale: ValueId) -> Result<Option<Blocks>, Problem> {
    let block = ctx.size(ctx.int("block_size", 0), "block_size")?;
    let (rank, scale) = (ctx.ty(x).rank(), ctx.ty(scale));
    // One scale for all, or for each place along an axis.
    if block == 0 || scale.len() == 1 || scale.rank() < rank.min(2) {
        return Ok(None);
    }
    let axis = ctx.axis(ctx.int("axis", 1), rank)?;
    Ok(Some(Blocks { axis, block }))
}

fn blocked(
    ctx: &mut NodeCtx<'_>,
    direction: Direction,
    to: DType,
    blocks: Blocks,
    [x, scale]: [ValueId; 2],
    zero: Option<ValueId>,
) -> One {
    let (x_ty, scale_ty, zero_ty) = (ctx.ty(x), ctx.ty(scale), zero.map(|z| ctx.ty(z)));
    let inputs: Vec<ValueId> = [x, scale].into_iter().chain(zero).collect();
    let constructor = match direction {
        Direction::Quantize => quantize::quantize_blocked,
        Direction::Dequantize => quantize::dequantize_blocked,
    };
    ctx.emit1(constructor(to, blocks, &x_ty, &scale_ty, zero_ty.as_ref()), &inputs)
}

/// Lines a scale or zero point up with the attribute `axis` of `x`.
fn line_up(ctx: &mut NodeCtx<'_>, p: ValueId, x: ValueId) -> One {
    let (p_ty, x_ty) = (ctx.ty(p), ctx.ty(x));
    if p_ty.len() == 1 {
        return ctx.reshape(p, &[]);
    }
    let axis = ctx.axis(ctx.int("axis", 1), x_ty.rank())?;
    ctx.check(p_ty.shape == [x_ty.shape[axis]], || {
        format!("scale or zero point {p_ty} does not fit axis {axis} of {x_ty}")
    })?;
    ctx.along(p, axis, x_ty.rank())
}

fn dynamic(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    ctx.emit(quantize::dynamic_quantize(&ctx.ty(x)), &[x])
}
