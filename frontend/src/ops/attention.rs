//! `Attention` of ONNX.

use ansc_graph::ops::attention::Visibility;
use ansc_graph::ops::concat::concat;
use ansc_graph::ops::pad::{PadMode, pad};
use ansc_graph::{Scalar, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use super::attention_core::{Heads, Mask, Scoring, attend};
use super::compose::One;
use super::rotary::{merge_heads, split_heads};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("Attention", 23, attention)];

/// Results: y, keys and values with the past ones, scores in one of four stages.
fn attention(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let q = ctx.input(0)?;
    let flat = ctx.ty(q).rank() == 3;
    let q = heads(ctx, q, "q_num_heads")?;
    let (k, v) = (ctx.input(1)?, ctx.input(2)?);
    let k = heads(ctx, k, "kv_num_heads")?;
    let v = heads(ctx, v, "kv_num_heads")?;
    let (k, v) = (after_past(ctx, 4, k)?, after_past(ctx, 5, v)?);
    let mask = mask(ctx, q, k)?;
    let scoring = Scoring { scale: ctx.float_opt("scale"), softcap: ctx.float("softcap", 0.0) };
    let attended = attend(ctx, &Heads { q, k, v }, &mask, &scoring)?;
    let y = if flat { merge_heads(ctx, attended.y)? } else { attended.y };
    let scores = match ctx.int("qk_matmul_output_mode", 0) {
        0 => attended.scores,
        1 => attended.capped,
        2 => attended.masked,
        3 => attended.shares,
        mode => return Err(ctx.problem(format!("its qk_matmul_output_mode is {mode}"))),
    };
    Ok(vec![y, k, v, scores])
}

/// `[n, heads, s, d]`, whichever form the operand has.
fn heads(ctx: &mut NodeCtx<'_>, x: ValueId, attribute: &str) -> One {
    if ctx.ty(x).rank() != 3 {
        return Ok(x);
    }
    let heads = ctx.size(ctx.int(attribute, 0), attribute)?;
    split_heads(ctx, x, heads)
}

/// `x` behind the past at input `i`.
fn after_past(ctx: &mut NodeCtx<'_>, i: usize, x: ValueId) -> One {
    let Some(past) = ctx.optional(i) else {
        return Ok(x);
    };
    let types = [ctx.ty(past), ctx.ty(x)];
    ctx.emit1(concat(&types, 2), &[past, x])
}

fn mask(ctx: &mut NodeCtx<'_>, q: ValueId, k: ValueId) -> Result<Mask, Problem> {
    let (queries, keys) = (ctx.shape(q), ctx.shape(k));
    let (&[_, _, queries, _], &[_, _, keys, _]) = (&queries[..], &keys[..]) else {
        return Err(ctx.problem("its operands must have 3 or 4 axes"));
    };
    let mut mask = Mask::default();
    if let Some(input) = ctx.optional(3) {
        let input = widened(ctx, input, keys)?;
        mask.input(ctx, input);
    }
    let lengths = ctx.optional(6);
    let past = match ctx.optional(4) {
        Some(past) => ctx.shape(past).get(2).copied().unwrap_or(0) as i64,
        None => 0,
    };
    let window = |name| Some(ctx.int(name, -1)).filter(|&n| n >= 0);
    let causal = (ctx.int("is_causal", 0) != 0).then_some(0);
    let (back, ahead) = (window("left_window_size"), window("right_window_size"));
    let ahead = causal.or(ahead);
    let offset = if lengths.is_some() { None } else { Some(past) };
    mask.see(ctx, Visibility { queries, keys, offset, back, ahead }, lengths)?;
    Ok(mask)
}

/// A mask for the first keys only hides the others.
fn widened(ctx: &mut NodeCtx<'_>, mask: ValueId, keys: usize) -> One {
    let ty = ctx.ty(mask);
    let Some(&given) = ty.shape.last().filter(|&&given| given < keys) else {
        return Ok(mask);
    };
    let hidden = match ty.dtype {
        DType::Bool => Scalar::bool(false),
        dtype => Scalar::lowest(dtype),
    };
    let mut after = vec![0; ty.rank()];
    after[ty.rank() - 1] = (keys - given) as i64;
    let before = vec![0; ty.rank()];
    ctx.emit1(pad(&[ty], PadMode::Constant(hidden), &before, &after), &[mask])
}
