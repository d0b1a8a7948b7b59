//! `EmbedLayerNormalization` and `QEmbedLayerNormalization`: embeddings of words, positions and
//! segments, added and normalised.

use ansc_graph::ValueId;
use ansc_graph::ops::einsum::{Labels, einsum};
use ansc_graph::ops::gather::gather;
use ansc_graph::ops::normalize::layer_norm;
use ansc_runtime::{DType, Tensor};

use super::OpEntry;
use super::compose::One;
use super::indices::checked;
use super::quantize::dequantized;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::microsoft("EmbedLayerNormalization", |ctx| embed(ctx, Form::Floats)),
    OpEntry::microsoft("QEmbedLayerNormalization", |ctx| embed(ctx, Form::Integers)),
];

/// Tables, scale and bias hold floats or quantised integers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Floats,
    /// Bytes; their scales follow the other inputs, and then their zero points.
    Integers,
}

/// The first scale, the first zero point, and the first input that they are for.
const SCALES: usize = 8;
const ZEROS: usize = 13;
const FIRST: usize = 2;

/// `x`, which was taken from input `i`, as floats.
fn as_floats(ctx: &mut NodeCtx<'_>, form: Form, x: ValueId, i: usize) -> One {
    if form == Form::Floats {
        return Ok(x);
    }
    let scale = ctx.input(SCALES + i - FIRST)?;
    let scale = ctx.reshape(scale, &[])?;
    let zero = ctx.non_zero(ZEROS + i - FIRST).map(|z| ctx.reshape(z, &[])).transpose()?;
    dequantized(ctx, x, scale, zero)
}

/// Inputs: word ids, segment ids, the embeddings of words, positions and segments, scale, bias,
/// mask, position ids. Results: y, the number of words that the mask admits, the sum of the
/// embeddings.
fn embed(ctx: &mut NodeCtx<'_>, form: Form) -> Result<Vec<ValueId>, Problem> {
    let ids = ctx.input(0)?;
    let shape = ctx.shape(ids);
    ctx.check(shape.len() == 2, || format!("its word ids must have two axes, not {shape:?}"))?;
    let words = ctx.input(2)?;
    let words = looked_up(ctx, words, ids)?;
    let mut sum = as_floats(ctx, form, words, 2)?;
    let positions = positions(ctx, form, shape[1])?;
    let positions = as_floats(ctx, form, positions, 3)?;
    sum = ctx.add_values(sum, positions)?;
    if let (Some(segments), Some(table)) = (ctx.optional(1), ctx.optional(4)) {
        let segments = looked_up(ctx, table, segments)?;
        let segments = as_floats(ctx, form, segments, 4)?;
        sum = ctx.add_values(sum, segments)?;
    }
    let (scale, bias, ty) = (ctx.input(5)?, ctx.input(6)?, ctx.ty(sum));
    let (scale, bias) = (as_floats(ctx, form, scale, 5)?, as_floats(ctx, form, bias, 6)?);
    let epsilon = ctx.float("epsilon", 1e-12);
    let norm = layer_norm(2, epsilon, DType::F32, &ty, &ctx.ty(scale), Some(&ctx.ty(bias)));
    let y = ctx.emit1(norm, &[sum, scale, bias])?;
    Ok(vec![y, admitted(ctx, shape[0])?, sum])
}

fn looked_up(ctx: &mut NodeCtx<'_>, table: ValueId, ids: ValueId) -> One {
    let ty = ctx.ty(table);
    let op = gather(&ty, &ctx.ty(ids), 0);
    if op.is_ok() {
        checked(ctx, ids, &[ty.shape[0]])?;
    }
    ctx.emit1(op, &[table, ids])
}

/// The embeddings of the positions given, or of the first ones.
fn positions(ctx: &mut NodeCtx<'_>, form: Form, length: usize) -> One {
    let table = ctx.input(3)?;
    if let Some(ids) = ctx.optional(8).filter(|_| form == Form::Floats) {
        return looked_up(ctx, table, ids);
    }
    let ids: Vec<i64> = (0..length as i64).collect();
    let ids = ctx.add_const(Tensor::from_slice(&[length], &ids))?;
    looked_up(ctx, table, ids)
}

fn admitted(ctx: &mut NodeCtx<'_>, batch: usize) -> One {
    let Some(mask) = ctx.optional(7) else {
        return ctx.zeros(DType::I32, &[batch]);
    };
    let labels = Labels { operands: vec![vec![0, 1]], output: vec![0] };
    let ty = ctx.ty(mask);
    ctx.emit1(einsum(&labels, &[ty]), &[mask])
}
