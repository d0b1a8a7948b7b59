//! Quotients and remainders of linear forms by positive constants.
//!
//! ```text
//! (q * c + r) // c          ->  q + r // c
//! (g * m + r) // (g * d)    ->  m // d               where 0 <= r < g
//! (g * m + r) % (g * d)     ->  g * (m % d) + r      where 0 <= r < g
//! r // c, r % c             ->  k, r - k * c         where all r are in one block of c
//! ```
//!
//! They are about true integers: the forms must not wrap, which bounds have to show.

use crate::arith::interval::floor_div as floor;
use crate::arith::{Context, Linear, gcd};
use crate::expr::{BinOp, Expr};

impl Context<'_> {
    pub(super) fn quotient(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
        let c = b.as_const().filter(|_| self.is_index(a) || self.is_index(b))?.as_i64();
        if c <= 0 {
            return None;
        }
        let form = Linear::from_expr(a);
        match op {
            BinOp::FloorDiv => self.floor_div(&form, c),
            BinOp::FloorMod => self.modulo(&form, c),
            // Both roundings agree where nothing is negative.
            BinOp::Div if self.interval(a)?.1.low >= 0 => Some(a.clone().floor_div(c)),
            BinOp::Rem if self.interval(a)?.1.low >= 0 => Some(a.clone().floor_mod(c)),
            _ => None,
        }
    }

    /// `form // c`, if there is something to simplify.
    pub(super) fn floor_div(&self, form: &Linear, c: i64) -> Option<Expr> {
        if c == 1 || form.is_const() {
            return Some(
                form.scale(i64::from(c == 1))
                    .add_const(match c {
                        1 => 0,
                        c => floor(form.constant().into(), c.into()) as i64,
                    })
                    .to_expr(),
            );
        }
        if let Some(nested) = nested_quotient(form, c) {
            return Some(nested);
        }
        let range = self.exact(form)?;
        let block = floor(range.low, c.into());
        if block == floor(range.high, c.into()) {
            return Some(Expr::int(block as i64));
        }
        let (multiples, mut rest) = form.partition(|k| k % c == 0);
        let carried = rest.constant() / c;
        rest = rest.add_const(-carried * c);
        let whole = multiples.map(|k| k / c).add_const(carried);
        if !whole.is_const() || whole.constant() != 0 {
            self.exact(&rest)?;
            let rest = self.floor_div(&rest, c).unwrap_or_else(|| rest.to_expr().floor_div(c));
            return Some(self.linear(&whole.add(&Linear::from_expr(&rest))));
        }
        self.common_factor(form, c, |inner, _, d| {
            self.floor_div(inner, d).unwrap_or_else(|| inner.to_expr().floor_div(d))
        })
    }

    /// `form % c`, if there is something to simplify.
    pub(super) fn modulo(&self, form: &Linear, c: i64) -> Option<Expr> {
        if c == 1 {
            return Some(Expr::int(0));
        }
        let range = self.exact(form)?;
        let block = floor(range.low, c.into());
        if block == floor(range.high, c.into()) {
            return Some(self.linear(&form.add_const(-(block as i64) * c)));
        }
        if let Some(inner) = without_inner_modulo(form, c).filter(|f| self.exact(f).is_some()) {
            return Some(self.modulo_or_plain(&inner, c));
        }
        let reduced = form.map(|k| k % c);
        if reduced != *form {
            self.exact(&reduced)?;
            return Some(self.modulo_or_plain(&reduced, c));
        }
        self.common_factor(form, c, |inner, rest, d| {
            let g = c / d;
            let scaled = Linear::from_expr(&self.modulo_or_plain(inner, d)).scale(g);
            self.linear(&scaled.add(rest))
        })
    }

    fn modulo_or_plain(&self, form: &Linear, c: i64) -> Expr {
        self.modulo(form, c).unwrap_or_else(|| form.to_expr().floor_mod(c))
    }

    /// Writes the form as `g * inner + rest` with `g` a divisor of `c` and `0 <= rest < g`, for the
    /// greatest such `g`, and gives `f(inner, rest, c / g)`.
    fn common_factor(
        &self,
        form: &Linear,
        c: i64,
        f: impl Fn(&Linear, &Linear, i64) -> Expr,
    ) -> Option<Expr> {
        let factor = |k: i64| gcd(k.unsigned_abs(), c.unsigned_abs()) as i64;
        let mut factors: Vec<i64> = form.terms().iter().map(|(_, k)| factor(*k)).collect();
        factors.sort_unstable();
        factors.dedup();
        for g in factors.into_iter().rev().filter(|g| *g > 1) {
            let (multiples, rest) = form.partition(|k| k % g == 0);
            // The part of the constant that is a multiple of `g` belongs to the inner form.
            let carried = floor(rest.constant().into(), g.into()) as i64;
            let rest = rest.add_const(-carried * g);
            let inner = multiples.map(|k| k / g).add_const(carried);
            let fits = |r: super::super::Interval| 0 <= r.low && r.high < i128::from(g);
            if self.exact(&rest).is_some_and(fits) && self.exact(&inner).is_some() {
                return Some(f(&inner, &rest, c / g));
            }
        }
        None
    }
}

/// `(x // a) // c` is `x // (a * c)`, and `(x % a) // c` is `(x // c) % (a / c)` where `c` divides
/// `a`.
fn nested_quotient(form: &Linear, c: i64) -> Option<Expr> {
    let Expr::Binary(op, x, a) = form.as_term()? else { return None };
    let a = a.as_const()?.as_i64();
    let x = x.as_ref().clone();
    match op {
        BinOp::FloorDiv if a > 0 => Some(x.floor_div(a.checked_mul(c)?)),
        BinOp::FloorMod if a > 0 && a % c == 0 => Some(x.floor_div(c).floor_mod(a / c)),
        _ => None,
    }
}

/// `k * (x % a)` counts as `k * x` modulo `c`, where `c` divides `k * a`.
fn without_inner_modulo(form: &Linear, c: i64) -> Option<Linear> {
    form.terms().iter().find_map(|(term, k)| {
        let Expr::Binary(BinOp::FloorMod, x, a) = term else { return None };
        let a = a.as_const()?.as_i64();
        let fits = a > 0 && k.checked_mul(a)? % c == 0;
        fits.then(|| {
            let mut form = form.clone();
            form.add_scaled(term, k.wrapping_neg());
            form.add_scaled(x, *k);
            form
        })
    })
}
