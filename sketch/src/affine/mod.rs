//! Index expressions as sums of digits.
//!
//! A [`Sum`] is `constant + Σ coefficient * digit`, where a [`Digit`] is `(source // divisor) %
//! modulus` of a variable or of an expression that is none of all this. Splitting and fusing loops
//! yields exactly such sums, and in this form they cancel:
//!
//! ```text
//! (jo * 8 + ji) // 4 * 4 + (jo * 8 + ji) % 4   with ji in 0..8
//! => 8 * jo + ji
//! ```
//!
//! The regions of accesses, their injectivity and their bounds are read off the digits.

mod build;
mod range;

use ansc_graph::arith::Terms;
use ansc_graph::{Expr, VarId};

pub(crate) use build::{decided, is_index};
pub(crate) use range::Extents;
#[cfg(test)]
use range::interval;

/// `(source // divisor) % modulus`; without a modulus nothing is cut off.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Digit {
    pub(crate) source: Source,
    pub(crate) divisor: i64,
    pub(crate) modulus: Option<i64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Var(VarId),
    Opaque(Box<Expr>),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) terms: Terms<Digit>,
    pub(crate) constant: i64,
}

/// The equivalent of `e` with sums collected and divisions resolved; loads and operations of other
/// types keep their form around simplified operands.
pub(crate) fn simplify(e: &Expr, extents: &Extents) -> Expr {
    build::simplify(e, extents)
}

impl PartialOrd for Source {
    fn partial_cmp(&self, other: &Source) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Variables by number, then expressions by their text form.
impl Ord for Source {
    fn cmp(&self, other: &Source) -> std::cmp::Ordering {
        match (self, other) {
            (Source::Var(a), Source::Var(b)) => a.cmp(b),
            (Source::Var(_), Source::Opaque(_)) => std::cmp::Ordering::Less,
            (Source::Opaque(_), Source::Var(_)) => std::cmp::Ordering::Greater,
            (Source::Opaque(a), Source::Opaque(b)) if a == b => std::cmp::Ordering::Equal,
            (Source::Opaque(a), Source::Opaque(b)) => format!("{a:?}").cmp(&format!("{b:?}")),
        }
    }
}

impl Source {
    pub(crate) fn to_expr(&self) -> Expr {
        match self {
            Source::Var(v) => Expr::Var(*v),
            Source::Opaque(e) => (**e).clone(),
        }
    }
}

impl Digit {
    pub(crate) fn whole(source: Source) -> Digit {
        Digit { source, divisor: 1, modulus: None }
    }

    pub(crate) fn depends_on(&self, holds: &impl Fn(VarId) -> bool) -> bool {
        match &self.source {
            Source::Var(v) => holds(*v),
            Source::Opaque(e) => e.vars().into_iter().any(holds),
        }
    }

    fn to_expr(&self) -> Expr {
        let mut e = self.source.to_expr();
        if self.divisor != 1 {
            e = e.floor_div(self.divisor);
        }
        match self.modulus {
            Some(modulus) => e.floor_mod(modulus),
            None => e,
        }
    }
}

impl Sum {
    pub(crate) fn of(e: &Expr, extents: &Extents) -> Sum {
        build::sum(e, extents)
    }

    pub(crate) fn constant(constant: i64) -> Sum {
        Sum { terms: Terms::default(), constant }
    }

    /// `coefficient` is not zero.
    pub(crate) fn digit(digit: Digit, coefficient: i64) -> Sum {
        Sum { terms: Terms::one(digit, coefficient), constant: 0 }
    }

    pub(crate) fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    fn add_constant(&mut self, constant: i64, factor: i64) {
        self.constant = self.constant.wrapping_add(constant.wrapping_mul(factor));
    }

    /// Adds `factor * other`; digits that are neighbours then are not merged.
    fn add(&mut self, other: &Sum, factor: i64) {
        for (digit, coefficient) in other.terms.iter() {
            self.terms.add_copy(digit, coefficient.wrapping_mul(factor));
        }
        self.add_constant(other.constant, factor);
    }

    pub(crate) fn add_term(&mut self, digit: Digit, coefficient: i64) {
        self.terms.add(digit, coefficient);
    }

    #[must_use]
    pub(crate) fn plus(self, other: &Sum) -> Sum {
        self.joined(other.clone())
    }

    /// `self + other`
    #[must_use]
    pub(crate) fn joined(mut self, other: Sum) -> Sum {
        for (digit, coefficient) in other.terms {
            self.add_term(digit, coefficient);
        }
        self.constant = self.constant.wrapping_add(other.constant);
        self.merged()
    }

    fn merged(mut self) -> Sum {
        while self.merge_digits() {}
        self
    }

    /// Joins one pair of neighbouring digits, `v // 4 * 4 + v % 4 = v`, if there is one.
    fn merge_digits(&mut self) -> bool {
        let find = |terms: &Terms<Digit>| {
            terms.iter().find_map(|(low, c)| {
                let modulus = low.modulus?;
                let divisor = low.divisor.checked_mul(modulus)?;
                let scaled = c.checked_mul(modulus)?;
                let above = |d: &Digit| d.source == low.source && d.divisor == divisor;
                let (high, _) = terms.iter().find(|(d, c)| above(d) && *c == scaled)?;
                Some((low.clone(), high.clone(), c))
            })
        };
        let Some((low, high, coefficient)) = find(&self.terms) else { return false };
        self.terms.remove(&low);
        self.terms.remove(&high);
        let modulus = high.modulus.and_then(|m| m.checked_mul(low.modulus?));
        match (&low.source, modulus, low.divisor) {
            // All digits of a sum: the sum itself.
            (Source::Opaque(e), None, 1) => {
                let sum = Sum::of(e, &Extents::default()).times(coefficient);
                *self = std::mem::take(self).plus(&sum);
            }
            _ => self.add_term(Digit { modulus, ..low }, coefficient),
        }
        true
    }

    #[must_use]
    pub(crate) fn minus(self, other: &Sum) -> Sum {
        self.joined(other.times(-1))
    }

    #[must_use]
    pub(crate) fn times(&self, factor: i64) -> Sum {
        Sum { terms: self.terms.times(factor), constant: self.constant.wrapping_mul(factor) }
    }

    /// The terms for which `keep` holds, and the others with the constant.
    pub(crate) fn partition(self, keep: impl FnMut(&Digit, i64) -> bool) -> (Sum, Sum) {
        let (kept, rest) = self.terms.partition(keep);
        (Sum { terms: kept, constant: 0 }, Sum { terms: rest, constant: self.constant })
    }

    pub(crate) fn to_expr(&self) -> Expr {
        if let Some((digit, 1)) = self.terms.only()
            && self.constant == 0
        {
            return digit.to_expr();
        }
        let mut terms: Vec<(&Digit, i64)> = self.terms.iter().collect();
        // Large strides first, as one writes an index.
        terms.sort_by_key(|(_, c)| std::cmp::Reverse(c.unsigned_abs()));
        if let Some(first_positive) = terms.iter().position(|(_, c)| *c > 0) {
            terms[..=first_positive].rotate_right(1);
        }
        let mut e: Option<Expr> = None;
        for (digit, coefficient) in terms {
            let term = |c: i64| match c {
                1 => digit.to_expr(),
                c => digit.to_expr() * Expr::int(c),
            };
            e = Some(match e {
                None => term(coefficient),
                Some(e) if coefficient < 0 && coefficient != i64::MIN => e - term(-coefficient),
                Some(e) => e + term(coefficient),
            });
        }
        match e {
            None => Expr::int(self.constant),
            Some(e) if self.constant == 0 => e,
            Some(e) if self.constant < 0 && self.constant != i64::MIN => {
                e - Expr::int(-self.constant)
            }
            Some(e) => e + Expr::int(self.constant),
        }
    }
}

#[cfg(test)]
mod tests;
