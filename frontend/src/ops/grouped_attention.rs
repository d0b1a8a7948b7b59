//! `GroupQueryAttention` of com.microsoft: attention with a cache that each sample has filled to
//! its own length, and rotary position embedding on the way.

use ansc_graph::ops::attention::{Visibility, append_to_cache};
use ansc_graph::{Expr, ValueId};
use ansc_runtime::{DType, Tensor};

use super::OpEntry;
use super::attention_core::{Heads, Mask, Scoring, attend};
use super::compose::One;
use super::ms_attention::parts;
use super::rotary::{merge_heads, split_heads, turned};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::microsoft("GroupQueryAttention", import)];

/// Inputs: queries, keys, values, past keys, past values, lengths less one, length of the longest
/// sample, cosines, sines, positions, added scores. Results: y, present keys, present values.
fn import(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let unsupported = ctx.int("smooth_softmax", 0) > 0
        || ctx.int("qk_output", 0) != 0
        || (11..ctx.n_inputs()).any(|i| ctx.optional(i).is_some());
    ctx.check(!unsupported, || "smooth softmax and quantised caches are not supported".into())?;
    let [q, k, v] = operands(ctx)?;
    let added = ctx.shape(q)[2];
    let lengths = lengths(ctx, added)?;
    let [q, k] = rotated(ctx, [q, k], lengths)?;
    let (k, v) = (after_past(ctx, 3, k, lengths)?, after_past(ctx, 4, v, lengths)?);
    let window = ctx.int("local_window_size", -1);
    let visibility = Visibility {
        queries: added,
        keys: ctx.shape(k)[2],
        offset: None,
        back: (window > 0).then_some(window - 1),
        ahead: Some(0),
    };
    let mut mask = Mask::default();
    mask.see(ctx, visibility, Some(lengths))?;
    mask.added.extend(ctx.optional(10));
    let scale = ctx.float_opt("scale").filter(|&s| s != 0.0);
    let scoring = Scoring { scale, softcap: ctx.float("softcap", 0.0) };
    let y = attend(ctx, &Heads { q, k, v }, &mask, &scoring)?.y;
    Ok(vec![merge_heads(ctx, y)?, k, v])
}

/// Queries, keys and values with their heads split; all in one where keys are absent.
fn operands(ctx: &mut NodeCtx<'_>) -> Result<[ValueId; 3], Problem> {
    let heads = ctx.size(ctx.int("num_heads", 0), "num_heads")?;
    let groups = ctx.size(ctx.int("kv_num_heads", 0), "kv_num_heads")?;
    let q = ctx.input(0)?;
    let given = match ctx.optional(1) {
        Some(k) => [q, k, ctx.input(2)?],
        None => {
            let width = ctx.shape(q).last().copied().unwrap_or(0);
            let all = groups.checked_mul(2).and_then(|g| g.checked_add(heads)).filter(|&n| n > 0);
            let size = width / all.ok_or_else(|| ctx.problem("it has no heads"))?;
            parts(ctx, q, 2, [heads * size, groups * size, groups * size])?
        }
    };
    let [q, k, v] = given;
    Ok([split_heads(ctx, q, heads)?, split_heads(ctx, k, groups)?, split_heads(ctx, v, groups)?])
}

/// How many keys each sample has, those of this call included. In a first call samples may be
/// shorter than the queries: their last queries count for nothing.
fn lengths(ctx: &mut NodeCtx<'_>, added: usize) -> One {
    let last = ctx.input(5)?;
    let batch = ctx.ty(last).len();
    let last = ctx.reshape(last, &[batch])?;
    let dtype = ctx.dtype(last);
    ctx.map(&[last], DType::I64, |v| {
        let length = Expr::cast(dtype, DType::I64, v[0].clone()) + Expr::int(1);
        length.max(Expr::index(added))
    })
}

fn rotated(
    ctx: &mut NodeCtx<'_>,
    [q, k]: [ValueId; 2],
    lengths: ValueId,
) -> Result<[ValueId; 2], Problem> {
    if ctx.int("do_rotary", 0) == 0 {
        return Ok([q, k]);
    }
    let tables = [ctx.input(7)?, ctx.input(8)?];
    let interleaved = ctx.int("rotary_interleaved", 0) != 0;
    let dim = 2 * ctx.shape(tables[0]).last().copied().unwrap_or(0);
    let positions = match ctx.optional(9) {
        Some(positions) => positions,
        None => positions(ctx, lengths, ctx.shape(q)[2])?,
    };
    let mut turn = |x| turned(ctx, x, tables, Some(positions), dim, interleaved);
    Ok([turn(q)?, turn(k)?])
}

/// `[n, s]`: each sample's new keys follow its old ones.
fn positions(ctx: &mut NodeCtx<'_>, lengths: ValueId, added: usize) -> One {
    let batch = ctx.ty(lengths).len();
    let lengths = ctx.reshape(lengths, &[batch, 1])?;
    let from_end: Vec<i64> = (0..added as i64).map(|i| i - added as i64).collect();
    let from_end = ctx.add_const(Tensor::from_slice(&[added], &from_end))?;
    ctx.add_values(lengths, from_end)
}

/// `x` in the cache at input `i`. The cache has room for the longest sample; where its length is
/// known only at run time, for the cache and all new keys.
fn after_past(ctx: &mut NodeCtx<'_>, i: usize, x: ValueId, lengths: ValueId) -> One {
    let Some(past) = ctx.optional(i) else {
        return Ok(x);
    };
    let (old, new) = (ctx.ty(past), ctx.ty(x));
    let room = old.shape.get(2).copied().unwrap_or(0);
    let longest = ctx.optional(6).and_then(|v| ctx.constant(v)).and_then(|t| t.to_i64_vec());
    let total = match longest.as_deref() {
        Some(&[total]) => ctx.size(total, "total sequence length")?.max(room),
        _ => room + new.shape[2],
    };
    let op = append_to_cache(total, &old, &new, &ctx.ty(lengths));
    ctx.emit1(op, &[past, x, lengths])
}
