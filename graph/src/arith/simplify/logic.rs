//! Conditions and selects.

use ansc_runtime::DType;

use crate::arith::Context;
use crate::expr::{BinOp, Expr, UnOp};

impl Context<'_> {
    /// `c` is simple; the sides are simplified here, each under what `c` tells.
    pub(super) fn select(&self, c: Expr, a: &Expr, b: &Expr) -> Expr {
        if let Some(holds) = self.truth(&c) {
            return self.round(if holds { a } else { b });
        }
        if let Expr::Unary(UnOp::Not, c) = c {
            return self.select(*c, b, a);
        }
        let a = self.assume(&c, true).round(a);
        let b = self.assume(&c, false).round(b);
        match (truth_value(&a), truth_value(&b)) {
            _ if a == b => a,
            (Some(true), Some(false)) => c,
            (Some(false), Some(true)) => self.node(Expr::unary(UnOp::Not, c)),
            _ => Expr::select(c, a, b),
        }
    }

    /// The value of a condition, where it is known.
    fn truth(&self, c: &Expr) -> Option<bool> {
        truth_value(c).or_else(|| self.facts.condition(c))
    }

    pub(super) fn not(&self, x: &Expr) -> Option<Expr> {
        match x {
            Expr::Unary(UnOp::Not, x) => Some(x.as_ref().clone()),
            Expr::Binary(op @ (BinOp::Eq | BinOp::Ne), a, b) => {
                let other = if *op == BinOp::Eq { BinOp::Ne } else { BinOp::Eq };
                Some(Expr::binary(other, a.as_ref().clone(), b.as_ref().clone()))
            }
            // With NaN, neither of two floats is less than the other.
            Expr::Binary(op @ (BinOp::Lt | BinOp::Le), a, b) => {
                let dtype = self.dtype(a).or_else(|| self.dtype(b))?;
                let other = if *op == BinOp::Lt { BinOp::Le } else { BinOp::Lt };
                let flipped = Expr::binary(other, b.as_ref().clone(), a.as_ref().clone());
                (!dtype.is_float()).then(|| self.node(flipped))
            }
            _ => None,
        }
    }

    pub(super) fn logic(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
        let same = a == b;
        match op {
            BinOp::And | BinOp::Or if same => Some(a.clone()),
            BinOp::And | BinOp::Or => self.junction(op, a, b),
            _ if same => Some(Expr::Const(crate::scalar::Scalar::zero(self.dtype(a)?))),
            _ if truth_value(b) == Some(false) => Some(a.clone()),
            _ if truth_value(a) == Some(false) => Some(b.clone()),
            _ if truth_value(b) == Some(true) => Some(self.node(Expr::unary(UnOp::Not, a.clone()))),
            _ if truth_value(a) == Some(true) => Some(self.node(Expr::unary(UnOp::Not, b.clone()))),
            _ => None,
        }
    }

    /// And, or: a side that is known goes away or decides; the right one may rely on the left one.
    fn junction(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
        let dtype = self.dtype(a).or_else(|| self.dtype(b))?;
        if dtype != DType::Bool {
            return None;
        }
        let neutral = op == BinOp::And;
        match (self.truth(a), self.truth(b)) {
            (Some(known), _) => return Some(if known == neutral { b } else { a }.clone()),
            (_, Some(known)) => return Some(if known == neutral { a } else { b }.clone()),
            _ => {}
        }
        // Both sides are evaluated: a load must not lose its own guard.
        if b.loads().is_empty() {
            let simpler = self.assume(a, neutral).round(b);
            if simpler != *b {
                return Some(self.node(Expr::binary(op, a.clone(), simpler)));
            }
        }
        None
    }
}

fn truth_value(e: &Expr) -> Option<bool> {
    e.as_const().filter(|s| s.dtype() == DType::Bool).map(|s| !s.is_zero())
}
