//! The box of a buffer that accesses touch while some loops run and others stand still.
//!
//! ```text
//! x[i0 * 4 + i1, k]   with i1 in 0..4, k in 0..9 running, i0 standing
//! => [i0 * 4, +4] x [0, +9]
//! ```
//! A block does not touch what its guard forbids: `k0 * 4 + k1` with both running, and `k0 * 4 + k1
//! < 7`, is `[0, +7]`.

use ansc_graph::{BinOp, Expr, VarId};

use crate::affine::{self, Digit, Extents, Source, Sum};
use crate::disjoint::bound;
use crate::program::Block;

/// A sum over loops that is below a number.
pub(crate) type Limit = (Sum, i64);

/// The parts of the block's guard that are limits.
pub(crate) fn limits(block: &Block, extents: &Extents) -> Vec<Limit> {
    let parts = block.predicate.iter().flat_map(Expr::conjuncts);
    parts.filter_map(|part| limit(block, part, extents)).collect()
}

pub(crate) fn limit(block: &Block, part: &Expr, extents: &Extents) -> Option<Limit> {
    let Expr::Binary(BinOp::Lt, a, b) = part else { return None };
    if !of_indices(a, b) {
        return None;
    }
    let end = Sum::of(b, extents).as_constant()?;
    Some((Sum::of(&bound(block, a), extents), end))
}

/// Whether a comparison is one of indices: floats have values between two neighbours.
fn of_indices(a: &Expr, b: &Expr) -> bool {
    affine::is_index(a) || affine::is_index(b)
}

/// `a < b` and `a <= b` as a sum that is not negative where they hold.
pub(crate) fn slack(condition: &Expr, extents: &Extents) -> Option<Sum> {
    let (strict, a, b) = match condition {
        Expr::Binary(BinOp::Lt, a, b) => (-1, a, b),
        Expr::Binary(BinOp::Le, a, b) => (0, a, b),
        _ => return None,
    };
    if !of_indices(a, b) {
        return None;
    }
    Some(Sum::of(b, extents).minus(&Sum::of(a, extents)).plus(&Sum::constant(strict)))
}

/// The first iteration of the loop `var` in which the limit may not hold, and the first in which it
/// never does, if its sum grows with the loop. Loops may be shorter or longer than that.
pub(crate) fn failures((sum, end): &Limit, var: VarId, extents: &Extents) -> Option<(i64, i64)> {
    let is_own = |v: VarId| v == var;
    let (own, rest) = sum.clone().partition(|digit, _| digit.depends_on(&is_own));
    let (digit, coefficient) = own.terms.only()?;
    let is_plain = *digit == Digit::whole(Source::Var(var));
    if !is_plain || coefficient <= 0 {
        return None;
    }
    let (least, most) = rest.interval(extents)?;
    // coefficient * i + rest < end
    let last = |rest: i64| Some(end.checked_sub(1)?.checked_sub(rest)?.div_euclid(coefficient));
    Some((last(most)?.checked_add(1)?, last(least)?.checked_add(1)?))
}

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

/// The span of an index where `limits` hold; at most the whole axis.
pub(crate) fn span(
    index: &Expr,
    axis: usize,
    limits: &[Limit],
    running: &impl Fn(VarId) -> bool,
    extents: &Extents,
) -> Span {
    let whole = Span::whole(axis);
    match hull(&Sum::of(index, extents), limits, running, extents) {
        Some(span) if span.extent < whole.extent => span,
        _ => whole,
    }
}

/// The least span that is known to hold the sum.
fn hull(
    sum: &Sum,
    limits: &[Limit],
    running: &impl Fn(VarId) -> bool,
    extents: &Extents,
) -> Option<Span> {
    let (mut moving, mut min) = sum.clone().partition(|digit, _| digit.depends_on(running));
    let mut reach: i64 = 0;
    for limit in limits {
        if let Some(most) = take_limited(&mut moving, limit, extents) {
            reach = reach.checked_add(most)?;
        }
    }
    for (digit, coefficient) in moving.terms {
        let span = digit_hull(&digit, limits, running, extents)?;
        let width = (span.extent - 1).checked_mul(coefficient.checked_abs()?)?;
        min = min.plus(&span.min.times(coefficient));
        if coefficient < 0 {
            min = min.plus(&Sum::constant(-width));
        }
        reach = reach.checked_add(width)?;
    }
    Some(Span { min, extent: reach.checked_add(1)? })
}

/// Takes the terms out of `sum` that are a multiple of what the limit bounds, if that bounds them
/// closer than loops do; the most that they come to.
fn take_limited(sum: &mut Sum, (limited, end): &Limit, extents: &Extents) -> Option<i64> {
    let (first, unit) = limited.terms.first()?;
    let factor = sum.terms.get(first)?.checked_div(unit)?;
    let mut most: i64 = 0;
    for (digit, coefficient) in limited.terms.iter() {
        let (low, high) = digit.interval(extents)?;
        let is_plain = low == 0 && coefficient > 0 && factor > 0;
        let is_multiple = sum.terms.get(digit)? == coefficient.checked_mul(factor)?;
        (is_plain && is_multiple).then_some(())?;
        most = most.checked_add(coefficient.checked_mul(high)?)?;
    }
    let allowed = end.checked_sub(1)?.checked_sub(limited.constant)?;
    (0..most).contains(&allowed).then_some(())?;
    limited.terms.keys().for_each(|digit| _ = sum.terms.remove(digit));
    allowed.checked_mul(factor)
}

fn digit_hull(
    digit: &Digit,
    limits: &[Limit],
    running: &impl Fn(VarId) -> bool,
    extents: &Extents,
) -> Option<Span> {
    if let Source::Opaque(e) = &digit.source
        && digit.modulus.is_none()
        && let Some(span) = monotone_hull(e, digit.divisor, limits, running, extents)
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
    limits: &[Limit],
    running: &impl Fn(VarId) -> bool,
    extents: &Extents,
) -> Option<Span> {
    if divisor > 1 {
        let inner = hull(&Sum::of(e, extents), limits, running, extents)?;
        let reach = (inner.extent - 1).checked_add(divisor - 1)? / divisor;
        let min = Sum::of(&inner.min.to_expr().floor_div(divisor), extents);
        return Some(Span { min, extent: reach + 1 });
    }
    let Expr::Binary(op @ (BinOp::Min | BinOp::Max), a, b) = e else { return None };
    let limit = Sum::of(b, extents).as_constant()?;
    let inner = hull(&Sum::of(a, extents), limits, running, extents)?;
    let min = Expr::binary(*op, inner.min.to_expr(), Expr::int(limit));
    Some(Span { min: Sum::of(&min, extents), extent: inner.extent })
}

/// Whether the values of `index`, while the loops `running` run, are exactly its span: no gaps.
pub(crate) fn dense_span(
    index: &Expr,
    axis: usize,
    limits: &[Limit],
    running: &impl Fn(VarId) -> bool,
    extents: &Extents,
) -> Option<Span> {
    let (moving, min) = Sum::of(index, extents).partition(|digit, _| digit.depends_on(running));
    // Each digit with how many values it takes, by its coefficient.
    let mut weights = vec![];
    for (digit, coefficient) in moving.terms.iter() {
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
    let cut = limits.iter().filter(|(sum, _)| *sum == moving).map(|&(_, bound)| bound).min();
    let extent = extent.min(cut.unwrap_or(i64::MAX));
    let axis = i64::try_from(axis).ok()?;
    let is_whole = min.as_constant() == Some(0) && extent >= axis;
    Some(if is_whole { Span { min, extent: axis } } else { Span { min, extent } })
}

#[cfg(test)]
mod tests {
    use ansc_graph::{BufId, Scalar};
    use ansc_runtime::DType;

    use super::*;

    const EXTENTS: [usize; 3] = [3, 2, 4];

    #[test]
    fn comparisons_of_floats_limit_no_loop() {
        let number = |value| Expr::Const(Scalar::from_f64(DType::F32, value));
        let x = Expr::Load(BufId::new(0), vec![Expr::var(0)]);
        let tenth = x * number(0.1);
        let zero = || number(0.0);
        for (a, b) in [(tenth.clone(), zero()), (zero(), tenth.clone())] {
            assert_eq!(slack(&Expr::binary(BinOp::Lt, a.clone(), b.clone()), &extents()), None);
        }
        let sum = Sum::of(&tenth, &extents());
        assert_eq!(sum.interval(&extents()), None);
        assert!(slack(&Expr::binary(BinOp::Lt, Expr::var(0), Expr::int(2)), &extents()).is_some());
    }

    fn extents() -> Extents {
        let mut extents = Extents::default();
        EXTENTS.iter().enumerate().for_each(|(i, &extent)| extents.set(VarId::new(i), extent));
        extents
    }

    /// `a * v0 + b * v1 + c * v2 + d`
    fn form([a, b, c, d]: [i64; 4]) -> Expr {
        let term = |v: usize, by: i64| Expr::var(v) * Expr::int(by);
        term(0, a) + term(1, b) + term(2, c) + Expr::int(d)
    }

    fn value([a, b, c, d]: [i64; 4], [x, y, z]: [i64; 3]) -> i64 {
        a * x + b * y + c * z + d
    }

    /// The span of the form where the limits hold. The first loop stands still.
    fn span_of(index: [i64; 4], limits: &[Limit]) -> (i64, i64) {
        let found = span(&form(index), 1000, limits, &|v| v != VarId::new(0), &extents());
        let at_zero = found.min.to_expr().substitute(&|_| Some(Expr::int(0)));
        (Sum::of(&at_zero, &extents()).as_constant().unwrap(), found.extent)
    }

    #[test]
    fn a_guard_on_the_index_bounds_its_span() {
        let seven = (Sum::of(&form([0, 4, 1, 0]), &extents()), 7);
        assert_eq!(span_of([9, 4, 1, 2], &[]), (2, 8));
        assert_eq!(span_of([9, 4, 1, 2], std::slice::from_ref(&seven)), (2, 7));
        assert_eq!(span_of([0, 8, 2, 0], std::slice::from_ref(&seven)), (0, 13));
        assert_eq!(
            span_of([0, 4, 2, 0], &[seven]),
            (0, 11),
            "no multiple of what the guard bounds"
        );
    }

    #[test]
    fn spans_hold_all_that_guards_allow() {
        let points = || (0..2).flat_map(|y| (0..4).map(move |z| [0, y, z]));
        for bits in 0..4i64.pow(5) {
            let [b, c, d, e, shift] = [0, 2, 4, 6, 8].map(|at| bits >> at & 3);
            for end in 0..9 {
                let limit = (Sum::of(&form([0, d, e, shift]), &extents()), end);
                let (min, extent) = span_of([5, b, c, 0], &[limit]);
                for at in points().filter(|at| value([0, d, e, shift], *at) < end) {
                    let index = value([5, b, c, 0], at);
                    assert!((min..min + extent).contains(&index), "{b} {c} {d} {e} {shift} {end}");
                }
            }
        }
    }
}
