//! Bounds of expressions.

use ansc_runtime::DType;

use super::interval::{self, Interval};
use super::linear::Linear;
use super::{Context, is_linear_op};
use crate::expr::{BinOp, Expr, UnOp};

/// The range of a form's value where no sum of its terms can wrap: half of what `i64` holds, so
/// that differences of two such forms do not wrap either.
pub(super) fn exact(context: &Context<'_>, form: &Linear) -> Option<Interval> {
    let limit = Interval::new(-(1 << 62), 1 << 62);
    let sum = context.sum(form)?;
    (form.is_small() && sum.within(limit)).then_some(sum)
}

impl Context<'_> {
    /// The inclusive bounds of an integer or boolean expression, see [`super::bounds`].
    pub fn bounds(&self, e: &Expr) -> Option<(i64, i64)> {
        self.interval(e)?.1.to_i64()
    }

    /// The element type and values of an integer or boolean expression.
    pub(super) fn interval(&self, e: &Expr) -> Option<(DType, Interval)> {
        match e {
            Expr::Const(s) => Some((s.dtype(), Interval::of_scalar(*s)?)),
            Expr::Var(v) => {
                let (low, high) = (self.ranges)(*v).unwrap_or((i64::MIN, i64::MAX));
                let range = Interval { low: low.into(), high: high.into() };
                let known = self.facts.range(&Linear::from_expr(e));
                Some((DType::I64, known.map_or(range, |k| range.meet(k))))
            }
            Expr::Load(..) => of_type(self.dtype(e)?),
            Expr::Unary(op, x) => self.unary_range(e, *op, x),
            Expr::Binary(op, a, b) => self.binary_range(e, *op, a, b),
            Expr::Select(c, a, b) => self.select_range(c, a, b),
            Expr::Cast(to, x) => self.cast_range(*to, x),
        }
    }

    fn unary_range(&self, e: &Expr, op: UnOp, x: &Expr) -> Option<(DType, Interval)> {
        if matches!(op, UnOp::IsNan | UnOp::IsInf) {
            return of_type(DType::Bool);
        }
        if op == UnOp::Neg && self.is_index(x) {
            return self.linear_range(e);
        }
        let (dtype, x) = self.interval(x)?;
        Some((dtype, interval::unary(op, dtype, x)?))
    }

    fn binary_range(&self, e: &Expr, op: BinOp, a: &Expr, b: &Expr) -> Option<(DType, Interval)> {
        if op.is_comparison() {
            let decided = self.decide(op, a, b).map(|holds| Interval::point(holds.into()));
            return Some((DType::Bool, decided.unwrap_or(Interval::new(0, 1))));
        }
        if is_linear_op(op) && self.is_index(e) {
            return self.linear_range(e);
        }
        let (dtype, a, b) = self.pair(a, b)?;
        Some((dtype, Interval::wrapping_binary(op, dtype, a, b)?))
    }

    /// The values of two operands of one type; what is not known may have any value of it.
    fn pair(&self, a: &Expr, b: &Expr) -> Option<(DType, Interval, Interval)> {
        let (a, b) = (self.interval(a), self.interval(b));
        let (dtype, _) = a.or(b)?;
        let all = Interval::of_type(dtype)?;
        Some((dtype, a.map_or(all, |a| a.1), b.map_or(all, |b| b.1)))
    }

    fn linear_range(&self, e: &Expr) -> Option<(DType, Interval)> {
        let form = Linear::from_expr(e);
        let values = match form.as_term() {
            // A product of two expressions that are not constant.
            Some(term) if term == e => self.term(term),
            _ => exact(self, &form),
        };
        let all = Interval::of_type(DType::I64)?;
        Some((DType::I64, values.filter(|v| v.within(all)).unwrap_or(all)))
    }

    /// The range of a form in unbounded integers.
    pub(super) fn sum(&self, form: &Linear) -> Option<Interval> {
        let mut sum = Interval::point(0);
        for (term, coefficient) in form.terms() {
            sum = sum.plus(self.term(term)?.times(i128::from(*coefficient))?)?;
        }
        if let Some(known) = self.facts.range(form) {
            sum = sum.meet(known);
        }
        sum.plus(Interval::point(i128::from(form.constant())))
    }

    /// The range of one term of a form.
    fn term(&self, term: &Expr) -> Option<Interval> {
        let range = match term {
            Expr::Binary(BinOp::Mul, a, b) => {
                let (_, a, b) = self.pair(a, b)?;
                Interval::wrapping_binary(BinOp::Mul, DType::I64, a, b)?
            }
            _ => match self.interval(term) {
                Some((_, range)) => range,
                // The type of a load is not always known; as a term it is an `i64`.
                None => Interval::of_type(DType::I64)?,
            },
        };
        let known = self.facts.range(&Linear::from_expr(term));
        Some(known.map_or(range, |k| range.meet(k)))
    }

    fn select_range(&self, c: &Expr, a: &Expr, b: &Expr) -> Option<(DType, Interval)> {
        match self.interval(c) {
            Some((_, c)) if c.low == 1 => return self.interval(a),
            Some((_, c)) if c.high == 0 => return self.interval(b),
            _ => {}
        }
        let (a, b) = (self.assume(c, true).interval(a), self.assume(c, false).interval(b));
        match (a, b) {
            (Some((dtype, a)), Some((_, b))) => Some((dtype, a.union(b))),
            (Some((dtype, _)), None) | (None, Some((dtype, _))) => of_type(dtype),
            (None, None) => None,
        }
    }

    fn cast_range(&self, to: DType, x: &Expr) -> Option<(DType, Interval)> {
        let (_, all) = of_type(to)?;
        match self.interval(x) {
            Some((_, x)) if to == DType::Bool => {
                let zero = Interval::point(0);
                let (low, high) = (!x.contains(0), x != zero);
                Some((to, Interval::new(low.into(), high.into())))
            }
            Some((_, x)) if x.within(all) => Some((to, x)),
            _ => Some((to, all)),
        }
    }

    /// The truth of a comparison, where bounds decide it.
    pub(super) fn decide(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<bool> {
        let difference = match self.difference(a, b) {
            Some(form) => self.sum(&form)?,
            None => {
                let (_, a, b) = self.pair(a, b)?;
                a.plus(b.times(-1)?)?
            }
        };
        let holds = Interval::binary(op, difference, Interval::point(0))?;
        holds.is_point().then_some(holds.low == 1)
    }
}

fn of_type(dtype: DType) -> Option<(DType, Interval)> {
    Some((dtype, Interval::of_type(dtype)?))
}
