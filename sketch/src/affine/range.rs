//! Intervals of index expressions.

use ansc_graph::arith::binary_bounds;
use ansc_graph::{BinOp, Expr, VarId};

use super::build::known;
use super::{Digit, Source, Sum};

/// An inclusive range.
pub(crate) type Interval = (i64, i64);

/// The extent of every loop and block iterator: each runs over `0..extent`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    of_vars: Vec<Option<usize>>,
    /// The sums that stand for iterators.
    bindings: Vec<(VarId, Sum)>,
}

impl Extents {
    /// Extents of the variables `0..n` of an expression.
    pub(crate) fn of_axes(extents: &[usize]) -> Extents {
        let of_vars = extents.iter().map(|&extent| Some(extent)).collect();
        Extents { of_vars, bindings: vec![] }
    }

    /// None of the first `vars` variables is known yet.
    pub(crate) fn unknown(vars: usize) -> Extents {
        Extents { of_vars: vec![None; vars], bindings: vec![] }
    }

    pub(crate) fn set(&mut self, var: VarId, extent: usize) {
        if self.of_vars.len() <= var.index() {
            self.of_vars.resize(var.index() + 1, None);
        }
        self.of_vars[var.index()] = Some(extent);
    }

    pub(crate) fn get(&self, var: VarId) -> Option<usize> {
        self.of_vars.get(var.index()).copied().flatten()
    }

    /// From now on sums are over what these variables stand for, and no longer over those of
    /// before. Gives the sums.
    pub(crate) fn stand_for(
        &mut self,
        bound: impl Iterator<Item = (VarId, Expr)>,
    ) -> impl Iterator<Item = &Sum> {
        self.bindings.clear();
        let all: Vec<_> = bound.map(|(var, e)| (var, Sum::of(&e, self))).collect();
        self.bindings = all;
        self.bindings.iter().map(|(_, sum)| sum)
    }

    pub(super) fn binding(&self, var: VarId) -> Option<&Sum> {
        self.bindings.iter().find(|(v, _)| *v == var).map(|(_, sum)| sum)
    }

    /// The values of a variable; one that runs over nothing counts as zero.
    pub(crate) fn interval(&self, var: VarId) -> Option<Interval> {
        let extent = i64::try_from(self.get(var)?).ok()?;
        Some((0, extent.max(1) - 1))
    }
}

/// An interval that holds the value of an integer expression, if it can be told.
pub(crate) fn interval(e: &Expr, extents: &Extents) -> Option<Interval> {
    Sum::of(e, extents).interval(extents)
}

impl Sum {
    pub(crate) fn interval(&self, extents: &Extents) -> Option<Interval> {
        let (mut low, mut high) = (self.constant, self.constant);
        for (digit, coefficient) in self.terms.iter() {
            let (least, most) = times(digit.interval(extents)?, coefficient)?;
            low = low.checked_add(least)?;
            high = high.checked_add(most)?;
        }
        Some((low, high))
    }
}

impl Digit {
    pub(crate) fn interval(&self, extents: &Extents) -> Option<Interval> {
        let source = match &self.source {
            Source::Var(v) => extents.interval(*v),
            Source::Opaque(e) => opaque(e, extents),
        };
        let quotient = match self.divisor {
            1 => source,
            by => source.and_then(|source| binary_bounds(BinOp::FloorDiv, source, (by, by))),
        };
        match self.modulus {
            None => quotient,
            Some(by) => modulo(quotient, (by, by)),
        }
    }
}

fn times((low, high): Interval, by: i64) -> Option<Interval> {
    let (a, b) = (low.checked_mul(by)?, high.checked_mul(by)?);
    Some((a.min(b), a.max(b)))
}

/// The remainders of a dividend of which nothing may be known.
fn modulo(dividend: Option<Interval>, divisor: Interval) -> Option<Interval> {
    binary_bounds(BinOp::FloorMod, dividend.unwrap_or((i64::MIN, i64::MAX)), divisor)
}

/// The interval of an expression that is no sum of digits.
fn opaque(e: &Expr, extents: &Extents) -> Option<Interval> {
    match e {
        Expr::Var(v) => extents.interval(*v),
        // Never opaque as a whole.
        Expr::Binary(BinOp::Add | BinOp::Sub, ..) => interval(e, extents),
        Expr::Binary(BinOp::Mul, a, b) if known(a).or(known(b)).is_some() => interval(e, extents),
        Expr::Binary(BinOp::FloorMod, a, b) => modulo(interval(a, extents), interval(b, extents)?),
        Expr::Binary(op, a, b) => binary_bounds(*op, interval(a, extents)?, interval(b, extents)?),
        Expr::Select(_, a, b) => {
            let (a, b) = (interval(a, extents)?, interval(b, extents)?);
            Some((a.0.min(b.0), a.1.max(b.1)))
        }
        _ => None,
    }
}
