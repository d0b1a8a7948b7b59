//! Simplification of elementwise expressions in open form (loads without indices).
//!
//! ```text
//! add(mul(1, x), 0)  ->  x            cast(f32, cast(f64, x))  ->  x
//! pow(x, 2)          ->  mul(x, x)    div(x, 8)                ->  mul(x, 0.125)
//! ```
//!
//! Results are the same but for the sign of zeros (`-0.0 + 0.0`) and for `pow` with the constant
//! exponents rewritten here, which may differ in the last bit and at minus infinity.

use ansc_runtime::DType;

use super::tensors::uniform;
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::{BinOp, BufId, Expr, UnOp};
use crate::interp;
use crate::scalar::Scalar;

/// Expressions up to this size may be repeated: `pow(x, 2)` to `x * x`.
const REPEATED: usize = 32;

/// The simplest form that the rules reach; `buffer` gives element types.
pub(crate) fn simplify(e: &Expr, buffer: &impl Fn(BufId) -> DType) -> Expr {
    let mut current = e.clone();
    loop {
        let next = current.rewrite(&mut |e| rule(e, buffer));
        if next == current {
            return next;
        }
        current = next;
    }
}

fn rule(e: &Expr, buffer: &impl Fn(BufId) -> DType) -> Option<Expr> {
    if !matches!(e, Expr::Const(_))
        && !matches!(e, Expr::Load(..) | Expr::Var(_))
        && let Some(value) = constant(e)
    {
        return Some(Expr::Const(value));
    }
    match e {
        Expr::Unary(op, x) => unary(*op, x),
        Expr::Cast(to, x) => cast(*to, x, buffer),
        Expr::Select(c, a, b) => select(c, a, b),
        Expr::Binary(op, a, b) => commuted(*op, a, b)
            .or_else(|| b.as_const().and_then(|c| with_constant(*op, a, c)))
            .or_else(|| structural(*op, a, b)),
        _ => None,
    }
}

/// The value of an operation on constants, by the interpreter's rules.
fn constant(e: &Expr) -> Option<Scalar> {
    if e.children().iter().any(|c| c.as_const().is_none()) {
        return None;
    }
    let dtype = e.dtype(&|_| DType::Bool);
    let stage = Stage::map("constant", TensorType::new(dtype, []), e.clone());
    let result = interp::eval(&Compute::single(vec![], stage), &[]).ok()?;
    uniform(&result[0])
}

fn unary(op: UnOp, x: &Expr) -> Option<Expr> {
    match (op, x) {
        (UnOp::Neg, Expr::Unary(UnOp::Neg, y)) | (UnOp::Not, Expr::Unary(UnOp::Not, y)) => {
            Some((**y).clone())
        }
        (UnOp::Abs, Expr::Unary(UnOp::Abs, _)) => Some(x.clone()),
        (UnOp::Abs, Expr::Unary(UnOp::Neg, y)) => Some(Expr::unary(UnOp::Abs, (**y).clone())),
        _ => None,
    }
}

fn cast(to: DType, x: &Expr, buffer: &impl Fn(BufId) -> DType) -> Option<Expr> {
    if x.dtype(buffer) == to {
        return Some(x.clone());
    }
    match x {
        Expr::Cast(middle, y) if y.dtype(buffer) == to && holds(*middle, to) => Some((**y).clone()),
        _ => None,
    }
}

/// Whether every value of `narrow` survives a conversion to `wide`.
fn holds(wide: DType, narrow: DType) -> bool {
    let bits = 8 * wide.size();
    match (wide, narrow) {
        (w, n) if w == n => true,
        (DType::F64, DType::F32 | DType::F16 | DType::BF16)
        | (DType::F32, DType::F16 | DType::BF16) => true,
        (w, n) if w.is_int() && n.is_int() => {
            bits > 8 * n.size() && (w.is_signed_int() || n.is_unsigned_int())
        }
        (w, DType::Bool) => w.is_int() || w.is_float(),
        (DType::F64, n) if n.is_int() => n.size() <= 4,
        (DType::F32, n) if n.is_int() => n.size() <= 2,
        _ => false,
    }
}

fn select(condition: &Expr, a: &Expr, b: &Expr) -> Option<Expr> {
    match condition.as_const() {
        Some(c) => Some(if c.is_zero() { b.clone() } else { a.clone() }),
        None => (a == b).then(|| a.clone()),
    }
}

/// Constants go to the right.
fn commuted(op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
    use BinOp::*;
    let commutes = matches!(op, Add | Mul | Min | Max | And | Or | Xor | Eq | Ne);
    (commutes && a.as_const().is_some() && b.as_const().is_none())
        .then(|| Expr::binary(op, b.clone(), a.clone()))
}

fn with_constant(op: BinOp, a: &Expr, c: Scalar) -> Option<Expr> {
    let dtype = c.dtype();
    let same = || Some(a.clone());
    match op {
        BinOp::Add | BinOp::Sub | BinOp::Or | BinOp::Xor | BinOp::Shl | BinOp::Shr
            if c.is_zero() =>
        {
            same()
        }
        BinOp::Mul | BinOp::Div | BinOp::Pow if c.is_one() => same(),
        BinOp::FloorDiv if c.is_one() && dtype.is_int() => same(),
        BinOp::Mul | BinOp::And if c.is_zero() && !dtype.is_float() => Some(Expr::Const(c)),
        BinOp::Mul if dtype.is_float() && c.as_f64() == -1.0 => {
            Some(Expr::unary(UnOp::Neg, a.clone()))
        }
        BinOp::And if dtype == DType::Bool => same(),
        BinOp::Or if dtype == DType::Bool => Some(Expr::Const(c)),
        BinOp::Min if c == Scalar::highest(dtype) => same(),
        BinOp::Max if c == Scalar::lowest(dtype) => same(),
        BinOp::Div if dtype.is_float() => {
            exact_inverse(c).map(|inverse| a.clone() * Expr::Const(inverse))
        }
        BinOp::Pow if dtype.is_float() => power(a, c),
        _ => None,
    }
}

/// The reciprocal of a power of two, if it is a normal number of the type.
fn exact_inverse(c: Scalar) -> Option<Scalar> {
    let (value, dtype) = (c.as_f64(), c.dtype());
    let limit = if dtype == DType::F16 { 14 } else { 120 };
    let exponent = value.abs().log2();
    let power_of_two = exponent.fract() == 0.0 && exponent.abs() <= f64::from(limit);
    power_of_two.then(|| Scalar::from_f64(dtype, value.recip()))
}

fn power(a: &Expr, c: Scalar) -> Option<Expr> {
    let one = || Expr::Const(Scalar::one(c.dtype()));
    let root = || Expr::unary(UnOp::Sqrt, a.clone());
    match c.as_f64() {
        2.0 if size(a) <= REPEATED => Some(a.clone() * a.clone()),
        3.0 if size(a) <= REPEATED => Some(a.clone() * a.clone() * a.clone()),
        0.5 => Some(root()),
        -0.5 => Some(one() / root()),
        -1.0 => Some(one() / a.clone()),
        _ => None,
    }
}

fn structural(op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
    match (op, a, b) {
        (BinOp::Min | BinOp::Max, _, _) if a == b => Some(a.clone()),
        (BinOp::And | BinOp::Or, _, _) if a == b => Some(a.clone()),
        // max(max(x, c), c)
        (BinOp::Min | BinOp::Max, Expr::Binary(inner, _, d), _) if *inner == op && **d == *b => {
            Some(a.clone())
        }
        (BinOp::Add, _, Expr::Unary(UnOp::Neg, y)) => Some(a.clone() - (**y).clone()),
        (BinOp::Sub, _, Expr::Unary(UnOp::Neg, y)) => Some(a.clone() + (**y).clone()),
        _ => None,
    }
}

/// Number of nodes of an expression.
pub(crate) fn size(e: &Expr) -> usize {
    let mut count = 0;
    e.visit(&mut |_| count += 1);
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x() -> Expr {
        Expr::load(0, vec![])
    }

    fn c(value: f64) -> Expr {
        Expr::float(DType::F32, value)
    }

    #[test]
    fn rules() {
        let cases = [
            (x() * c(1.0) + c(0.0), x()),
            (c(0.0) + x(), x()),
            (c(2.0) * c(3.0) + x(), x() + c(6.0)),
            (x() / c(8.0), x() * c(0.125)),
            (x() / c(3.0), x() / c(3.0)),
            (x() * c(0.0), x() * c(0.0)),
            (Expr::binary(BinOp::Pow, x(), c(2.0)), x() * x()),
            (Expr::binary(BinOp::Pow, x(), c(0.5)), Expr::unary(UnOp::Sqrt, x())),
            (Expr::Cast(DType::F32, Box::new(Expr::Cast(DType::F64, Box::new(x())))), x()),
            (x().max(c(0.0)).max(c(0.0)), x().max(c(0.0))),
            (Expr::select(Expr::bool(true), x(), c(1.0)), x()),
        ];
        for (before, after) in cases {
            assert_eq!(simplify(&before, &|_| DType::F32), after, "{before:?}");
        }
    }

    #[test]
    fn a_narrowing_cast_stays() {
        let narrow = Expr::Cast(DType::F32, Box::new(Expr::Cast(DType::F16, Box::new(x()))));
        assert_eq!(simplify(&narrow, &|_| DType::F32), narrow);
    }
}
