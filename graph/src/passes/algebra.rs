//! Simplification of elementwise expressions in open form (loads without indices).
//!
//! ```text
//! sub(mul(1, x), 0)  ->  x            cast(f32, cast(f64, x))  ->  x
//! pow(x, 2)          ->  mul(x, x)    div(x, 8)                ->  mul(x, 0.125)
//! ```
//!
//! Results are the same, of NaN, infinities and zeros of either sign too. But `pow` with a constant
//! exponent that is rewritten here may round otherwise, the sign of a NaN is open, and so is that
//! of the zero that `min` and `max` choose from zeros of both signs.

use ansc_runtime::DType;

use crate::compute::{Compute, Stage, TensorType};
use crate::expr::{BinOp, BufId, Expr, UnOp};
use crate::interp;
use crate::scalar::Scalar;
use crate::tensors::uniform;

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
        // Adding 0.0 to a float may change it: -0.0 + 0.0 is 0.0.
        BinOp::Add if dtype.is_float() => is(c, -0.0).then(same)?,
        BinOp::Sub if dtype.is_float() => is(c, 0.0).then(same)?,
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

/// Whether `c` is this number, of zeros the one with its sign.
fn is(c: Scalar, value: f64) -> bool {
    c.as_f64().to_bits() == value.to_bits()
}

fn power(a: &Expr, c: Scalar) -> Option<Expr> {
    let one = || Expr::Const(Scalar::one(c.dtype()));
    match c.as_f64() {
        2.0 if size(a) <= REPEATED => Some(a.clone() * a.clone()),
        3.0 if size(a) <= REPEATED => Some(a.clone() * a.clone() * a.clone()),
        0.5 if size(a) <= REPEATED => Some(root(a, c.dtype())),
        -0.5 if size(a) <= REPEATED => Some(one() / root(a, c.dtype())),
        -1.0 => Some(one() / a.clone()),
        _ => None,
    }
}

/// `pow(a, 0.5)`, which is infinite at both infinities, and 0.0 at either zero.
fn root(a: &Expr, dtype: DType) -> Expr {
    let number = |value| Expr::float(dtype, value);
    let root = Expr::unary(UnOp::Sqrt, a.clone() + number(0.0));
    let is_lowest = Expr::binary(BinOp::Eq, a.clone(), number(f64::NEG_INFINITY));
    Expr::select(is_lowest, number(f64::INFINITY), root)
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
    use ansc_runtime::Tensor;

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
            (x() * c(1.0) - c(0.0), x()),
            (c(-0.0) + x(), x()),
            (x() + c(0.0), x() + c(0.0)),
            (x() - c(-0.0), x() - c(-0.0)),
            (c(2.0) * c(3.0) + x(), x() + c(6.0)),
            (x() / c(8.0), x() * c(0.125)),
            (x() / c(3.0), x() / c(3.0)),
            (x() * c(0.0), x() * c(0.0)),
            (Expr::binary(BinOp::Pow, x(), c(2.0)), x() * x()),
            (Expr::Cast(DType::F32, Box::new(Expr::Cast(DType::F64, Box::new(x())))), x()),
            (x().max(c(0.0)).max(c(0.0)), x().max(c(0.0))),
            (Expr::select(Expr::bool(true), x(), c(1.0)), x()),
        ];
        for (before, after) in cases {
            assert_eq!(simplify(&before, &|_| DType::F32), after, "{before:?}");
        }
    }

    /// Numbers at which rules that hold for real numbers fail.
    const SPECIAL: [f64; 16] = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -2.0,
        3.0,
        -8.0,
        1e-45,
        -1e-40,
        3e38,
        -3e38,
        0.1,
    ];

    fn values(e: &Expr, dtype: DType) -> Vec<f64> {
        let all: Vec<(f64, f64)> =
            SPECIAL.iter().flat_map(|&a| SPECIAL.iter().map(move |&b| (a, b))).collect();
        let tensor = |of: fn(&(f64, f64)) -> f64| {
            let given: Vec<f64> = all.iter().map(of).collect();
            let ty = TensorType::new(DType::F64, [given.len()]);
            let cast = Expr::Cast(dtype, Box::new(Expr::load(0, vec![Expr::var(0)])));
            let to = TensorType::new(dtype, [given.len()]);
            let expr = Compute::single(vec![ty], Stage::map("given", to, cast));
            interp::eval(&expr, &[&Tensor::from_slice(&[given.len()], &given)]).unwrap().remove(0)
        };
        let inputs = [tensor(|v| v.0), tensor(|v| v.1)];
        let body = e.rewrite(&mut |e| match e {
            Expr::Load(buffer, at) if at.is_empty() => {
                Some(Expr::Load(*buffer, vec![Expr::var(0)]))
            }
            _ => None,
        });
        let out = TensorType::new(e.dtype(&|_| dtype), [all.len()]);
        let types = inputs.iter().map(TensorType::of).collect();
        let expr = Compute::single(types, Stage::map("value", out, body));
        interp::eval(&expr, &[&inputs[0], &inputs[1]]).unwrap()[0].to_f64_vec()
    }

    /// Every expression that a rule for floats may match: each operation, of `x` and each special
    /// constant or `y`, and what nests two of them.
    fn expressions(dtype: DType) -> Vec<Expr> {
        use BinOp::*;
        let y = || Expr::load(1, vec![]);
        let neg = |e| Expr::unary(UnOp::Neg, e);
        let abs = |e| Expr::unary(UnOp::Abs, e);
        let mut all =
            vec![neg(neg(x())), abs(neg(x())), abs(abs(x())), x() + neg(y()), x() - neg(y())];
        for op in [Add, Sub, Mul, Div, Rem, FloorDiv, FloorMod, Pow, Min, Max] {
            all.push(Expr::binary(op, x(), x()));
            all.push(Expr::binary(op, Expr::binary(op, x(), y()), y()));
            for value in SPECIAL.into_iter().chain([2.0, -0.5, -3.0, 1.0 / 3.0]) {
                let c = || Expr::float(dtype, value);
                all.push(Expr::binary(op, x(), c()));
                all.push(Expr::binary(op, c(), x()));
                all.push(Expr::binary(op, Expr::binary(op, x(), c()), c()));
            }
        }
        all
    }

    #[test]
    fn rewritten_floats_are_the_same_at_special_values() {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let mut rewritten = 0;
            for before in expressions(dtype) {
                let after = simplify(&before, &|_| dtype);
                rewritten += usize::from(after != before);
                // Powers may round otherwise; the rest is exact.
                let rounds = format!("{before:?}").contains("Pow");
                for (a, b) in values(&before, dtype).into_iter().zip(values(&after, dtype)) {
                    let text = format!("{before:?}");
                    let chooses = text.contains("Min") || text.contains("Max");
                    let chosen = chooses && a == 0.0 && b == 0.0;
                    let tolerance = if rounds { a.abs() * 2e-2 + 1e-30 } else { 0.0 };
                    let near = a.is_finite() && a != 0.0 && (a - b).abs() <= tolerance;
                    let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                    assert!(same || near || chosen, "{before:?} -> {after:?}: {a} became {b}");
                }
            }
            assert!(rewritten > 40, "{dtype}: {rewritten}");
        }
    }

    #[test]
    fn a_narrowing_cast_stays() {
        let narrow = Expr::Cast(DType::F32, Box::new(Expr::Cast(DType::F16, Box::new(x()))));
        assert_eq!(simplify(&narrow, &|_| DType::F32), narrow);
    }
}
