//! Comparisons: decided by bounds, or brought to the form `positive terms < constant + other terms`
//! without common factors.
//!
//! ```text
//! v0 * 4 + v1 < 32,  v1 in 0..4   ->  v0 < 8
//! 0 <= v0 - 1                     ->  1 <= v0
//! ```

use crate::arith::interval::floor_div as floor;
use crate::arith::{Context, Linear, gcd};
use crate::expr::{BinOp, Expr};

impl Context<'_> {
    pub(super) fn compare(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
        let whole = Expr::binary(op, a.clone(), b.clone());
        if let Some(holds) = self.facts.condition(&whole).or_else(|| self.decide(op, a, b)) {
            return Some(Expr::bool(holds));
        }
        let int = self.dtype(a).or_else(|| self.dtype(b)).is_some_and(|d| !d.is_float());
        if int && a == b {
            return Some(Expr::bool(matches!(op, BinOp::Eq | BinOp::Le)));
        }
        let difference = self.difference(a, b)?;
        match op {
            BinOp::Lt => self.less(&difference),
            BinOp::Le => self.less(&difference.add_const(-1)),
            BinOp::Eq | BinOp::Ne => self.equal(op, &difference),
            _ => None,
        }
    }

    /// `form < 0`.
    fn less(&self, form: &Linear) -> Option<Expr> {
        let form = self.recombined(form);
        self.exact(&form)?;
        let form = self.without_small_terms(&form).unwrap_or(form);
        Some(less_than_zero(&divided(&form)))
    }

    /// `g * m + r < 0` as `m < k` where the small rest `r` cannot change the truth.
    fn without_small_terms(&self, form: &Linear) -> Option<Linear> {
        let mut factors: Vec<i64> = form
            .terms()
            .iter()
            .filter_map(|(_, k)| i64::try_from(k.unsigned_abs()).ok())
            .filter(|k| *k > 1)
            .collect();
        factors.sort_unstable();
        factors.dedup();
        factors.into_iter().rev().find_map(|g| {
            let (multiples, rest) = form.partition(|k| k % g == 0);
            let small = rest.add_const(-rest.constant());
            let range =
                self.exact(&small).filter(|_| !small.is_const() && !multiples.is_const())?;
            // g * m + small < limit
            let (limit, g) = (-i128::from(form.constant()), i128::from(g));
            if range.low < 0 || range.high >= g {
                return None;
            }
            let (block, within) = (floor(limit, g), limit - floor(limit, g) * g);
            let bound = match () {
                () if range.low >= within => block,
                () if range.high < within => block + 1,
                () => return None,
            };
            let inner = multiples.map(|k| k / g as i64);
            Some(inner.add_const(i64::try_from(-bound).ok()?))
        })
    }

    fn equal(&self, op: BinOp, form: &Linear) -> Option<Expr> {
        let form = self.recombined(form);
        self.exact(&form)?;
        let g = common(&form)?;
        if form.constant() % g != 0 {
            return Some(Expr::bool(op == BinOp::Ne));
        }
        let form = form.map(|k| k / g);
        // One of the two signs: the first term is positive.
        let form = if form.terms()[0].1 < 0 { form.scale(-1) } else { form };
        let (left, right) = sides(&form);
        Some(Expr::binary(op, left.to_expr(), right.to_expr()))
    }
}

/// The greatest common divisor of the coefficients.
fn common(form: &Linear) -> Option<i64> {
    let g = form.terms().iter().fold(0, |g, (_, k)| gcd(g, k.unsigned_abs()));
    i64::try_from(g).ok().filter(|g| *g > 0)
}

/// `form < 0` divided by the common factor of its coefficients.
fn divided(form: &Linear) -> Linear {
    let Some(g) = common(form) else { return form.clone() };
    // g * m < limit  is  m < ceil(limit / g)
    let limit = -i128::from(form.constant());
    let bound = -floor(-limit, g.into());
    let multiples = form.add_const(-form.constant()).map(|k| k / g);
    i64::try_from(-bound).map_or_else(|_| form.clone(), |k| multiples.add_const(k))
}

/// Positive terms, and what is on the other side of the comparison with zero.
fn sides(form: &Linear) -> (Linear, Linear) {
    let (positive, negative) = form.partition(|k| k > 0);
    let (left, right) = (positive, negative.scale(-1));
    // A constant stands alone, or where it is positive.
    if right.is_const() || right.constant() >= 0 {
        (left, right)
    } else {
        (left.add_const(-right.constant()), right.add_const(-right.constant()))
    }
}

fn less_than_zero(form: &Linear) -> Expr {
    let (left, right) = sides(form);
    if left.is_const() {
        // k < terms
        return Expr::int(left.constant().wrapping_add(1)).le(right.to_expr());
    }
    left.to_expr().lt(right.to_expr())
}
