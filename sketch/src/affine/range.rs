//! Intervals of index expressions.

use ansc_graph::{BinOp, Expr, VarId};

use super::{Digit, Source, Sum};
use crate::program::{Iter, Program, Stmt};

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

    pub(crate) fn of(program: &Program) -> Extents {
        let of_vars = vec![None; program.vars.len()];
        let mut extents = Extents { of_vars, bindings: vec![] };
        program.body.iter().for_each(|s| extents.collect(s));
        extents
    }

    fn collect(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::For(l) => {
                self.set(l.var, l.extent);
                l.body.iter().for_each(|s| self.collect(s));
            }
            Stmt::Block(b) => b.iters.iter().for_each(|i| self.set(i.var, i.extent)),
        }
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

    /// From now on sums are over what the iterators are bound to, which are expressions over loops;
    /// and no longer over those of before.
    pub(crate) fn bind(&mut self, iters: &[Iter]) {
        self.bindings.clear();
        let all: Vec<_> = iters.iter().map(|i| (i.var, Sum::of(&i.binding, self))).collect();
        self.bindings = all;
    }

    /// As [`bind`](Extents::bind), and simplifies what iterators are bound to.
    pub(crate) fn simplify_and_bind(&mut self, iters: &mut [Iter]) {
        self.bindings.clear();
        let simplified = |iter: &mut Iter| {
            let sum = Sum::of(&iter.binding, self);
            iter.binding = sum.to_expr();
            (iter.var, sum)
        };
        let all = iters.iter_mut().map(simplified).collect();
        self.bindings = all;
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
        for (digit, &coefficient) in self.terms.iter() {
            let (least, most) = scale(digit.interval(extents)?, coefficient)?;
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
        let quotient =
            source.map(|(low, high)| (low.div_euclid(self.divisor), high.div_euclid(self.divisor)));
        match (quotient, self.modulus) {
            (Some((low, high)), Some(m)) if low >= 0 && high < m => Some((low, high)),
            (_, Some(m)) => Some((0, m - 1)),
            (quotient, None) => quotient,
        }
    }
}

fn scale((low, high): Interval, by: i64) -> Option<Interval> {
    let (a, b) = (low.checked_mul(by)?, high.checked_mul(by)?);
    Some((a.min(b), a.max(b)))
}

/// The interval of an expression that is no sum of digits.
fn opaque(e: &Expr, extents: &Extents) -> Option<Interval> {
    match e {
        Expr::Var(v) => extents.interval(*v),
        // Never opaque as a whole.
        Expr::Binary(BinOp::Add | BinOp::Sub, ..) => interval(e, extents),
        Expr::Binary(BinOp::Mul, a, b) if a.as_const().is_some() || b.as_const().is_some() => {
            interval(e, extents)
        }
        Expr::Binary(op, a, b) => {
            let (a, b) = (interval(a, extents), interval(b, extents));
            opaque_binary(*op, a, b)
        }
        Expr::Select(_, a, b) => {
            let (a, b) = (interval(a, extents)?, interval(b, extents)?);
            Some((a.0.min(b.0), a.1.max(b.1)))
        }
        _ => None,
    }
}

fn opaque_binary(op: BinOp, a: Option<Interval>, b: Option<Interval>) -> Option<Interval> {
    match (op, a, b) {
        (BinOp::Min, Some(a), Some(b)) => Some((a.0.min(b.0), a.1.min(b.1))),
        (BinOp::Max, Some(a), Some(b)) => Some((a.0.max(b.0), a.1.max(b.1))),
        (BinOp::FloorMod, _, Some((low, high))) if low > 0 => Some((0, high - 1)),
        (BinOp::FloorDiv | BinOp::Div, Some(a), Some((low, high))) if low > 0 => {
            let quotients = [a.0, a.1].map(|v| [v.div_euclid(low), v.div_euclid(high)]).concat();
            // Truncation only moves quotients towards zero.
            let truncated = op == BinOp::Div;
            let least = *quotients.iter().min()?;
            Some((
                if truncated { least.min(0) } else { least },
                *quotients.iter().max()? + i64::from(truncated && a.1 < 0),
            ))
        }
        (BinOp::Mul, Some(a), Some(b)) => {
            let products = [
                a.0.checked_mul(b.0)?,
                a.0.checked_mul(b.1)?,
                a.1.checked_mul(b.0)?,
                a.1.checked_mul(b.1)?,
            ];
            Some((*products.iter().min()?, *products.iter().max()?))
        }
        (BinOp::Rem, Some(a), Some((low, high))) if low > 0 => {
            Some((if a.0 < 0 { 1 - high } else { 0 }, if a.1 > 0 { high - 1 } else { 0 }))
        }
        _ => None,
    }
}
