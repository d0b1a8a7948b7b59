//! Puts quotients and remainders of one numerator back together, as they come from splitting an
//! axis and fusing it again:
//!
//! ```text
//! (x // c) * c + x % c                  ->  x
//! (x // a % b) * a + x % a              ->  x % (a * b)
//! ```
//!
//! Both hold in wrapping arithmetic, whatever `x` is, for `a, b, c > 0`.

use crate::arith::{Context, Linear};
use crate::expr::{BinOp, Expr};

/// Numerator and divisor of `op` by a positive constant.
fn by_const(e: &Expr, op: BinOp) -> Option<(&Expr, i64)> {
    match e {
        Expr::Binary(o, x, c) if *o == op => {
            let c = c.as_const()?.as_i64();
            (c > 0).then_some((x.as_ref(), c))
        }
        _ => None,
    }
}

impl Context<'_> {
    pub(super) fn recombined(&self, form: &Linear) -> Linear {
        let mut form = form.clone();
        while let Some(next) = form.terms().iter().find_map(|(t, k)| self.pair_up(&form, t, *k)) {
            form = next;
        }
        form
    }

    /// The form in which `k * (x % c)` found its partner.
    fn pair_up(&self, form: &Linear, term: &Expr, k: i64) -> Option<Linear> {
        let (x, c) = by_const(term, BinOp::FloorMod)?;
        let partner = k.checked_mul(c)?;
        let x = Linear::from_expr(x);
        for (other, _) in form.terms().iter().filter(|(_, k)| *k == partner) {
            let whole = self.joined(other, &x, c);
            if let Some(whole) = whole {
                let mut result = form.clone();
                result.add_scaled(term, k.wrapping_neg());
                result.add_scaled(other, partner.wrapping_neg());
                result.add_scaled(&whole, k);
                return Some(result);
            }
        }
        None
    }

    /// `other * c + x % c`, where that is one expression.
    fn joined(&self, other: &Expr, x: &Linear, c: i64) -> Option<Expr> {
        let quotient = self.quotient_form(x, c);
        if Linear::from_expr(other) == quotient {
            return Some(x.to_expr());
        }
        let (inner, b) = by_const(other, BinOp::FloorMod)?;
        let whole = c.checked_mul(b)?;
        (Linear::from_expr(inner) == quotient)
            .then(|| self.modulo(x, whole).unwrap_or_else(|| x.to_expr().floor_mod(whole)))
    }

    /// `x // c` as it looks once simplified.
    fn quotient_form(&self, x: &Linear, c: i64) -> Linear {
        Linear::from_expr(&self.floor_div(x, c).unwrap_or_else(|| x.to_expr().floor_div(c)))
    }
}
