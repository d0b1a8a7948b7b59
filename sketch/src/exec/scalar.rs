//! One operation on one value, as the expression language defines it.
//!
//! Integers are computed as `i128` and wrapped, floats as `f64` and rounded to their type.

use ansc_graph::{BinOp, Combiner, Scalar, UnOp};
use ansc_runtime::DType;
use half::bf16;

pub(crate) fn unary(op: UnOp, x: Scalar) -> Scalar {
    let dtype = x.dtype();
    match dtype {
        DType::Bool => Scalar::bool(op == UnOp::Not && x.is_zero()),
        d if d.is_float() => float_unary(op, x),
        _ => from_wide(dtype, integer_unary(op, wide(x))),
    }
}

fn integer_unary(op: UnOp, x: i128) -> i128 {
    match op {
        UnOp::Neg => -x,
        UnOp::Abs => x.abs(),
        UnOp::Sign => x.signum(),
        UnOp::Not => !x,
        _ => 0,
    }
}

fn float_unary(op: UnOp, x: Scalar) -> Scalar {
    let v = x.as_f64();
    let value = match op {
        UnOp::IsNan => return Scalar::bool(v.is_nan()),
        UnOp::IsInf => return Scalar::bool(v.is_infinite()),
        UnOp::Neg => -v,
        UnOp::Abs => v.abs(),
        UnOp::Sign if v == 0.0 || v.is_nan() => v,
        UnOp::Sign => v.signum(),
        UnOp::Not => 0.0,
        UnOp::Exp => v.exp(),
        UnOp::Log => v.ln(),
        UnOp::Sqrt => v.sqrt(),
        UnOp::Tanh => v.tanh(),
        UnOp::Sigmoid if v < 0.0 => v.exp() / (1.0 + v.exp()),
        UnOp::Sigmoid => 1.0 / (1.0 + (-v).exp()),
        UnOp::Erf => erf(v),
        UnOp::Sin => v.sin(),
        UnOp::Cos => v.cos(),
        UnOp::Tan => v.tan(),
        UnOp::Asin => v.asin(),
        UnOp::Acos => v.acos(),
        UnOp::Atan => v.atan(),
        UnOp::Sinh => v.sinh(),
        UnOp::Cosh => v.cosh(),
        UnOp::Asinh => v.asinh(),
        UnOp::Acosh => v.acosh(),
        UnOp::Atanh => v.atanh(),
        UnOp::Floor => v.floor(),
        UnOp::Ceil => v.ceil(),
        UnOp::Round => v.round_ties_even(),
        UnOp::Trunc => v.trunc(),
        UnOp::Tf32 => tf32(v),
    };
    round(x.dtype(), value)
}

/// The nearest number with 11 bits of significand, the larger one of two.
fn tf32(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    // Numbers of `f32` below its smallest normal one have fewer bits.
    let exponent = x.abs().log2().floor().max(-126.0) as i32;
    let last = 2f64.powi(exponent - 10);
    ((x.abs() / last + 0.5).floor() * last).copysign(x)
}

/// The integral of the Gaussian by its Taylor series, or its limit where that has converged to 1.
fn erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 6.0 {
        return if x.is_nan() { x } else { x.signum() };
    }
    let (mut power, mut sum, mut n) = (x, x, 0.0);
    while power.abs() > sum.abs() * 1e-18 {
        n += 1.0;
        power *= x * x / (n + 0.5);
        sum += power;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

pub(crate) fn binary(op: BinOp, a: Scalar, b: Scalar) -> Scalar {
    let dtype = a.dtype();
    match op {
        BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le => compare(op, a, b),
        _ if dtype == DType::Bool => Scalar::bool(bool_binary(op, !a.is_zero(), !b.is_zero())),
        BinOp::PairBf16 => pair_bf16(a, b),
        _ if dtype.is_float() => round(dtype, float_binary(op, a.as_f64(), b.as_f64())),
        BinOp::Shl | BinOp::Shr => shift(op, a, b),
        BinOp::Dot4 => dot4(a, b),
        BinOp::Dot2 => dot2(a, b),
        BinOp::DotBf16 => dot_bf16(a, b),
        BinOp::Mix => mix(a, b),
        _ => from_wide(dtype, integer_binary(op, wide(a), wide(b))),
    }
}

fn compare(op: BinOp, a: Scalar, b: Scalar) -> Scalar {
    let order = match a.dtype().is_float() {
        true => a.as_f64().partial_cmp(&b.as_f64()),
        false => Some(wide(a).cmp(&wide(b))),
    };
    Scalar::bool(match op {
        BinOp::Eq => order.is_some_and(|o| o.is_eq()),
        BinOp::Ne => !order.is_some_and(|o| o.is_eq()),
        BinOp::Lt => order.is_some_and(|o| o.is_lt()),
        _ => order.is_some_and(|o| o.is_le()),
    })
}

fn bool_binary(op: BinOp, a: bool, b: bool) -> bool {
    match op {
        BinOp::And | BinOp::Min | BinOp::Mul => a && b,
        BinOp::Or | BinOp::Max | BinOp::Add => a || b,
        BinOp::Xor => a != b,
        _ => false,
    }
}

fn float_binary(op: BinOp, a: f64, b: f64) -> f64 {
    let nan = a.is_nan() || b.is_nan();
    match op {
        BinOp::Add => a + b,
        BinOp::Sub => a - b,
        BinOp::Mul => a * b,
        BinOp::Div => a / b,
        BinOp::Rem => a % b,
        BinOp::FloorDiv => (a / b).floor(),
        BinOp::FloorMod => {
            let r = a % b;
            if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
        }
        BinOp::Pow => a.powf(b),
        BinOp::Min | BinOp::Max if nan => f64::NAN,
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        _ => 0.0,
    }
}

fn integer_binary(op: BinOp, a: i128, b: i128) -> i128 {
    match op {
        BinOp::Add => a + b,
        BinOp::Sub => a - b,
        BinOp::Mul => a.wrapping_mul(b),
        BinOp::Div | BinOp::Rem | BinOp::FloorDiv | BinOp::FloorMod if b == 0 => 0,
        BinOp::Div => divided(a, b).0,
        BinOp::Rem => divided(a, b).1,
        BinOp::FloorDiv => divided(a - floor_mod(a, b), b).0,
        BinOp::FloorMod => floor_mod(a, b),
        BinOp::Pow => power(a, b),
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        _ => 0,
    }
}

fn floor_mod(a: i128, b: i128) -> i128 {
    let r = divided(a, b).1;
    if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
}

/// Quotient and remainder; numbers of 64 bits are divided ten times as fast.
fn divided(a: i128, b: i128) -> (i128, i128) {
    match (i64::try_from(a), i64::try_from(b)) {
        (Ok(a), Ok(b)) if b != -1 => ((a / b).into(), (a % b).into()),
        _ => (a / b, a % b),
    }
}

/// Modulo 2^64, which any integer type wraps further.
fn power(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut base, mut exponent, mut result) = (base as i64, exponent, 1i64);
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent /= 2;
    }
    i128::from(result)
}

/// The bytes of `a` have no sign, those of `b` have one.
fn dot4(a: Scalar, b: Scalar) -> Scalar {
    let byte = |x: i128, j: u32| (x >> (8 * j)) & 255;
    let signed = |x: i128| if x < 128 { x } else { x - 256 };
    let (x, y) = (wide(a), wide(b));
    from_wide(a.dtype(), (0..4).map(|j| byte(x, j) * signed(byte(y, j))).sum())
}

/// Numbers of 32 bits, whatever is computed between.
fn mix(a: Scalar, b: Scalar) -> Scalar {
    const ALL: i128 = 1 << 32;
    let fold = |x: i128, by: u32| x ^ (x / 2_i128.pow(by));
    let x = (wide(a) + wide(b) * 0x9e37_79b1) % ALL;
    let x = fold(x, 16) * 0x7feb_352d % ALL;
    let x = fold(x, 15) * 0x846c_a68b % ALL;
    from_wide(a.dtype(), fold(x, 16))
}

/// Both halves have signs.
fn pair_bf16(a: Scalar, b: Scalar) -> Scalar {
    let bits = |x: Scalar| i128::from(bf16::from_f64(x.as_f64()).to_bits());
    from_wide(DType::I32, bits(a) | bits(b) << 16)
}

fn dot_bf16(a: Scalar, b: Scalar) -> Scalar {
    let half = |x: Scalar, j: u32| bf16::from_bits((wide(x) >> (16 * j)) as u16).to_f64();
    Scalar::from_f64(DType::F32, half(a, 0) * half(b, 0) + half(a, 1) * half(b, 1))
}

fn dot2(a: Scalar, b: Scalar) -> Scalar {
    let half = |x: i128, j: u32| {
        let bits = (x >> (16 * j)) & 0xffff;
        if bits < 0x8000 { bits } else { bits - 0x1_0000 }
    };
    let (x, y) = (wide(a), wide(b));
    from_wide(a.dtype(), (0..2).map(|j| half(x, j) * half(y, j)).sum())
}

/// Amounts outside the width of the type move every bit out.
fn shift(op: BinOp, a: Scalar, b: Scalar) -> Scalar {
    let width = 8 * a.dtype().size() as i128;
    let (value, amount) = (wide(a), wide(b));
    let inside = (0..width).contains(&amount);
    let result = match op {
        BinOp::Shl if inside => value << amount,
        BinOp::Shl => 0,
        _ => value >> if inside { amount } else { width },
    };
    from_wide(a.dtype(), result)
}

pub(crate) fn cast(to: DType, x: Scalar) -> Scalar {
    let from = x.dtype();
    if to == DType::Bool {
        return Scalar::bool(!x.is_zero());
    }
    match (from.is_float(), to.is_float()) {
        (_, true) => round(to, if from == DType::U64 { wide(x) as f64 } else { x.as_f64() }),
        (false, false) => from_wide(to, wide(x)),
        (true, false) => {
            let (low, high) = (wide(Scalar::lowest(to)), wide(Scalar::highest(to)));
            from_wide(to, (x.as_f64() as i128).clamp(low, high))
        }
    }
}

/// `combine(a, b)` for the combiners that reduce single values.
pub(crate) fn combine(combiner: Combiner, a: Scalar, b: Scalar) -> Scalar {
    let op = match combiner {
        Combiner::Sum => BinOp::Add,
        Combiner::Prod => BinOp::Mul,
        Combiner::Max | Combiner::ArgMax { .. } => BinOp::Max,
        Combiner::Min | Combiner::ArgMin { .. } => BinOp::Min,
    };
    binary(op, a, b)
}

/// Whether an arg-reduction that holds `best` takes `value`, which comes later.
pub(crate) fn replaces(combiner: Combiner, value: Scalar, best: Scalar) -> bool {
    let holds = |op, a, b| !compare(op, a, b).is_zero();
    let is_nan = |s: Scalar| s.dtype().is_float() && s.as_f64().is_nan();
    let last =
        matches!(combiner, Combiner::ArgMax { last: true } | Combiner::ArgMin { last: true });
    if is_nan(value) || is_nan(best) {
        return is_nan(value) && (last || !is_nan(best));
    }
    let op = if last { BinOp::Le } else { BinOp::Lt };
    match combiner {
        Combiner::ArgMin { .. } => holds(op, value, best),
        _ => holds(op, best, value),
    }
}

/// Halves are computed in `f32` and rounded.
fn round(dtype: DType, value: f64) -> Scalar {
    match dtype {
        DType::F16 | DType::BF16 => Scalar::from_f64(dtype, f64::from(value as f32)),
        _ => Scalar::from_f64(dtype, value),
    }
}

fn wide(x: Scalar) -> i128 {
    match x.dtype() {
        DType::U64 => i128::from(x.as_i64() as u64),
        _ => i128::from(x.as_i64()),
    }
}

fn from_wide(dtype: DType, value: i128) -> Scalar {
    Scalar::from_i64(dtype, value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_and_divide_as_specified() {
        let i8s = |v| Scalar::from_i64(DType::I8, v);
        let cases = [
            (BinOp::Add, 127, 1, -128),
            (BinOp::Div, -7, 2, -3),
            (BinOp::Rem, -7, 2, -1),
            (BinOp::FloorDiv, -7, 2, -4),
            (BinOp::FloorMod, -7, 2, 1),
            (BinOp::FloorMod, 7, -2, -1),
            (BinOp::Div, 5, 0, 0),
            (BinOp::Div, -128, -1, -128),
            (BinOp::Pow, 3, 5, -13),
            (BinOp::Shl, 1, 8, 0),
            (BinOp::Shr, -5, 100, -1),
        ];
        for (op, a, b, expected) in cases {
            assert_eq!(binary(op, i8s(a), i8s(b)), i8s(expected), "{op:?} {a} {b}");
        }
        let big = Scalar::highest(DType::U64);
        assert_eq!(binary(BinOp::Lt, Scalar::one(DType::U64), big), Scalar::bool(true));
    }

    #[test]
    fn casts_saturate_from_floats_and_wrap_between_integers() {
        let f = |v| Scalar::from_f64(DType::F32, v);
        assert_eq!(cast(DType::U8, f(300.0)).as_i64(), 255);
        assert_eq!(cast(DType::I8, f(-1e9)).as_i64(), -128);
        assert_eq!(cast(DType::I32, f(f64::NAN)).as_i64(), 0);
        assert_eq!(cast(DType::U8, Scalar::from_i64(DType::I32, 257)).as_i64(), 1);
    }

    #[test]
    fn erf_at_known_points() {
        for (x, y) in [(0.5, 0.5204998778130465), (2.0, 0.9953222650189527), (-9.0, -1.0)] {
            assert!((erf(x) - y).abs() < 1e-15);
        }
    }

    #[test]
    fn nan_wins_arg_reductions() {
        let f = |v| Scalar::from_f64(DType::F32, v);
        let first = Combiner::ArgMax { last: false };
        let last = Combiner::ArgMin { last: true };
        assert!(replaces(first, f(f64::NAN), f(1.0)));
        assert!(!replaces(first, f(2.0), f(f64::NAN)));
        assert!(!replaces(first, f(1.0), f(1.0)));
        assert!(replaces(last, f(1.0), f(1.0)));
        assert!(!replaces(last, f(2.0), f(1.0)));
    }
}
