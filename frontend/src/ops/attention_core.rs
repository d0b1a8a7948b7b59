//! Attention, put together from matrix products, maps and a softmax, as all its operators share it.
//!
//! ```text
//! scores = q * scale . k^T;  softcap;  masked;  softmax;  . v
//! ```
//! Several query heads may share a head of keys and values: then all of them are the rows of one
//! product, and keys are not repeated.

use ansc_graph::ops::attention::{Visibility, masked_softmax, visible};
use ansc_graph::ops::softmax::softmax;
use ansc_graph::{Expr, Scalar, UnOp, ValueId};
use ansc_runtime::DType;

use super::compose::One;
use super::gemm::scaled;
use crate::problem::Problem;
use crate::walk::NodeCtx;

/// Queries `[n, h, s, d]`, keys `[n, g, t, d]`, values `[n, g, t, e]`, where `g` divides `h`.
pub(crate) struct Heads {
    pub(crate) q: ValueId,
    pub(crate) k: ValueId,
    pub(crate) v: ValueId,
}

/// The tensors that decide which keys count; all broadcast to `[n, h, s, t]`.
#[derive(Default)]
pub(crate) struct Mask {
    /// Keys that do not count where false.
    pub(crate) allowed: Vec<ValueId>,
    /// Added to scores.
    pub(crate) added: Vec<ValueId>,
    /// Whether a query may be left without any key.
    pub(crate) may_be_blind: bool,
}

pub(crate) struct Scoring {
    pub(crate) scale: Option<f32>,
    /// Scores are bent to stay within this, if it is not zero.
    pub(crate) softcap: f32,
}

/// Each intermediate result that some operator gives as an output.
pub(crate) struct Attended {
    pub(crate) y: ValueId,
    pub(crate) scores: ValueId,
    pub(crate) capped: ValueId,
    pub(crate) masked: ValueId,
    pub(crate) shares: ValueId,
}

impl Mask {
    /// Adds what `visibility` says.
    pub(crate) fn see(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        visibility: Visibility,
        lengths: Option<ValueId>,
    ) -> Result<(), Problem> {
        if lengths.is_none() && visibility.back.is_none() && visibility.ahead.is_none() {
            return Ok(());
        }
        let lengths_ty = lengths.map(|l| ctx.ty(l));
        let inputs: Vec<ValueId> = lengths.into_iter().collect();
        self.allowed.push(ctx.emit1(visible(visibility, lengths_ty.as_ref()), &inputs)?);
        self.may_be_blind |= lengths.is_some() || !visibility.never_blind();
        Ok(())
    }

    /// Adds a mask that is an input: booleans say which keys count, numbers are added.
    pub(crate) fn input(&mut self, ctx: &NodeCtx<'_>, mask: ValueId) {
        self.may_be_blind = true;
        match ctx.dtype(mask) {
            DType::Bool => self.allowed.push(mask),
            _ => self.added.push(mask),
        }
    }

    fn apply(&self, ctx: &mut NodeCtx<'_>, scores: ValueId) -> One {
        if self.allowed.is_empty() && self.added.is_empty() {
            return Ok(scores);
        }
        let dtype = ctx.dtype(scores);
        let shape = ctx.shape(scores);
        let types: Vec<DType> = self.added.iter().map(|&a| ctx.dtype(a)).collect();
        let inputs = [&[scores], &self.added[..], &self.allowed].concat();
        let masked = ctx.map(&inputs, dtype, |mut v| {
            let allowed = v.split_off(1 + types.len());
            let added = v.split_off(1);
            let score = v.remove(0);
            let sum =
                types.iter().zip(added).fold(score, |s, (ty, a)| s + Expr::cast(*ty, dtype, a));
            match allowed.into_iter().reduce(Expr::and) {
                Some(all) => Expr::select(all, sum, Expr::Const(Scalar::lowest(dtype))),
                None => sum,
            }
        })?;
        ctx.check(ctx.shape(masked) == shape, || {
            format!("its mask is larger than its scores of shape {shape:?}")
        })?;
        Ok(masked)
    }
}

pub(crate) fn attend(
    ctx: &mut NodeCtx<'_>,
    heads: &Heads,
    mask: &Mask,
    scoring: &Scoring,
) -> Result<Attended, Problem> {
    let [q, k, v] = [heads.q, heads.k, heads.v].map(|x| ctx.shape(x));
    let shared = check(ctx, &q, &k, &v)?;
    let scale = scoring.scale.unwrap_or_else(|| 1.0 / (q[3] as f32).sqrt());
    let scaled = scaled(ctx, heads.q, scale)?;
    let keys = for_each_group(ctx, heads.k, shared)?;
    let keys = ctx.transpose_matrix(keys)?;
    let scores = product(ctx, scaled, keys, shared)?;
    let capped = softcap(ctx, scores, scoring.softcap)?;
    let masked = mask.apply(ctx, capped)?;
    let ty = ctx.ty(masked);
    let softmax = if mask.may_be_blind { masked_softmax(&ty) } else { softmax(&[3], &ty) };
    let shares = ctx.emit1(softmax, &[masked])?;
    let values = for_each_group(ctx, heads.v, shared)?;
    let y = product(ctx, shares, values, shared)?;
    Ok(Attended { y, scores, capped, masked, shares })
}

/// How many query heads share keys.
fn check(ctx: &NodeCtx<'_>, q: &[usize], k: &[usize], v: &[usize]) -> Result<usize, Problem> {
    let fits = match (q, k, v) {
        (&[n, h, _, d], &[n2, g, t, d2], &[n3, g2, t2, _]) => {
            let divides = if g == 0 { h == 0 } else { h % g == 0 };
            [n, g, t, d] == [n2, g2, t2, d2] && n == n3 && divides
        }
        _ => false,
    };
    ctx.check(fits, || format!("queries {q:?}, keys {k:?} and values {v:?} do not fit together"))?;
    Ok(q[1] / k[1])
}

/// Keys or values `[n, g, t, d]` as `[n, g, 1, t, d]`, which all heads of a group meet.
fn for_each_group(ctx: &mut NodeCtx<'_>, x: ValueId, shared: usize) -> One {
    match (shared, &ctx.shape(x)[..]) {
        (2.., &[n, g, t, d]) => ctx.reshape(x, &[n, g, 1, t, d]),
        _ => Ok(x),
    }
}

/// `a[n, h, s, x] . b[n, g, 1, x, y]`, where `shared` heads of `a` meet one of `b`. Rows of heads
/// stay apart: a run may have fewer than there is room for.
fn product(ctx: &mut NodeCtx<'_>, a: ValueId, b: ValueId, shared: usize) -> One {
    if shared == 1 {
        return ctx.matmul(a, b);
    }
    let (left, right) = (ctx.shape(a), ctx.shape(b));
    let a = ctx.reshape(a, &[left[0], right[1], shared, left[2], left[3]])?;
    let y = ctx.matmul(a, b)?;
    ctx.reshape(y, &[left[0], left[1], left[2], right[4]])
}

fn softcap(ctx: &mut NodeCtx<'_>, scores: ValueId, cap: f32) -> One {
    if cap == 0.0 {
        return Ok(scores);
    }
    let dtype = ctx.dtype(scores);
    ctx.map(&[scores], dtype, |v| {
        let cap = || Expr::float(dtype, cap.into());
        Expr::unary(UnOp::Tanh, v[0].clone() / cap()) * cap()
    })
}
