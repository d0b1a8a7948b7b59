//! `RotaryEmbedding`, ONNX's and the one of com.microsoft, which differ in the order of their
//! inputs.

use ansc_graph::ValueId;
use ansc_graph::ops::rotary::{Rotary, rotary};

use super::OpEntry;
use super::compose::One;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("RotaryEmbedding", 23, |ctx| {
        let (x, cos, sin, positions) =
            (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.optional(3));
        import(ctx, x, [cos, sin], positions)
    }),
    OpEntry::microsoft("RotaryEmbedding", |ctx| {
        let (x, positions, cos, sin) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?);
        import(ctx, x, [cos, sin], Some(positions))
    }),
];

fn import(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    tables: [ValueId; 2],
    positions: Option<ValueId>,
) -> Result<Vec<ValueId>, Problem> {
    let dim = ctx.size(ctx.int("rotary_embedding_dim", 0), "rotary_embedding_dim")?;
    let interleaved = ctx.int("interleaved", 0) != 0;
    let shape = ctx.shape(x);
    if shape.len() != 3 {
        return Ok(vec![turned(ctx, x, tables, positions, dim, interleaved)?]);
    }
    let heads = heads(ctx, shape[2], ctx.shape(tables[0]).last().copied(), dim)?;
    let split = split_heads(ctx, x, heads)?;
    let y = turned(ctx, split, tables, positions, dim, interleaved)?;
    Ok(vec![merge_heads(ctx, y)?])
}

/// The number of heads in `width` features; where it is not given, tables cover whole heads.
fn heads(
    ctx: &NodeCtx<'_>,
    width: usize,
    half: Option<usize>,
    dim: usize,
) -> Result<usize, Problem> {
    let heads = ctx.size(ctx.int("num_heads", 0), "num_heads")?;
    let heads = match (heads, half) {
        (0, Some(half)) if half > 0 && dim == 0 => width / (2 * half),
        (n, _) => n,
    };
    ctx.check(heads > 0 && width.is_multiple_of(heads), || {
        format!("{heads} heads do not divide {width}")
    })?;
    Ok(heads)
}

/// Turns `x[b, h, s, d]`; all features where `dim` is 0.
pub(crate) fn turned(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    [cos, sin]: [ValueId; 2],
    positions: Option<ValueId>,
    dim: usize,
    interleaved: bool,
) -> One {
    let dim = if dim == 0 { ctx.shape(x).last().copied().unwrap_or(0) } else { dim };
    let positions = positions.map(|p| one_axis(ctx, p)).transpose()?;
    let attrs = Rotary { interleaved, dim };
    let position_ty = positions.map(|p| ctx.ty(p));
    let op = rotary(attrs, &ctx.ty(x), &ctx.ty(cos), &ctx.ty(sin), position_ty.as_ref());
    let inputs: Vec<ValueId> = [x, cos, sin].into_iter().chain(positions).collect();
    ctx.emit1(op, &inputs)
}

/// An offset without axes gets one.
fn one_axis(ctx: &mut NodeCtx<'_>, positions: ValueId) -> One {
    if ctx.ty(positions).rank() == 0 { ctx.reshape(positions, &[1]) } else { Ok(positions) }
}

/// `[b, s, h * d]` as `[b, h, s, d]`.
pub(crate) fn split_heads(ctx: &mut NodeCtx<'_>, x: ValueId, heads: usize) -> One {
    let shape = ctx.shape(x);
    let fits = shape.len() == 3 && heads > 0 && shape[2].is_multiple_of(heads);
    ctx.check(fits, || format!("an operand of shape {shape:?} does not have {heads} heads"))?;
    let x = ctx.reshape(x, &[shape[0], shape[1], heads, shape[2] / heads])?;
    ctx.transpose(x, &[0, 2, 1, 3])
}

/// `[b, h, s, d]` as `[b, s, h * d]`.
pub(crate) fn merge_heads(ctx: &mut NodeCtx<'_>, x: ValueId) -> One {
    let x = ctx.transpose(x, &[0, 2, 1, 3])?;
    let shape = ctx.shape(x);
    ctx.reshape(x, &[shape[0], shape[1], shape[2] * shape[3]])
}
