//! Operations on constants, by the evaluator's own kernels.

use ansc_runtime::DType;

use crate::expr::{BinOp, Expr, UnOp};
use crate::interp::scalar;
use crate::scalar::Scalar;

/// `op` of a constant; `None` where its type does not have the operation.
pub fn fold_unary(op: UnOp, x: Scalar) -> Option<Scalar> {
    scalar::unary(op, x)
}

/// `op` of two constants; `None` where their types differ or do not have the operation.
pub fn fold_binary(op: BinOp, a: Scalar, b: Scalar) -> Option<Scalar> {
    scalar::binary(op, a, b)
}

/// A constant converted to another type, as the semantics of casts say.
pub fn fold_cast(to: DType, x: Scalar) -> Scalar {
    scalar::cast(to, x)
}

/// Replaces every operation on constants by its value.
#[must_use]
pub fn fold_constants(e: &Expr) -> Expr {
    e.rewrite(&mut fold_node)
}

/// The value of an expression whose operands are constants.
pub(super) fn fold_node(e: &Expr) -> Option<Expr> {
    match e {
        Expr::Unary(op, x) => fold_unary(*op, x.as_const()?).map(Expr::Const),
        Expr::Binary(op, a, b) => fold_binary(*op, a.as_const()?, b.as_const()?).map(Expr::Const),
        Expr::Cast(to, x) => Some(Expr::Const(fold_cast(*to, x.as_const()?))),
        Expr::Select(c, a, b) if c.as_const()?.dtype() == DType::Bool => {
            Some(if c.as_const()?.is_zero() { b.as_ref() } else { a.as_ref() }.clone())
        }
        _ => None,
    }
}
