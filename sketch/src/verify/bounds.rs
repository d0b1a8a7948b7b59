//! Indices stay within their buffers, and iterators within their extents, where guards let them.
//!
//! ```text
//! where lt(i * 4 + j, 13)   x[i * 4 + j]   over i in 0..4, j in 0..4, of x: [13]
//! the interval 0..=15 leaves it; 12 - (i * 4 + j) is what the guard says is not negative, so it does not
//! ```

use ansc_graph::arith::Interval;
use ansc_graph::{BinOp, BufId, Expr, UnOp};
use ansc_runtime::DType;

use super::point::{Fact, climb};
use super::{Answer, Fault, Question, Subject};
use crate::affine::{Extents, Sum};
use crate::program::{Body, Iter};

pub(super) fn check(subject: &mut Subject<'_>) -> Result<(), Fault> {
    (0..subject.sites.len()).try_for_each(|at| Bounds::new(subject, at).block())
}

struct Bounds<'s, 'p> {
    subject: &'s mut Subject<'p>,
    at: usize,
    /// Facts that hold where the expression at hand is evaluated.
    facts: Vec<Fact<'p>>,
    /// Whether sums are over loops by now.
    is_bound: bool,
}

/// The known values of an index.
enum Place {
    Inside,
    /// It can be this value.
    Outside(i64),
    Unknown,
}

impl<'s, 'p> Bounds<'s, 'p> {
    fn new(subject: &'s mut Subject<'p>, at: usize) -> Bounds<'s, 'p> {
        Bounds { subject, at, facts: vec![], is_bound: false }
    }

    fn block(&mut self) -> Result<(), Fault> {
        let block = self.subject.sites[self.at].block;
        if let Some(predicate) = &block.predicate {
            self.expr(predicate)?;
            self.facts.extend(predicate.conjuncts().into_iter().map(|part| (part, true)));
        }
        if self.subject.sites[self.at].only_begins {
            return Ok(());
        }
        block.iters.iter().try_for_each(|iter| self.iterator(iter))?;
        self.expr(block.body.value())?;
        if let Body::ArgReduce { term, .. } = &block.body {
            self.expr(term)?;
        }
        for access in block.body.writes() {
            self.access(access.buffer, &access.indices)?;
        }
        Ok(())
    }

    fn iterator(&mut self, iter: &'p Iter) -> Result<(), Fault> {
        let answer = match self.place(&iter.binding, iter.extent) {
            Place::Inside => Answer::Proven,
            Place::Unknown => Answer::Unknown,
            Place::Outside(value) => {
                let block = self.subject.block_name(self.at);
                let (iter, extent) = (self.subject.var_name(iter.var), iter.extent);
                Answer::Refuted(Fault::Iterator { block, iter, value, extent })
            }
        };
        self.subject.settle(Question::Iterator, answer)
    }

    /// Every load in an expression, where selects let it happen.
    fn expr(&mut self, e: &'p Expr) -> Result<(), Fault> {
        match e {
            Expr::Const(_) | Expr::Var(_) => Ok(()),
            Expr::Load(buffer, indices) => self.access(*buffer, indices),
            Expr::Unary(_, x) | Expr::Cast(_, x) => self.expr(x),
            Expr::Binary(_, a, b) => {
                self.expr(a)?;
                self.expr(b)
            }
            Expr::Select(condition, a, b) => {
                self.expr(condition)?;
                for (holds, side) in [(true, a), (false, b)] {
                    self.facts.push((condition, holds));
                    let result = self.expr(side);
                    self.facts.pop();
                    result?;
                }
                Ok(())
            }
        }
    }

    fn access(&mut self, buffer: BufId, indices: &'p [Expr]) -> Result<(), Fault> {
        for (axis, index) in indices.iter().enumerate() {
            self.expr(index)?;
            let extent = self.subject.program.buffer(buffer).ty.shape[axis];
            let answer = match self.place(index, extent) {
                Place::Inside => Answer::Proven,
                Place::Unknown => Answer::Unknown,
                Place::Outside(value) => {
                    let block = self.subject.block_name(self.at);
                    let buffer = self.subject.buffer_name(buffer);
                    Answer::Refuted(Fault::OutOfBounds { block, buffer, axis, value, extent })
                }
            };
            self.subject.settle(Question::Index, answer)?;
        }
        Ok(())
    }

    fn place(&mut self, index: &Expr, extent: usize) -> Place {
        let last = i64::try_from(extent).unwrap_or(i64::MAX) - 1;
        let values = values(index, &self.subject.extents);
        if values.low >= 0 && values.high <= i128::from(last) {
            return Place::Inside;
        }
        if !self.is_bound {
            self.subject.bind(self.at);
            self.is_bound = true;
        }
        let extents = &self.subject.extents;
        let mut known = vec![];
        self.facts.iter().for_each(|(e, holds)| not_negative(e, *holds, extents, &mut known));
        let sum = Sum::of(index, extents);
        let above = Sum::constant(last).minus(&sum);
        if proves(&sum, &known, extents, DEPTH) && proves(&above, &known, extents, DEPTH) {
            return Place::Inside;
        }
        self.outside(index, last).map_or(Place::Unknown, Place::Outside)
    }

    /// A value of the index that is out of bounds, at a point where it is evaluated.
    fn outside(&self, index: &Expr, last: i64) -> Option<i64> {
        let site = &self.subject.sites[self.at];
        let vars = self.subject.program.vars.len();
        let above = |beyond: &dyn Fn(i64) -> Option<i64>| {
            climb(site, vars, &|p| {
                if p.satisfies(&self.facts) { beyond(p.eval(index)?) } else { None }
            })
        };
        let over = above(&|value| value.checked_sub(last));
        over.and_then(|over| last.checked_add(over)).or_else(|| {
            let below = above(&i64::checked_neg);
            below.and_then(i64::checked_neg)
        })
    }
}

/// Facts that are used together at most.
const DEPTH: usize = 2;

/// Whether a sum is not negative, if those of `known` are not.
fn proves(sum: &Sum, known: &[Sum], extents: &Extents, depth: usize) -> bool {
    if sum.interval(extents).is_some_and(|(low, _)| low >= 0) {
        return true;
    }
    depth > 0
        && known.iter().any(|fact| match multiple(sum, fact) {
            Some(times) => {
                proves(&sum.clone().minus(&fact.times(times)), known, extents, depth - 1)
            }
            None => false,
        })
}

/// How often a fact is in a sum, by a digit of both.
fn multiple(sum: &Sum, fact: &Sum) -> Option<i64> {
    let ratio = |(digit, c): (_, i64)| sum.terms.get(digit)?.checked_div(c);
    fact.terms.iter().find_map(ratio).filter(|times| *times > 0)
}

/// Expressions that are not negative where a condition holds, or where it does not.
fn not_negative(condition: &Expr, holds: bool, extents: &Extents, known: &mut Vec<Sum>) {
    let mut less = |a: &Expr, b: &Expr, by: i64| {
        let difference = Sum::of(b, extents).minus(&Sum::of(a, extents));
        known.push(difference.plus(&Sum::constant(-by)));
    };
    match (condition, holds) {
        (Expr::Binary(BinOp::And, a, b), true) | (Expr::Binary(BinOp::Or, a, b), false) => {
            not_negative(a, holds, extents, known);
            not_negative(b, holds, extents, known);
        }
        (Expr::Unary(UnOp::Not, x), _) => not_negative(x, !holds, extents, known),
        (Expr::Binary(_, a, _), _) if !is_index(a) => {}
        (Expr::Binary(BinOp::Lt, a, b), true) => less(a, b, 1),
        (Expr::Binary(BinOp::Lt, a, b), false) => less(b, a, 0),
        (Expr::Binary(BinOp::Le, a, b), true) => less(a, b, 0),
        (Expr::Binary(BinOp::Le, a, b), false) => less(b, a, 1),
        (Expr::Binary(BinOp::Eq, a, b), true) | (Expr::Binary(BinOp::Ne, a, b), false) => {
            less(a, b, 0);
            less(b, a, 0);
        }
        _ => {}
    }
}

/// Whether an expression is of variables and numbers alone, as far as its form tells at once.
fn is_index(e: &Expr) -> bool {
    match e {
        Expr::Const(s) => s.dtype() == DType::I64,
        Expr::Var(_) => true,
        Expr::Unary(UnOp::Neg, x) => is_index(x),
        Expr::Binary(op, a, b) => !op.is_comparison() && is_index(a) && is_index(b),
        Expr::Load(..) | Expr::Unary(..) | Expr::Cast(..) | Expr::Select(..) => false,
    }
}

/// The values of an index, from the form of the expression alone: far cheaper than its sum of
/// digits. Where nothing is known of a part, it may have any value.
fn values(e: &Expr, extents: &Extents) -> Interval {
    const ALL: Interval = Interval { low: i64::MIN as i128, high: i64::MAX as i128 };
    let known = match e {
        Expr::Const(s) if s.dtype() == DType::I64 => Interval::of_scalar(*s),
        Expr::Var(v) => {
            extents.interval(*v).map(|(low, high)| Interval::new(low.into(), high.into()))
        }
        Expr::Select(_, a, b) => Some(values(a, extents).union(values(b, extents))),
        Expr::Binary(op, a, b) => {
            Interval::wrapping_binary(*op, DType::I64, values(a, extents), values(b, extents))
        }
        Expr::Const(_) | Expr::Load(..) | Expr::Unary(..) | Expr::Cast(..) => None,
    };
    known.unwrap_or(ALL)
}
