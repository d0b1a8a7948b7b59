//! The box of a buffer that accesses touch while some loops run and others stand still.
//!
//! ```text
//! x[i0 * 4 + i1, k]   with i1 in 0..4, k in 0..9 running, i0 standing
//! => [i0 * 4, +4] x [0, +9]
//! ```

use ansc_graph::{BinOp, Expr, VarId};

use crate::affine::{Digit, Extents, Source, Sum};

/// `min .. min + extent`; `min` is over loops that stand still.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Span {
    pub(crate) min: Sum,
    pub(crate) extent: i64,
}

impl Span {
    pub(crate) fn whole(extent: usize) -> Span {
        Span { min: Sum::constant(0), extent: i64::try_from(extent).unwrap_or(i64::MAX) }
    }

    /// A span that holds both, or `None` if their distance is not a constant.
    pub(crate) fn union(&self, other: &Span) -> Option<Span> {
        let distance = other.min.clone().minus(&self.min).as_constant()?;
        let low = distance.min(0);
        let high = self.extent.max(distance.checked_add(other.extent)?);
        let min = self.min.clone().plus(&Sum::constant(low));
        Some(Span { min, extent: high.checked_sub(low)? })
    }
}

/// The span of an index; at most the whole axis.
pub(crate) fn span(
    index: &Expr,
    axis: usize,
    running: &impl Fn(VarId) -> bool,
    extents: &Extents,
) -> Span {
    let whole = Span::whole(axis);
    match hull(&Sum::of(index, extents), running, extents) {
        Some(span) if span.extent < whole.extent => span,
        _ => whole,
    }
}

/// The least span that is known to hold the sum.
fn hull(sum: &Sum, running: &impl Fn(VarId) -> bool, extents: &Extents) -> Option<Span> {
    let (moving, mut min) = sum.clone().partition(|digit, _| digit.depends_on(running));
    let mut reach: i64 = 0;
    for (digit, coefficient) in moving.terms {
        let span = digit_hull(&digit, running, extents)?;
        let width = (span.extent - 1).checked_mul(coefficient.checked_abs()?)?;
        min = min.plus(&span.min.times(coefficient));
        if coefficient < 0 {
            min = min.plus(&Sum::constant(-width));
        }
        reach = reach.checked_add(width)?;
    }
    Some(Span { min, extent: reach.checked_add(1)? })
}

fn digit_hull(digit: &Digit, running: &impl Fn(VarId) -> bool, extents: &Extents) -> Option<Span> {
    if let Source::Opaque(e) = &digit.source
        && digit.modulus.is_none()
        && let Some(span) = monotone_hull(e, digit.divisor, running, extents)
    {
        return Some(span);
    }
    let (low, high) = digit.interval(extents)?;
    Some(Span { min: Sum::constant(low), extent: high.checked_sub(low)?.checked_add(1)? })
}

/// Through `floor(x / divisor)`, `min(x, c)` and `max(x, c)`, which grow no faster than `x`.
fn monotone_hull(
    e: &Expr,
    divisor: i64,
    running: &impl Fn(VarId) -> bool,
    extents: &Extents,
) -> Option<Span> {
    if divisor > 1 {
        let inner = hull(&Sum::of(e, extents), running, extents)?;
        let reach = (inner.extent - 1).checked_add(divisor - 1)? / divisor;
        let min = Sum::of(&inner.min.to_expr().floor_div(divisor), extents);
        return Some(Span { min, extent: reach + 1 });
    }
    let Expr::Binary(op @ (BinOp::Min | BinOp::Max), a, b) = e else { return None };
    let limit = Sum::of(b, extents).as_constant()?;
    let inner = hull(&Sum::of(a, extents), running, extents)?;
    let min = Expr::binary(*op, inner.min.to_expr(), Expr::int(limit));
    Some(Span { min: Sum::of(&min, extents), extent: inner.extent })
}

/// Whether the values of `index`, while the loops `running` run, are exactly its span: no gaps.
/// `bounds` are sums over loops with exclusive upper bounds that hold.
pub(crate) fn dense_span(
    index: &Expr,
    axis: usize,
    bounds: &[(Sum, i64)],
    running: &impl Fn(VarId) -> bool,
    extents: &Extents,
) -> Option<Span> {
    let (moving, min) = Sum::of(index, extents).partition(|digit, _| digit.depends_on(running));
    // Each digit with how many values it takes, by its coefficient.
    let mut weights = vec![];
    for (digit, &coefficient) in moving.terms.iter() {
        let (low, high) = digit.interval(extents)?;
        let plain = matches!(digit.source, Source::Var(_)) && low == 0 && coefficient > 0;
        weights.push(plain.then_some((coefficient, high + 1))?);
    }
    weights.sort_unstable();
    let mut extent: i64 = 1;
    for (coefficient, count) in weights {
        // The next digit starts at the latest where the ones below it end.
        (coefficient <= extent).then_some(())?;
        extent = coefficient.checked_mul(count - 1)?.checked_add(extent)?;
    }
    let cut = bounds.iter().filter(|(sum, _)| *sum == moving).map(|&(_, bound)| bound).min();
    let extent = extent.min(cut.unwrap_or(i64::MAX));
    let axis = i64::try_from(axis).ok()?;
    let is_whole = min.as_constant() == Some(0) && extent >= axis;
    Some(if is_whole { Span { min, extent: axis } } else { Span { min, extent } })
}
