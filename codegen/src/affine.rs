//! Index arithmetic: sums of coefficient times term plus a constant, with ranges.
//!
//! A term is a loop variable or an opaque expression over loop variables. Addresses and guards are
//! brought into this form, so that equal variable parts are computed once, constants become
//! displacements, and guards that always hold vanish.
//!
//! ```text
//! floor_div(v0 * 16 + v1, 8), v1 in 0..8   ->   2 * v0
//! ```

use ansc_graph::arith::{self, Terms};
use ansc_graph::{BinOp, Expr, VarId};

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Term {
    Var(VarId),
    /// An expression over loop variables that is not affine.
    Opaque(Expr),
}

impl Term {
    /// `x // d` or `x mod d`, rounded down, for a constant `d > 0`.
    pub(crate) fn division(&self) -> Option<(BinOp, &Expr, i64)> {
        let Term::Opaque(Expr::Binary(op, x, d)) = self else { return None };
        let d = d.as_const()?.as_i64();
        (matches!(op, BinOp::FloorDiv | BinOp::FloorMod) && d > 0).then_some((*op, x, d))
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Affine {
    pub(crate) terms: Terms<Term>,
    pub(crate) constant: i64,
}

/// The facts that are known of variables: what stands for a bound one, and the inclusive range of a
/// free one.
pub(crate) trait Scope {
    /// A variable that stands for something else: a block iterator, or a loop fixed to a constant.
    fn binding(&self, var: VarId) -> Option<Affine>;
    fn range(&self, var: VarId) -> Option<(i64, i64)>;
}

impl Affine {
    pub(crate) fn constant(value: i64) -> Affine {
        Affine { terms: Terms::default(), constant: value }
    }

    pub(crate) fn var(var: VarId) -> Affine {
        Affine { terms: Terms::one(Term::Var(var), 1), constant: 0 }
    }

    fn opaque(expr: Expr) -> Affine {
        Affine { terms: Terms::one(Term::Opaque(expr), 1), constant: 0 }
    }

    pub(crate) fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    #[must_use]
    pub(crate) fn plus(mut self, other: &Affine) -> Affine {
        other.terms.iter().for_each(|(term, c)| self.terms.add_copy(term, c));
        self.constant = self.constant.wrapping_add(other.constant);
        self
    }

    #[must_use]
    pub(crate) fn times(mut self, factor: i64) -> Affine {
        if factor == 0 {
            return Affine::default();
        }
        self.terms.scale(factor);
        self.constant = self.constant.wrapping_mul(factor);
        self
    }

    /// The same value, with quotients and remainders of one numerator put together:
    /// `c * d * (x // d) + c * (x mod d)` is `c * x`.
    #[must_use]
    pub(crate) fn recombined(mut self, scope: &dyn Scope) -> Affine {
        while let Some((x, [remainder, quotient], c)) = self.pair() {
            self.terms.remove(&remainder);
            self.terms.remove(&quotient);
            self = self.plus(&affine(&x, scope).times(c));
        }
        self
    }

    /// The same value, with the digits of a number put together, of which the inner ones are
    /// remainders of quotients; the form itself, if that leaves as many divisions.
    #[must_use]
    pub(crate) fn with_digits_together(self, scope: &dyn Scope) -> Affine {
        let quotients = self.as_quotients(scope);
        if quotients.divisions() < self.divisions() { quotients } else { self }
    }

    fn divisions(&self) -> usize {
        self.terms.keys().filter(|term| term.division().is_some()).count()
    }

    /// The same value with `x - d * (x // d)` for every remainder, and one division for quotients
    /// of quotients.
    fn as_quotients(&self, scope: &dyn Scope) -> Affine {
        let mut sum = Affine::constant(self.constant);
        for (term, c) in self.terms.iter() {
            let value = match term.division() {
                Some((BinOp::FloorDiv, x, d)) => quotient(affine(x, scope), d, scope),
                Some((_, x, d)) => {
                    let x = affine(x, scope);
                    x.clone().plus(&quotient(x, d, scope).times(-d))
                }
                None => Affine { terms: Terms::one(term.clone(), 1), constant: 0 },
            };
            sum = sum.plus(&value.times(c));
        }
        sum
    }

    /// A remainder whose quotient is there too, their numerator, and the remainder's coefficient.
    fn pair(&self) -> Option<(Expr, [Term; 2], i64)> {
        self.terms.iter().find_map(|(term, c)| {
            let (BinOp::FloorMod, x, d) = term.division()? else { return None };
            let quotient = Term::Opaque(x.clone().floor_div(d));
            let fits = self.terms.get(&quotient)? == c.checked_mul(d)?;
            fits.then(|| (x.clone(), [term.clone(), quotient], c))
        })
    }

    /// A form that is below zero where this one is, without the division of a term that counts
    /// once: `x // d + r < 0` is `x + r * d < 0`, and `r - x // d < 0` is `r * d + d - 1 - x < 0`.
    #[must_use]
    pub(crate) fn undivided(self, scope: &dyn Scope) -> Affine {
        let found = self.terms.iter().find_map(|(term, c)| match term.division()? {
            (BinOp::FloorDiv, x, d) if c.abs() == 1 => Some((term.clone(), x.clone(), d, c)),
            _ => None,
        });
        let Some((term, x, d, sign)) = found else { return self };
        let mut rest = self;
        rest.terms.remove(&term);
        let most = if sign < 0 { d - 1 } else { 0 };
        rest.times(d).plus(&Affine::constant(most)).plus(&affine(&x, scope).times(sign))
    }

    /// The form without its constant.
    pub(crate) fn variable_part(&self) -> Affine {
        Affine { terms: self.terms.clone(), constant: 0 }
    }

    /// The largest power of two that divides every value, at most `limit`.
    pub(crate) fn alignment(&self, limit: i64) -> i64 {
        self.terms.values().chain([self.constant]).fold(limit, |align, c| {
            if c == 0 { align } else { align.min(1 << c.trailing_zeros().min(62)) }
        })
    }

    /// The inclusive range of values, if every term has one.
    pub(crate) fn bounds(&self, scope: &dyn Scope) -> Option<(i64, i64)> {
        self.terms.iter().try_fold((self.constant, self.constant), |(low, high), (term, c)| {
            let (a, b) = term_bounds(term, scope)?;
            let (x, y) = (a.checked_mul(c)?, b.checked_mul(c)?);
            Some((low.checked_add(x.min(y))?, high.checked_add(x.max(y))?))
        })
    }

    pub(crate) fn to_expr(&self) -> Expr {
        let mut sum: Option<Expr> = None;
        let mut add = |e: Expr| {
            sum = Some(match sum.take() {
                None => e,
                Some(s) => s + e,
            });
        };
        for (term, c) in self.terms.iter() {
            let e = match term {
                Term::Var(v) => Expr::Var(*v),
                Term::Opaque(e) => e.clone(),
            };
            add(if c == 1 { e } else { e * Expr::int(c) });
        }
        if self.constant != 0 {
            add(Expr::int(self.constant));
        }
        sum.unwrap_or_else(|| Expr::int(0))
    }
}

fn term_bounds(term: &Term, scope: &dyn Scope) -> Option<(i64, i64)> {
    match term {
        Term::Var(v) => scope.range(*v),
        Term::Opaque(e) => bounds(e, scope),
    }
}

/// The inclusive range of an expression over loop variables, `None` where nothing is known.
pub(crate) fn bounds(e: &Expr, scope: &dyn Scope) -> Option<(i64, i64)> {
    arith::bounds_of_parts(e, &|v| match scope.binding(v) {
        Some(bound) => bound.bounds(scope),
        None => scope.range(v),
    })
}

/// The affine form of an `i64` expression without loads; every such expression has one.
pub(crate) fn affine(e: &Expr, scope: &dyn Scope) -> Affine {
    match e {
        Expr::Const(s) => Affine::constant(s.as_i64()),
        Expr::Var(v) => scope.binding(*v).unwrap_or_else(|| Affine::var(*v)),
        Expr::Binary(op, a, b) => binary(*op, affine(a, scope), affine(b, scope), scope),
        _ => Affine::opaque(e.map_children(|child| substitute(child, scope))),
    }
}

/// The expression with bound variables replaced.
pub(crate) fn substitute(e: &Expr, scope: &dyn Scope) -> Expr {
    e.substitute(&|v| scope.binding(v).map(|a| a.to_expr()))
}

fn binary(op: BinOp, a: Affine, b: Affine, scope: &dyn Scope) -> Affine {
    match (op, a.as_constant(), b.as_constant()) {
        (BinOp::Add, ..) => a.plus(&b),
        (BinOp::Sub, ..) => a.plus(&b.times(-1)),
        (BinOp::Mul, Some(factor), _) => b.times(factor),
        (BinOp::Mul, _, Some(factor)) => a.times(factor),
        (BinOp::FloorDiv | BinOp::Div | BinOp::FloorMod | BinOp::Rem, _, Some(d)) if d > 0 => {
            divide(op, a, d, scope)
        }
        (BinOp::Min | BinOp::Max, ..) => extreme(op, a, b, scope),
        _ => Affine::opaque(Expr::binary(op, a.to_expr(), b.to_expr())),
    }
}

/// `a / d` or `a mod d` for a constant `d > 0`: what `d` divides is split off, and the rest
/// vanishes where its range allows.
fn divide(op: BinOp, a: Affine, d: i64, scope: &dyn Scope) -> Affine {
    let truncates = matches!(op, BinOp::Div | BinOp::Rem);
    if truncates && a.bounds(scope).is_none_or(|(low, _)| low < 0) {
        return Affine::opaque(Expr::binary(op, a.to_expr(), Expr::int(d)));
    }
    let (mut quotient, mut rest) = (Affine::default(), Affine::default());
    for (term, c) in a.terms.iter() {
        let part = |k: i64| Affine { terms: Terms::one(term.clone(), k), constant: 0 };
        if c % d == 0 {
            quotient = quotient.plus(&part(c / d));
        } else {
            rest = rest.plus(&part(c));
        }
    }
    quotient.constant = a.constant.div_euclid(d);
    rest.constant = a.constant.rem_euclid(d);
    if let Some((low, high)) = rest.bounds(scope)
        && low.div_euclid(d) == high.div_euclid(d)
    {
        let whole = low.div_euclid(d);
        return match op {
            BinOp::FloorDiv | BinOp::Div => quotient.plus(&Affine::constant(whole)),
            _ => rest.plus(&Affine::constant(-whole * d)),
        };
    }
    match op {
        BinOp::FloorDiv | BinOp::Div => quotient.plus(&Affine::opaque(rest.to_expr().floor_div(d))),
        _ => Affine::opaque(rest.to_expr().floor_mod(d)),
    }
}

/// `a // d`, where `(k + x // q) // d` is `(k * q + x) // (q * d)`.
fn quotient(mut a: Affine, d: i64, scope: &dyn Scope) -> Affine {
    let inner = a.terms.iter().find_map(|(term, c)| match term.division()? {
        (BinOp::FloorDiv, x, q) if c == 1 => Some((term.clone(), x.clone(), q, q.checked_mul(d)?)),
        _ => None,
    });
    let Some((term, x, q, both)) = inner else { return divide(BinOp::FloorDiv, a, d, scope) };
    a.terms.remove(&term);
    quotient(a.times(q).plus(&affine(&x, scope)), both, scope)
}

fn extreme(op: BinOp, a: Affine, b: Affine, scope: &dyn Scope) -> Affine {
    let difference = a.clone().plus(&b.clone().times(-1)).bounds(scope);
    match (op, difference) {
        (BinOp::Min, Some((_, high))) if high <= 0 => a,
        (BinOp::Min, Some((low, _))) if low >= 0 => b,
        (BinOp::Max, Some((low, _))) if low >= 0 => a,
        (BinOp::Max, Some((_, high))) if high <= 0 => b,
        _ => Affine::opaque(Expr::binary(op, a.to_expr(), b.to_expr())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ranges(Vec<i64>);

    impl Scope for Ranges {
        fn binding(&self, _: VarId) -> Option<Affine> {
            None
        }

        fn range(&self, var: VarId) -> Option<(i64, i64)> {
            self.0.get(var.index()).map(|&extent| (0, extent - 1))
        }
    }

    fn value(e: &Expr, at: &[i64]) -> i64 {
        match e {
            Expr::Const(s) => s.as_i64(),
            Expr::Var(v) => at[v.index()],
            Expr::Binary(op, a, b) => {
                let (a, b) = (value(a, at), value(b, at));
                match op {
                    BinOp::Add => a + b,
                    BinOp::Sub => a - b,
                    BinOp::Mul => a * b,
                    BinOp::FloorDiv => a.div_euclid(b),
                    BinOp::FloorMod => a.rem_euclid(b),
                    BinOp::Div => a / b,
                    BinOp::Rem => a % b,
                    BinOp::Min => a.min(b),
                    BinOp::Max => a.max(b),
                    other => panic!("{other:?} in a test"),
                }
            }
            other => panic!("{other:?} in a test"),
        }
    }

    #[test]
    fn forms_have_the_value_and_lie_within_the_bounds() {
        let (x, y) = (Expr::var(0), Expr::var(1));
        let n = Expr::int;
        let cases = [
            (x.clone() * n(16) + y.clone()).floor_div(8),
            (x.clone() * n(16) + y.clone()).floor_mod(8),
            (x.clone() * n(3) - y.clone() + n(5)).floor_div(4),
            (x.clone() * n(3) - y.clone() * n(4) - n(5)).floor_mod(4),
            Expr::binary(BinOp::Div, x.clone() - y.clone(), n(2)),
            Expr::binary(BinOp::Rem, x.clone() * n(4) + n(7), n(3)),
            (x.clone() + n(3)).min(y.clone()),
            (x.clone() * n(2)).max(x.clone() - n(1)),
        ];
        let scope = Ranges(vec![5, 8]);
        for e in cases {
            let form = affine(&e, &scope);
            let back = form.to_expr();
            for i in 0..5 {
                for j in 0..8 {
                    let expected = value(&e, &[i, j]);
                    assert_eq!(value(&back, &[i, j]), expected, "{e:?} as {back:?}");
                    if let Some((low, high)) = form.bounds(&scope) {
                        assert!(low <= expected && expected <= high, "{e:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn quotients_and_remainders_of_one_numerator_are_put_together() {
        let scope = Ranges(vec![5, 8]);
        let x = Expr::var(0) * Expr::int(3) + Expr::var(1);
        let all = x.clone().floor_div(7) * Expr::int(7) + x.clone().floor_mod(7) + Expr::int(2);
        let whole = affine(&x, &scope);
        for c in [1, -4] {
            let form = affine(&all, &scope).times(c).recombined(&scope);
            assert_eq!(form, whole.clone().plus(&Affine::constant(2)).times(c));
        }
        let other = affine(&(x.clone().floor_div(7) * Expr::int(6) + x.floor_mod(7)), &scope);
        assert_eq!(other.clone().recombined(&scope), other);
    }

    #[test]
    fn the_digits_of_a_number_are_put_together() {
        let scope = Ranges(vec![500, 90, 16]);
        // The places of an element of `[2, 50, 31, 127]`, of `[7, 5, 3]` and of `[4, 5, 6]`.
        for (factors, extents) in
            [([21872, 16, 1], &[50, 31, 127][..]), ([15, 7, 1], &[5, 3]), ([120, 30, 1], &[5, 6])]
        {
            let terms = (0..3).map(|i| Expr::var(i) * Expr::int(factors[i]));
            let x = terms.reduce(|a, b| a + b).unwrap();
            let (mut inner, mut flat) = (1, Expr::int(0));
            for &extent in extents.iter().rev() {
                let digit = x.clone().floor_div(inner).floor_mod(extent);
                flat = flat + digit * Expr::int(inner);
                inner *= extent;
            }
            flat = flat + x.clone().floor_div(inner) * Expr::int(inner);
            let form = affine(&flat, &scope);
            assert_eq!(form.with_digits_together(&scope), affine(&x, &scope), "{extents:?}");
        }
    }

    #[test]
    fn other_digits_keep_their_value() {
        let scope = Ranges(vec![9, 8]);
        let x = Expr::var(0) * Expr::int(7) + Expr::var(1);
        let e = x.clone().floor_div(3).floor_mod(5) * Expr::int(4)
            + x.clone().floor_mod(3) * Expr::int(2)
            + x.floor_div(15) * Expr::int(9);
        let back = affine(&e, &scope).with_digits_together(&scope).to_expr();
        for at in (0..9).flat_map(|i| (0..8).map(move |j| [i, j])) {
            assert_eq!(value(&back, &at), value(&e, &at), "{back:?} at {at:?}");
        }
    }

    #[test]
    fn signs_need_no_division() {
        let scope = Ranges(vec![5, 8]);
        let (x, y) = (Expr::var(0), Expr::var(1));
        let quotient = (x.clone() * Expr::int(4) - y.clone()).floor_div(3);
        for r in -4..8 {
            let r = x.clone() * Expr::int(2) - Expr::int(r);
            for e in [quotient.clone() + r.clone(), r - quotient.clone()] {
                let form = affine(&e, &scope).undivided(&scope);
                assert!(!form.terms.keys().any(|t| t.division().is_some()), "{form:?}");
                let back = form.to_expr();
                for at in (0..5).flat_map(|i| (0..8).map(move |j| [i, j])) {
                    assert_eq!(value(&back, &at) < 0, value(&e, &at) < 0, "{e:?} at {at:?}");
                }
            }
        }
    }

    #[test]
    fn divisions_that_the_ranges_decide_vanish() {
        let scope = Ranges(vec![5, 8]);
        let e = (Expr::var(0) * Expr::int(16) + Expr::var(1)).floor_div(8);
        assert_eq!(affine(&e, &scope), Affine::var(VarId::new(0)).times(2));
        let e = (Expr::var(0) * Expr::int(16) + Expr::var(1)).floor_mod(8);
        assert_eq!(affine(&e, &scope), Affine::var(VarId::new(1)));
    }
}
