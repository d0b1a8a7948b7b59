//! Conditions that are assumed to hold.

use ansc_runtime::DType;

use super::interval::{Interval, floor_div};
use super::linear::Linear;
use super::{Context, bounds, gcd};
use crate::expr::{BinOp, Expr, UnOp};

/// The facts that conditions told: ranges of sums of terms, and the conditions themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Ranges of forms without constant, whose coefficients have no common factor and of which
    /// the first is positive.
    ranges: Vec<(Linear, Interval)>,
    conditions: Vec<(Expr, bool)>,
}

/// Where nothing bounds a sum.
const UNBOUNDED: i128 = 1 << 100;

/// The primitive form, and the factor that gives the terms back.
fn primitive(terms: &Linear) -> Option<(Linear, i64)> {
    let first = terms.terms().first().filter(|_| terms.is_small())?.1;
    let divisor = terms.terms().iter().fold(0, |g, (_, c)| gcd(g, c.unsigned_abs()));
    let divisor = i64::try_from(divisor).ok()? * first.signum();
    Some((terms.add_const(-terms.constant()).map(|c| c / divisor), divisor))
}

impl Facts {
    /// The known range of the value of a form's terms, without its constant.
    pub(super) fn range(&self, form: &Linear) -> Option<Interval> {
        if self.ranges.is_empty() {
            return None;
        }
        let (key, factor) = primitive(form)?;
        let (_, range) = self.ranges.iter().find(|(terms, _)| *terms == key)?;
        range.times(i128::from(factor))
    }

    pub(super) fn condition(&self, e: &Expr) -> Option<bool> {
        self.conditions.iter().find(|(c, _)| c == e).map(|(_, holds)| *holds)
    }

    fn restrict(&mut self, key: Linear, range: Interval) {
        match self.ranges.iter_mut().find(|(terms, _)| *terms == key) {
            Some((_, known)) => *known = known.meet(range),
            None => self.ranges.push((key, range)),
        }
    }
}

impl Context<'_> {
    pub(super) fn learn(&mut self, condition: &Expr, holds: bool) {
        match condition {
            Expr::Const(_) => return,
            Expr::Unary(UnOp::Not, x) => self.learn(x, !holds),
            Expr::Binary(BinOp::And, a, b) if holds && self.is_bool(a) => {
                self.learn(a, true);
                self.learn(b, true);
            }
            Expr::Binary(BinOp::Or, a, b) if !holds && self.is_bool(a) => {
                self.learn(a, false);
                self.learn(b, false);
            }
            Expr::Binary(op, a, b) if op.is_comparison() => self.learn_comparison(*op, a, b, holds),
            _ => {}
        }
        self.facts.conditions.push((condition.clone(), holds));
    }

    fn is_bool(&self, e: &Expr) -> bool {
        self.dtype(e) == Some(DType::Bool)
    }

    /// `difference < 0` and so on, as a range of the difference's terms.
    fn learn_comparison(&mut self, op: BinOp, a: &Expr, b: &Expr, holds: bool) {
        let Some(difference) = self.difference(a, b) else { return };
        let range = match (op, holds) {
            (BinOp::Lt, true) => Interval::new(-UNBOUNDED, -1),
            (BinOp::Lt, false) => Interval::new(0, UNBOUNDED),
            (BinOp::Le, true) => Interval::new(-UNBOUNDED, 0),
            (BinOp::Le, false) => Interval::new(1, UNBOUNDED),
            (BinOp::Eq, true) | (BinOp::Ne, false) => Interval::point(0),
            _ => return,
        };
        let Some((key, factor)) = primitive(&difference) else { return };
        let constant = i128::from(difference.constant());
        let (low, high) = (range.low - constant, range.high - constant);
        let factor = i128::from(factor);
        let (low, high) = if factor > 0 { (low, high) } else { (-high, -low) };
        // Rounded inwards: the form takes integer values.
        let (low, high) = (-floor_div(-low, factor.abs()), floor_div(high, factor.abs()));
        if low <= high {
            self.facts.restrict(key, Interval::new(low, high));
        }
    }

    /// `a - b` as a form whose value is the true difference, without wrapping.
    pub(super) fn difference(&self, a: &Expr, b: &Expr) -> Option<Linear> {
        if !self.is_index(a) && !self.is_index(b) {
            return None;
        }
        let (a, b) = (Linear::from_expr(a), Linear::from_expr(b));
        bounds::exact(self, &a)?;
        bounds::exact(self, &b)?;
        Some(a.sub(&b))
    }
}
