//! Sums of terms with constant coefficients.

use ansc_runtime::DType;

use super::Terms;
use crate::expr::{BinOp, Expr, UnOp};

/// `constant + sum of coefficient * term`, in wrapping `i64`. A term is a variable or an opaque
/// `i64` expression; terms are sorted and differ from each other, so that equal forms are equal
/// values of this type.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Linear {
    terms: Terms<Expr>,
    constant: i64,
}

impl Linear {
    /// Takes sums, differences and products with constants apart. `e` is an `i64` expression.
    pub fn from_expr(e: &Expr) -> Linear {
        let mut linear = Linear::default();
        linear.add_scaled(e, 1);
        linear
    }

    /// Terms with their coefficients, sorted by term.
    pub fn terms(&self) -> &[(Expr, i64)] {
        self.terms.as_slice()
    }

    /// The part without a term.
    pub fn constant(&self) -> i64 {
        self.constant
    }

    /// Whether there is no term.
    pub fn is_const(&self) -> bool {
        self.terms.is_empty()
    }

    /// The coefficient of a term; 0 if it does not occur.
    pub fn coefficient(&self, term: &Expr) -> i64 {
        self.terms.get(term).unwrap_or(0)
    }

    /// The term, where this is one with coefficient 1 and nothing else.
    pub fn as_term(&self) -> Option<&Expr> {
        match self.terms.only() {
            Some((term, 1)) if self.constant == 0 => Some(term),
            _ => None,
        }
    }

    /// Adds `e * scale`.
    pub fn add_scaled(&mut self, e: &Expr, scale: i64) {
        match e {
            Expr::Const(s) if s.dtype() == DType::I64 => {
                self.constant = self.constant.wrapping_add(s.as_i64().wrapping_mul(scale));
            }
            Expr::Unary(UnOp::Neg, x) => self.add_scaled(x, scale.wrapping_neg()),
            Expr::Binary(BinOp::Add, a, b) => {
                self.add_scaled(a, scale);
                self.add_scaled(b, scale);
            }
            Expr::Binary(BinOp::Sub, a, b) => {
                self.add_scaled(a, scale);
                self.add_scaled(b, scale.wrapping_neg());
            }
            Expr::Binary(BinOp::Mul, a, b) => match (a.as_ref(), b.as_ref()) {
                (Expr::Const(c), x) | (x, Expr::Const(c)) => {
                    self.add_scaled(x, scale.wrapping_mul(c.as_i64()));
                }
                _ => self.terms.add_copy(e, scale),
            },
            _ => self.terms.add_copy(e, scale),
        }
    }

    /// The sum of both, term by term.
    #[must_use]
    pub fn add(&self, other: &Linear) -> Linear {
        let mut sum = self.clone();
        sum.constant = sum.constant.wrapping_add(other.constant);
        other.terms.iter().for_each(|(term, c)| sum.terms.add_copy(term, c));
        sum
    }

    /// The difference of both, term by term.
    #[must_use]
    pub fn sub(&self, other: &Linear) -> Linear {
        self.add(&other.scale(-1))
    }

    /// All coefficients and the constant times `by`.
    #[must_use]
    pub fn scale(&self, by: i64) -> Linear {
        self.map(|c| c.wrapping_mul(by))
    }

    /// The form with `value` added to its constant.
    #[must_use]
    pub fn add_const(&self, value: i64) -> Linear {
        Linear { constant: self.constant.wrapping_add(value), ..self.clone() }
    }

    /// Every coefficient and the constant by `f`.
    #[must_use]
    pub(super) fn map(&self, f: impl Fn(i64) -> i64) -> Linear {
        Linear { constant: f(self.constant), terms: self.terms.map(f) }
    }

    /// The terms for which `keep` holds, without the constant; and the others, with it.
    pub(super) fn partition(&self, keep: impl Fn(i64) -> bool) -> (Linear, Linear) {
        let (kept, rest) = self.terms.clone().partition(|_, c| keep(c));
        (Linear { terms: kept, constant: 0 }, Linear { terms: rest, constant: self.constant })
    }

    /// Whether sums and differences of a few such forms keep all coefficients from wrapping.
    pub(super) fn is_small(&self) -> bool {
        let limit = 1u64 << 60;
        self.constant.unsigned_abs() < limit
            && self.terms.values().all(|c| c.unsigned_abs() < limit)
    }

    /// The canonical expression: positive terms, constant, negative terms.
    pub fn to_expr(&self) -> Expr {
        let scaled = |term: &Expr, c: i64| match c {
            1 => term.clone(),
            c => term.clone() * Expr::int(c),
        };
        // The least integer has no negation, so that it stays a coefficient.
        let negative = |c: i64| c < 0 && c != i64::MIN;
        let positives = self.terms.iter().filter(|(_, c)| !negative(*c));
        let mut sum = positives.map(|(t, c)| scaled(t, c)).reduce(|a, b| a + b);
        if self.constant != 0 && (sum.is_none() || !negative(self.constant)) {
            let constant = Expr::int(self.constant);
            sum = Some(sum.map_or_else(|| constant.clone(), |s| s + constant.clone()));
        } else if self.constant != 0 {
            sum = sum.map(|s| s - Expr::int(-self.constant));
        }
        for (term, c) in self.terms.iter().filter(|(_, c)| negative(*c)) {
            sum = Some(match sum {
                None => scaled(term, c),
                Some(sum) => sum - scaled(term, -c),
            });
        }
        sum.unwrap_or_else(|| Expr::int(0))
    }
}
