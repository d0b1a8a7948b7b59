//! Arithmetic: sums and products of indices as linear forms, identities of all types.

use ansc_runtime::DType;

use crate::arith::interval::Interval;
use crate::arith::{Context, Linear, is_linear_op};
use crate::expr::{BinOp, Expr};
use crate::scalar::Scalar;

impl Context<'_> {
    pub(super) fn binary(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
        if op.is_comparison() {
            return self.compare(op, a, b);
        }
        let whole = || Expr::binary(op, a.clone(), b.clone());
        if is_linear_op(op) && (self.is_index(a) || self.is_index(b)) {
            return Some(self.linear(&Linear::from_expr(&whole())));
        }
        if let Some(point) = self.point(&whole()) {
            return Some(point);
        }
        match op {
            BinOp::And | BinOp::Or | BinOp::Xor => self.logic(op, a, b),
            BinOp::Min | BinOp::Max => self.extreme(op, a, b),
            _ => self.identity(op, a, b).or_else(|| self.quotient(op, a, b)),
        }
    }

    /// The expression of a linear form after its terms were put together.
    pub(super) fn linear(&self, form: &Linear) -> Expr {
        self.recombined(form).to_expr()
    }

    /// Operands that leave the other one as it is, bit for bit: `x - 0`, but not `x + 0.0`, which
    /// turns minus zero into zero.
    fn identity(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
        let neutral = |e: &Expr, value: fn(DType) -> Scalar| {
            e.as_const().is_some_and(|s| s == value(s.dtype()))
        };
        let int = self.dtype(a).or_else(|| self.dtype(b)).is_some_and(|d| d.is_int());
        let zero: fn(DType) -> Scalar = Scalar::zero;
        let one: fn(DType) -> Scalar = Scalar::one;
        let negative_zero = |d: DType| Scalar::from_f64(d, -0.0);
        match op {
            BinOp::Add if int && neutral(a, zero) => Some(b.clone()),
            BinOp::Add if int && neutral(b, zero) => Some(a.clone()),
            BinOp::Add if !int && neutral(a, negative_zero) => Some(b.clone()),
            BinOp::Add if !int && neutral(b, negative_zero) => Some(a.clone()),
            BinOp::Sub | BinOp::Shl | BinOp::Shr if neutral(b, zero) => Some(a.clone()),
            BinOp::Sub if int && a == b => Some(Expr::Const(Scalar::zero(self.dtype(a)?))),
            BinOp::Mul if neutral(a, one) => Some(b.clone()),
            BinOp::Mul if int && neutral(a, zero) => Some(a.clone()),
            BinOp::Mul if int && neutral(b, zero) => Some(b.clone()),
            BinOp::Mul | BinOp::Div | BinOp::Pow if neutral(b, one) => Some(a.clone()),
            BinOp::FloorDiv if int && neutral(b, one) => Some(a.clone()),
            _ => None,
        }
    }

    fn extreme(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
        if a == b {
            return Some(a.clone());
        }
        let min = op == BinOp::Min;
        match self.decide(BinOp::Le, a, b) {
            Some(less) => return Some(if less == min { a } else { b }.clone()),
            None if self.decide(BinOp::Le, b, a) == Some(true) => {
                return Some(if min { b } else { a }.clone());
            }
            None => {}
        }
        match (a, b) {
            // A constant goes right, where two of them become one.
            (Expr::Const(s), _) if !s.dtype().is_float() && b.as_const().is_none() => {
                Some(Expr::binary(op, b.clone(), a.clone()))
            }
            (Expr::Binary(inner, x, c), Expr::Const(d)) if *inner == op => {
                let both = crate::arith::fold_binary(op, c.as_const()?, *d)?;
                Some(Expr::binary(op, x.as_ref().clone(), Expr::Const(both)))
            }
            _ => None,
        }
    }

    /// The true value's range of an `i64` form that does not wrap.
    pub(super) fn exact(&self, form: &Linear) -> Option<Interval> {
        crate::arith::bounds::exact(self, form)
    }
}
