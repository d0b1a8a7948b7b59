//! `Attention`, `QAttention` and `MultiHeadAttention` of com.microsoft.
//!
//! The first two multiply their input by one weight for queries, keys and values, `QAttention` in
//! integers; the last gets them multiplied. Masks that are integers hide keys by adding a large
//! negative number, as the operators are defined, so that a query without keys still has a result.

use ansc_graph::ops::attention::{Visibility, visible};
use ansc_graph::ops::concat::concat;
use ansc_graph::ops::slice::narrow;
use ansc_graph::{Expr, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use super::attention_core::{Heads, Mask, Scoring, attend};
use super::compose::One;
use super::matmul_integer::{plain_zero, to_float};
use super::rotary::{merge_heads, split_heads};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::microsoft("Attention", attention),
    OpEntry::microsoft("QAttention", quantised_attention),
    OpEntry::microsoft("MultiHeadAttention", multi_head),
];

/// Inputs: x, weight, bias, mask, past `[2, n, h, p, d]`, added scores. Results: y, present.
fn attention(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let rotary = ctx.int("do_rotary", 0) != 0 || ctx.int("past_present_share_buffer", 0) != 0;
    ctx.check(!rotary, || "do_rotary and past_present_share_buffer are not supported".into())?;
    let (x, weight) = (ctx.input(0)?, ctx.input(1)?);
    let mut all = ctx.matmul(x, weight)?;
    if let Some(bias) = ctx.optional(2) {
        all = ctx.add_values(all, bias)?;
    }
    after_projection(ctx, all, Inputs { mask: 3, past: 4, added: Some(5) })
}

/// Inputs: x and weight in integers, bias, scales of x and weight, mask, zero points of x and
/// weight, past.
fn quantised_attention(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let rotary = ctx.int("do_rotary", 0) != 0 || ctx.int("past_present_share_buffer", 0) != 0;
    ctx.check(!rotary, || "do_rotary and past_present_share_buffer are not supported".into())?;
    let operands = [ctx.input(0)?, ctx.input(1)?];
    let scales = [ctx.input(3)?, ctx.input(4)?];
    let zeros = [plain_zero(ctx, 6)?, plain_zero(ctx, 7)?];
    let bias = ctx.optional(2);
    let all = to_float(ctx, operands, scales, zeros, bias)?;
    after_projection(ctx, all, Inputs { mask: 5, past: 8, added: None })
}

/// Where a node has what it attends with.
struct Inputs {
    mask: usize,
    past: usize,
    added: Option<usize>,
}

/// The steps that `Attention` and `QAttention` share. `all` holds queries, keys and values side by
/// side.
fn after_projection(
    ctx: &mut NodeCtx<'_>,
    all: ValueId,
    at: Inputs,
) -> Result<Vec<ValueId>, Problem> {
    let widths = widths(ctx, all)?;
    let n = num_heads(ctx)?;
    let [mut q, mut k, mut v] = parts(ctx, all, 2, widths)?;
    for part in [&mut q, &mut k, &mut v] {
        *part = split_heads(ctx, *part, n)?;
    }
    let mut past = 0;
    if let Some(cache) = ctx.optional(at.past) {
        past = ctx.shape(cache).get(3).copied().unwrap_or(0);
        k = behind(ctx, cache, 0, k)?;
        v = behind(ctx, cache, 1, v)?;
    }
    let heads = Heads { q, k, v };
    let mask = mask(ctx, &heads, at.mask, at.added, past)?;
    let y = attended(ctx, &heads, &mask)?;
    let present = if ctx.wants_output(1) { stacked(ctx, k, v)? } else { y };
    Ok(vec![y, present])
}

fn num_heads(ctx: &NodeCtx<'_>) -> Result<usize, Problem> {
    ctx.size(ctx.int("num_heads", 0), "num_heads")
}

/// How many of the last axis's features are queries, keys and values.
fn widths(ctx: &NodeCtx<'_>, all: ValueId) -> Result<[usize; 3], Problem> {
    let shape = ctx.shape(all);
    let total = shape.last().copied().unwrap_or(0);
    let widths = match ctx.ints("qkv_hidden_sizes") {
        Some(widths) => ctx.sizes(&widths, "qkv_hidden_sizes")?,
        None => vec![total / 3; 3],
    };
    match widths[..] {
        [q, k, v]
            if shape.len() == 3
                && total.checked_sub(q).and_then(|t| t.checked_sub(k)) == Some(v) =>
        {
            Ok([q, k, v])
        }
        _ => Err(ctx.problem(format!("features {widths:?} do not add up to those of {shape:?}"))),
    }
}

/// `x` cut into three along `axis`.
pub(crate) fn parts(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    axis: usize,
    widths: [usize; 3],
) -> Result<[ValueId; 3], Problem> {
    let mut first = 0;
    let mut parts = [x; 3];
    for (part, width) in parts.iter_mut().zip(widths) {
        *part = ctx.emit1(narrow(&ctx.ty(x), axis, first, width), &[x])?;
        first += width;
    }
    Ok(parts)
}

/// `x` behind part `i` of `cache[2, n, h, p, d]`.
fn behind(ctx: &mut NodeCtx<'_>, cache: ValueId, i: usize, x: ValueId) -> One {
    let shape = ctx.shape(cache);
    ctx.check(shape.len() == 5 && shape[0] == 2, || format!("its past has shape {shape:?}"))?;
    let past = ctx.emit1(narrow(&ctx.ty(cache), 0, i, 1), &[cache])?;
    let past = ctx.reshape(past, &shape[1..])?;
    joined(ctx, past, x)
}

pub(crate) fn joined(ctx: &mut NodeCtx<'_>, past: ValueId, x: ValueId) -> One {
    let types = [ctx.ty(past), ctx.ty(x)];
    ctx.emit1(concat(&types, 2), &[past, x])
}

fn stacked(ctx: &mut NodeCtx<'_>, k: ValueId, v: ValueId) -> One {
    let shape = [&[1], &ctx.shape(k)[..]].concat();
    let (k, v) = (ctx.reshape(k, &shape)?, ctx.reshape(v, &shape)?);
    let types = [ctx.ty(k), ctx.ty(v)];
    ctx.emit1(concat(&types, 0), &[k, v])
}

fn attended(ctx: &mut NodeCtx<'_>, heads: &Heads, mask: &Mask) -> One {
    let scale = ctx.float_opt("scale").filter(|&s| s != 0.0);
    let attended = attend(ctx, heads, mask, &Scoring { scale, softcap: 0.0 })?;
    merge_heads(ctx, attended.y)
}

/// The mask at input `keys`, the numbers added at input `added`, and `unidirectional` after `past`
/// keys.
fn mask(
    ctx: &mut NodeCtx<'_>,
    heads: &Heads,
    keys: usize,
    added: Option<usize>,
    past: usize,
) -> Result<Mask, Problem> {
    let (q, k) = (ctx.shape(heads.q), ctx.shape(heads.k));
    let (batch, queries, total) = (q[0], q[2], k[2]);
    let mut mask = Mask::default();
    if let Some(input) = ctx.optional(keys) {
        mask.added.push(hidden_keys(ctx, input, batch, queries, total)?);
    }
    mask.added.extend(added.and_then(|i| ctx.optional(i)));
    let ahead = (ctx.int("unidirectional", 0) != 0).then_some(0);
    let offset = Some(past as i64);
    mask.see(ctx, Visibility { queries, keys: total, offset, back: None, ahead }, None)?;
    Ok(mask)
}

/// The values that are added to scores so that a mask of integers hides keys.
fn hidden_keys(
    ctx: &mut NodeCtx<'_>,
    mask: ValueId,
    batch: usize,
    queries: usize,
    total: usize,
) -> One {
    let ty = ctx.ty(mask);
    let seen = if ty.shape == [batch] {
        let all = Visibility { queries: 1, keys: total, offset: Some(0), back: None, ahead: None };
        ctx.emit1(visible(all, Some(&ty)), &[mask])?
    } else if ty.shape == [batch, total] {
        ctx.reshape(mask, &[batch, 1, 1, total])?
    } else if ty.shape == [batch, queries, total] {
        ctx.reshape(mask, &[batch, 1, queries, total])?
    } else {
        let reason = format!("a mask of shape {:?} is not supported", ty.shape);
        let remedy =
            "give lengths [batch], or ones and zeros [batch, keys] or [batch, queries, keys]";
        return Err(ctx.problem(reason).remedy(remedy));
    };
    let seen = ctx.cast(seen, DType::Bool)?;
    let hidden = f64::from(ctx.float("mask_filter_value", -10000.0));
    ctx.map(&[seen], DType::F32, |v| {
        let [zero, hidden] = [0.0, hidden].map(|x| Expr::float(DType::F32, x));
        Expr::select(v[0].clone(), zero, hidden)
    })
}

/// Inputs: queries, keys, values, bias, mask, added scores, past keys, past values. Results: y,
/// keys and values with the past ones.
fn multi_head(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let extra = ctx.optional(8).is_some() || ctx.optional(9).is_some() || ctx.wants_output(3);
    ctx.check(!extra, || "shared buffers and the output of scores are not supported".into())?;
    let mut heads = operands(ctx)?;
    let mut past = 0;
    if let (Some(keys), Some(values)) = (ctx.optional(6), ctx.optional(7)) {
        past = ctx.shape(keys).get(2).copied().unwrap_or(0);
        heads.k = joined(ctx, keys, heads.k)?;
        heads.v = joined(ctx, values, heads.v)?;
    }
    let mask = mask(ctx, &heads, 4, Some(5), past)?;
    let y = attended(ctx, &heads, &mask)?;
    Ok(vec![y, heads.k, heads.v])
}

/// The operands in whichever form: apart, keys with values, all in one, or with their heads split.
fn operands(ctx: &mut NodeCtx<'_>) -> Result<Heads, Problem> {
    let n = num_heads(ctx)?;
    let (q, k, v) = (ctx.input(0)?, ctx.optional(1), ctx.optional(2));
    let (q, k, v) = match (k, v) {
        (Some(k), Some(v)) => (q, k, v),
        (Some(k), None) => {
            let [k, v] = packed(ctx, k)?;
            (q, k, v)
        }
        _ => {
            let [q, k, v] = packed(ctx, q)?;
            (q, k, v)
        }
    };
    let biases = biases(ctx, [q, k, v])?;
    let mut split = [q, k, v];
    for (x, bias) in split.iter_mut().zip(biases) {
        if ctx.ty(*x).rank() == 4 {
            continue;
        }
        if let Some(bias) = bias {
            *x = ctx.add_values(*x, bias)?;
        }
        *x = split_heads(ctx, *x, n)?;
    }
    let [q, k, v] = split;
    Ok(Heads { q, k, v })
}

/// `x[n, s, h, parts, d]` as `parts` operands `[n, s, h * d]`.
fn packed<const PARTS: usize>(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
) -> Result<[ValueId; PARTS], Problem> {
    let shape = ctx.shape(x);
    let fits = shape.len() == 5 && shape[3] == PARTS;
    ctx.check(fits, || format!("an operand of shape {shape:?} does not hold {PARTS} in one"))?;
    let mut parts = [x; PARTS];
    for (i, part) in parts.iter_mut().enumerate() {
        let one = ctx.emit1(narrow(&ctx.ty(x), 3, i, 1), &[x])?;
        *part = ctx.reshape(one, &[shape[0], shape[1], shape[2] * shape[4]])?;
    }
    Ok(parts)
}

/// The bias at input 3 for each operand.
fn biases(ctx: &mut NodeCtx<'_>, operands: [ValueId; 3]) -> Result<[Option<ValueId>; 3], Problem> {
    let Some(bias) = ctx.optional(3) else {
        return Ok([None; 3]);
    };
    let n = num_heads(ctx)?;
    let width = |x: ValueId| match ctx.shape(x)[..] {
        [_, _, width] => width,
        [_, _, _, features] => n * features,
        _ => 0,
    };
    let widths = operands.map(width);
    let total: usize = widths.iter().sum();
    ctx.check(ctx.shape(bias) == [total], || format!("its bias is not of {total} elements"))?;
    Ok(parts(ctx, bias, 0, widths)?.map(Some))
}
