//! Index arithmetic: bounds, affine forms and simplification of expressions.
//!
//! Everything here keeps the value of an expression at every point of its variables' ranges,
//! wrapping and rounding included; where it cannot be sure of that, it leaves the expression alone.
//! Floats are never reassociated, and `x * 0` stays.
//!
//! ```text
//! floor_div(v0 * 8 + v1, 8), v1 in 0..8   ->  v0
//! (v0 // 4) * 4 + v0 % 4                  ->  v0
//! v0 * 4 + v1 < 32,          v1 in 0..4   ->  v0 < 8
//! select(v0 < 5, v0 < 9, c)               ->  select(v0 < 5, true, c)
//! ```
//!
//! A [`Context`] holds what is known: ranges of variables, element types of buffers, and conditions
//! assumed to hold. [`simplify`] and [`bounds`] are shorthands for the first alone.

mod bounds;
mod facts;
mod fold;
mod interval;
mod linear;
mod point;
mod simplify;
mod terms;
#[cfg(test)]
mod tests;

use std::ops::Rem;

use ansc_runtime::DType;

pub use fold::{fold_binary, fold_cast, fold_constants, fold_unary};
pub use interval::Interval;
pub use linear::Linear;
pub use terms::Terms;

use crate::expr::{BinOp, BufId, Expr, UnOp, VarId};
use facts::Facts;

/// The inclusive range of a variable, where it is known.
pub type Ranges<'a> = dyn Fn(VarId) -> Option<(i64, i64)> + 'a;

/// The known ranges of variables, element types of buffers, and conditions that hold.
#[derive(Clone)]
pub struct Context<'a> {
    ranges: &'a Ranges<'a>,
    buffers: Option<&'a dyn Fn(BufId) -> DType>,
    facts: Facts,
}

impl<'a> Context<'a> {
    /// A context that knows these ranges, and no types of buffers.
    pub fn new(ranges: &'a Ranges<'a>) -> Context<'a> {
        Context { ranges, buffers: None, facts: Facts::default() }
    }

    /// Tells the element types of buffers, so that expressions of loads can be simplified as well.
    #[must_use]
    pub fn with_buffers(self, buffers: &'a dyn Fn(BufId) -> DType) -> Context<'a> {
        Context { buffers: Some(buffers), ..self }
    }

    /// This context where `condition` is known to be `holds`.
    #[must_use]
    pub fn assume(&self, condition: &Expr, holds: bool) -> Context<'a> {
        let mut context = self.clone();
        context.learn(condition, holds);
        context
    }

    /// Whether `condition` is true wherever this context holds.
    pub fn proves(&self, condition: &Expr) -> bool {
        self.simplify(condition) == Expr::bool(true)
    }

    /// The element type, where leaves tell it.
    pub fn dtype(&self, e: &Expr) -> Option<DType> {
        match e {
            Expr::Const(s) => Some(s.dtype()),
            Expr::Var(_) => Some(DType::I64),
            Expr::Load(b, _) => self.buffers.map(|dtype| dtype(*b)),
            Expr::Cast(to, _) => Some(*to),
            Expr::Unary(op, x) if op.result(DType::F32) == DType::F32 => self.dtype(x),
            Expr::Unary(..) => Some(DType::Bool),
            Expr::Binary(op, ..) if op.is_comparison() => Some(DType::Bool),
            Expr::Binary(_, a, b) | Expr::Select(_, a, b) => {
                self.dtype(a).or_else(|| self.dtype(b))
            }
        }
    }

    fn is_index(&self, e: &Expr) -> bool {
        self.dtype(e) == Some(DType::I64)
    }
}

/// An equal expression, usually a smaller one. Doing it twice changes nothing more.
pub fn simplify(e: &Expr, ranges: &Ranges<'_>) -> Expr {
    Context::new(ranges).simplify(e)
}

/// The inclusive bounds of an integer or boolean expression; `None` where its element type is not
/// known, or it is a float, or its values do not fit `i64`.
pub fn bounds(e: &Expr, ranges: &Ranges<'_>) -> Option<(i64, i64)> {
    Context::new(ranges).bounds(e)
}

/// The inclusive bounds of `op` on integers within these bounds; `None` where nothing is known of
/// them, or where they do not fit `i64`. See [`Interval::binary`].
pub fn binary_bounds(op: BinOp, a: (i64, i64), b: (i64, i64)) -> Option<(i64, i64)> {
    let wide = |(low, high): (i64, i64)| Interval::new(low.into(), high.into());
    Interval::binary(op, wide(a), wide(b))?.to_i64()
}

/// The inclusive bounds of an index, from each operation by itself: far cheaper than [`bounds`],
/// but nothing cancels. `None` where nothing is known of a part of it; `var` tells what is known of
/// variables.
pub fn bounds_of_parts(e: &Expr, var: &impl Fn(VarId) -> Option<(i64, i64)>) -> Option<(i64, i64)> {
    match e {
        Expr::Const(s) if s.dtype() == DType::I64 => Some((s.as_i64(), s.as_i64())),
        Expr::Var(v) => var(*v),
        Expr::Unary(UnOp::Neg, x) => binary_bounds(BinOp::Sub, (0, 0), bounds_of_parts(x, var)?),
        Expr::Binary(op, a, b) => {
            binary_bounds(*op, bounds_of_parts(a, var)?, bounds_of_parts(b, var)?)
        }
        Expr::Select(_, a, b) => {
            let (a, b) = (bounds_of_parts(a, var)?, bounds_of_parts(b, var)?);
            Some((a.0.min(b.0), a.1.max(b.1)))
        }
        Expr::Const(_) | Expr::Load(..) | Expr::Unary(..) | Expr::Cast(..) => None,
    }
}

/// The greatest common divisor of two numbers that are not negative; the other one if one is zero.
pub fn gcd<T: Copy + Default + PartialEq + Rem<Output = T>>(a: T, b: T) -> T {
    if b == T::default() { a } else { gcd(b, a % b) }
}

/// `Add`, `Sub` or `Mul`, which [`Linear`] takes apart.
fn is_linear_op(op: BinOp) -> bool {
    matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul)
}
