//! Simplification, bottom-up: operands first, then the rules of the operation, one family per file.
//!
//! Rules keep the value wherever the [`Context`] holds. The result is a fixed point.

mod binary;
mod compare;
mod convert;
mod divide;
mod logic;
mod recombine;

use super::fold::fold_node;
use super::{Context, Linear};
use crate::expr::{Expr, UnOp};

/// Rounds until nothing changes. Two are the rule; the limit guards against rules that
/// undo each other, of which the tests know none.
const ROUNDS: usize = 16;

impl Context<'_> {
    /// An equal expression, see [`super::simplify`].
    #[must_use]
    pub fn simplify(&self, e: &Expr) -> Expr {
        let mut current = self.round(e);
        for _ in 1..ROUNDS {
            let next = self.round(&current);
            if next == current {
                break;
            }
            current = next;
        }
        current
    }

    /// One pass over the whole expression.
    fn round(&self, e: &Expr) -> Expr {
        match e {
            Expr::Const(_) => e.clone(),
            Expr::Var(_) => self.point(e).unwrap_or_else(|| e.clone()),
            Expr::Select(c, a, b) => self.select(self.round(c), a, b),
            _ => {
                let rebuilt = e.map_children(|child| self.round(child));
                self.node(rebuilt)
            }
        }
    }

    /// The constant that an integer expression can only be.
    fn point(&self, e: &Expr) -> Option<Expr> {
        let (dtype, range) = self.interval(e)?;
        let value = range.is_point().then_some(range.low)?;
        Some(Expr::Const(crate::scalar::Scalar::from_i64(dtype, value as i64)))
    }

    /// Simplifies an operation whose operands are simple.
    fn node(&self, e: Expr) -> Expr {
        if let Some(constant) = fold_node(&e) {
            return constant;
        }
        match &e {
            Expr::Unary(op, x) => self.unary(*op, x),
            Expr::Binary(op, a, b) => self.binary(*op, a, b),
            Expr::Cast(to, x) => self.convert(*to, x),
            _ => None,
        }
        .unwrap_or(e)
    }

    fn unary(&self, op: UnOp, x: &Expr) -> Option<Expr> {
        match (op, x) {
            (UnOp::Neg, Expr::Unary(UnOp::Neg, x)) => Some(x.as_ref().clone()),
            (UnOp::Neg, _) if self.is_index(x) => {
                Some(self.linear(&Linear::from_expr(x).scale(-1)))
            }
            (UnOp::Abs, _) if self.interval(x)?.1.low >= 0 => Some(x.clone()),
            (UnOp::Not, _) => self.not(x),
            _ => self.point(&Expr::unary(op, x.clone())),
        }
    }
}
