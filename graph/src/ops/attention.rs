//! The parts of attention that are not matrix products: who may look at whom, and a softmax that
//! gives zeros where nobody may.
//!
//! ```text
//! visible(causal, 2 queries after 3 keys)  ->  visible: bool[2, 5] = le(v1, add(v0, 3))
//! ```

use ansc_runtime::DType;

use super::stages::{Source, Stages, real};
use super::{OpError, sized};
use crate::compute::{Combiner, TensorType};
use crate::expr::{Expr, UnOp};
use crate::op::{ComputeOp, Kind};
use crate::scalar::Scalar;

/// Which keys a query sees. Query `i` is at position `i + offset` among the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visibility {
    /// Queries of each sample.
    pub queries: usize,
    /// Keys of each sample.
    pub keys: usize,
    /// Keys before the first query; without it `lengths - queries`, for each sample.
    pub offset: Option<i64>,
    /// How far back and ahead a query sees; `None` is all the way.
    pub back: Option<i64>,
    /// As `back`, in the other direction.
    pub ahead: Option<i64>,
}

impl Visibility {
    /// Whether every query sees at least the key at its own position.
    pub fn never_blind(&self) -> bool {
        self.offset.is_some_and(|o| o >= 0 && o as u64 + self.queries as u64 <= self.keys as u64)
    }

    fn sees(&self, query: &Expr, key: &Expr, offset: Expr) -> Vec<Expr> {
        let at = || query.clone() + offset.clone();
        let back = self.back.map(|n| at().le(key.clone() + Expr::int(n)));
        let ahead = self.ahead.map(|n| key.clone().le(at() + Expr::int(n)));
        back.into_iter().chain(ahead).collect()
    }
}

/// `bool[queries, keys]`; with `lengths`, of which each sample has one, `bool[n, 1, queries,
/// keys]`, and keys from the length on are not seen.
pub fn visible(visibility: Visibility, lengths: Option<&TensorType>) -> Result<ComputeOp, OpError> {
    let pair = [visibility.queries, visibility.keys];
    let all = |conditions: Vec<Expr>| {
        conditions.into_iter().reduce(Expr::and).unwrap_or_else(|| Expr::bool(true))
    };
    let kind = Kind::Other("AttentionMask".into());
    let Some(lengths) = lengths else {
        let mut s = Stages::of(&[]);
        let ty = sized(TensorType::new(DType::Bool, pair))?;
        let offset = Expr::int(visibility.offset.unwrap_or(0));
        let y = s.map("visible", ty, |i| all(visibility.sees(&i[0], &i[1], offset)));
        return Ok(s.finish(kind, &[&y]));
    };
    let &[batch] = lengths.shape.as_slice() else {
        let (what, expected) = ("the lengths of samples", "1".into());
        return Err(OpError::Rank { what, expected, found: lengths.shape.clone() });
    };
    let (mut s, [lengths]) = Stages::new([lengths]);
    let ty = sized(TensorType::new(DType::Bool, [&[batch, 1][..], &pair].concat()))?;
    let y = s.map("visible", ty, |i| {
        let length = lengths.at_as(DType::I64, &i[..1]);
        let offset = match visibility.offset {
            Some(offset) => Expr::int(offset),
            None => length.clone() - Expr::index(visibility.queries),
        };
        let mut conditions = visibility.sees(&i[2], &i[3], offset);
        conditions.push(i[3].clone().lt(length));
        all(conditions)
    });
    Ok(s.finish(kind, &[&y]))
}

/// Softmax over the last axis; rows that are minus infinity throughout become zero: exponentials of
/// minus infinity, times zero.
pub fn masked_softmax(x: &TensorType) -> Result<ComputeOp, OpError> {
    let Some((&last, rows)) = x.shape.split_last() else {
        let (what, expected) = ("the input of a softmax", "1 or more".into());
        return Err(OpError::Rank { what, expected, found: x.shape.clone() });
    };
    let (mut s, [x]) = Stages::new([x]);
    let acc = x.dtype().accumulator();
    let per_row = TensorType::new(acc, [rows, &[1]].concat());
    let element = |i: &[Expr], r: &[Expr]| [&i[..i.len() - 1], r].concat();
    let max = s.reduce("max", Combiner::Max, per_row.clone(), &[last], |i, r| {
        x.at_as(acc, &element(i, r))
    });
    let ty = TensorType::new(acc, x.ty().shape.clone());
    let exp = s.map("exp", ty, |i| {
        let max = max.broadcast(acc, i);
        let blind = max.clone().eq(Expr::Const(Scalar::lowest(acc)));
        let shift = Expr::select(blind, real(acc, 0.0), max);
        Expr::unary(UnOp::Exp, x.at_as(acc, i) - shift)
    });
    let sum = s.sum("sum", per_row, &[last], |i, r| exp.at(&element(i, r)));
    let y = s.map("result", x.ty().clone(), |i| {
        let sum = sum.broadcast(acc, i);
        let blind = sum.clone().eq(real(acc, 0.0));
        // One division for each row.
        let inverse = Expr::select(blind, real(acc, 0.0), real(acc, 1.0) / sum);
        Expr::cast(acc, x.dtype(), exp.at(i) * inverse)
    });
    Ok(s.finish(Kind::Other("MaskedSoftmax".into()), &[&y]))
}

/// The name of what [`append_to_cache`] makes.
pub(crate) const CACHE: &str = "AppendToCache";

/// A cache of keys or values with new ones behind the old: `past[n, h, p, d]`, `new[n, h, s, d]`,
/// `lengths[n]` (old and new together) -> `[n, h, total, d]`.
pub fn append_to_cache(
    total: usize,
    past: &TensorType,
    new: &TensorType,
    lengths: &TensorType,
) -> Result<ComputeOp, OpError> {
    let (&[n, h, old, d], &[n2, h2, added, d2]) = (&past.shape[..], &new.shape[..]) else {
        let (what, expected) = ("a cache", "4".into());
        return Err(OpError::Rank { what, expected, found: past.shape.clone() });
    };
    let fits = [n, h, d] == [n2, h2, d2] && lengths.shape == [n] && past.dtype == new.dtype;
    if !fits || old == 0 && added == 0 {
        return Err(OpError::Invalid(format!(
            "{new} for samples of {lengths} does not fit a cache {past}"
        )));
    }
    let ty = sized(TensorType::new(past.dtype, [n, h, total, d]))?;
    let (mut s, [past, new, lengths]) = Stages::new([past, new, lengths]);
    let y = s.map("append", ty, |i| {
        let first = lengths.at_as(DType::I64, &i[..1]) - Expr::index(added);
        let at = i[2].clone() - first;
        let is_new = Expr::int(0).le(at.clone()).and(at.clone().lt(Expr::index(added)));
        let moved =
            |source: &Source, at: Expr| source.at(&[i[0].clone(), i[1].clone(), at, i[3].clone()]);
        let zero = Expr::Const(Scalar::zero(past.dtype()));
        let is_old = i[2].clone().lt(Expr::index(old));
        let kept = Expr::select(is_old, moved(&past, i[2].clone()), zero);
        Expr::select(is_new, moved(&new, at), kept)
    });
    Ok(s.finish(Kind::Other(CACHE.into()), &[&y]))
}
