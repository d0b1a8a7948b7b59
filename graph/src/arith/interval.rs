//! Inclusive intervals of integers, and how operations carry them on.

use ansc_runtime::DType;

use crate::expr::{BinOp, UnOp};
use crate::scalar::Scalar;

/// All integers from `low` to `high`; never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// The smallest value.
    pub low: i128,
    /// The largest value.
    pub high: i128,
}

impl Interval {
    /// From `low` to `high`, which must not be less.
    pub fn new(low: i128, high: i128) -> Interval {
        debug_assert!(low <= high, "{low}..={high} is empty");
        Interval { low, high }
    }

    /// One value alone.
    pub fn point(value: i128) -> Interval {
        Interval { low: value, high: value }
    }

    /// All values of an integer type or of bool.
    pub fn of_type(dtype: DType) -> Option<Interval> {
        let bits = 8 * dtype.size() as u32;
        match dtype {
            DType::Bool => Some(Interval::new(0, 1)),
            d if d.is_signed_int() => {
                Some(Interval::new(-(1 << (bits - 1)), (1 << (bits - 1)) - 1))
            }
            d if d.is_unsigned_int() => Some(Interval::new(0, (1 << bits) - 1)),
            _ => None,
        }
    }

    /// The value of an integer or bool; `None` for floats.
    pub fn of_scalar(value: Scalar) -> Option<Interval> {
        match value.dtype() {
            d if d.is_float() => None,
            DType::U64 => Some(Interval::point(i128::from(value.as_i64() as u64))),
            _ => Some(Interval::point(i128::from(value.as_i64()))),
        }
    }

    /// Whether it has one value alone.
    pub fn is_point(self) -> bool {
        self.low == self.high
    }

    /// Whether the value is between the bounds, or is one of them.
    pub fn contains(self, value: i128) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether all values are in `other` too.
    pub fn within(self, other: Interval) -> bool {
        other.low <= self.low && self.high <= other.high
    }

    /// The smallest interval that has the values of both.
    pub fn union(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// The values that both contain; `self` if there are none, which only dead code can ask for.
    pub fn meet(self, other: Interval) -> Interval {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        if low <= high { Interval { low, high } } else { self }
    }

    /// All sums of a value of each; `None` if one overflows.
    pub fn plus(self, other: Interval) -> Option<Interval> {
        Some(Interval {
            low: self.low.checked_add(other.low)?,
            high: self.high.checked_add(other.high)?,
        })
    }

    /// All values times a constant; `None` if one overflows.
    pub fn times(self, by: i128) -> Option<Interval> {
        let (a, b) = (self.low.checked_mul(by)?, self.high.checked_mul(by)?);
        Some(Interval { low: a.min(b), high: a.max(b) })
    }

    /// Both bounds, if they are `i64`.
    pub fn to_i64(self) -> Option<(i64, i64)> {
        Some((i64::try_from(self.low).ok()?, i64::try_from(self.high).ok()?))
    }

    /// The values of an operation that wraps to `dtype`.
    fn wrapped(result: Option<Interval>, dtype: DType) -> Option<Interval> {
        let all = Interval::of_type(dtype)?;
        Some(result.filter(|r| r.within(all)).unwrap_or(all))
    }

    fn magnitude(self) -> i128 {
        self.low.abs().max(self.high.abs())
    }
}

/// The values of `op` on operands of an integer type or bool.
pub(super) fn unary(op: UnOp, dtype: DType, x: Interval) -> Option<Interval> {
    let result = match op {
        UnOp::Neg => x.times(-1),
        UnOp::Abs if x.low >= 0 => Some(x),
        UnOp::Abs => Some(Interval::new(if x.high < 0 { -x.high } else { 0 }, x.magnitude())),
        UnOp::Sign => Some(Interval::new(x.low.signum(), x.high.signum())),
        UnOp::Not if dtype.is_signed_int() => Some(Interval::new(-x.high - 1, -x.low - 1)),
        UnOp::Not => {
            let last = Interval::of_type(dtype)?.high;
            Some(Interval::new(last - x.high, last - x.low))
        }
        _ => None,
    };
    Interval::wrapped(result, dtype)
}

/// The values of `op`, which is no comparison, on operands of an integer type or bool.
pub(super) fn binary(op: BinOp, dtype: DType, a: Interval, b: Interval) -> Option<Interval> {
    let result = match op {
        BinOp::Add => a.plus(b),
        BinOp::Sub => b.times(-1).and_then(|b| a.plus(b)),
        BinOp::Mul => corners(a, b, i128::checked_mul),
        BinOp::Min => Some(Interval::new(a.low.min(b.low), a.high.min(b.high))),
        BinOp::Max => Some(Interval::new(a.low.max(b.low), a.high.max(b.high))),
        BinOp::Div | BinOp::FloorDiv if b.contains(0) => {
            let most = a.magnitude();
            Some(Interval::new(-most, most))
        }
        BinOp::Div => corners(a, b, i128::checked_div),
        BinOp::FloorDiv => corners(a, b, |x, y| Some(floor_div(x, y))),
        BinOp::Rem => Some(remainder(a, b)),
        BinOp::FloorMod => Some(modulo(a, b)),
        BinOp::And | BinOp::Or | BinOp::Xor => bitwise(op, dtype, a, b),
        BinOp::Shl if b.is_point() && (0..64).contains(&b.low) => a.times(1 << b.low),
        BinOp::Shr if b.is_point() && (0..64).contains(&b.low) => {
            Some(Interval::new(a.low >> b.low, a.high >> b.low))
        }
        _ => None,
    };
    Interval::wrapped(result, dtype)
}

pub(super) fn floor_div(a: i128, b: i128) -> i128 {
    let q = a / b;
    if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

/// The extremes of an operation that is monotonous in each operand.
fn corners(a: Interval, b: Interval, f: impl Fn(i128, i128) -> Option<i128>) -> Option<Interval> {
    let all = [f(a.low, b.low)?, f(a.low, b.high)?, f(a.high, b.low)?, f(a.high, b.high)?];
    let low = all.iter().copied().reduce(i128::min)?;
    let high = all.iter().copied().reduce(i128::max)?;
    Some(Interval { low, high })
}

/// C's remainder: the sign of the dividend, and smaller than the divisor.
fn remainder(a: Interval, b: Interval) -> Interval {
    if b.is_point() && b.low != 0 && a.magnitude() < b.low.abs() {
        return a;
    }
    let most = (b.magnitude() - 1).clamp(0, a.magnitude());
    Interval::new(if a.low < 0 { -most } else { 0 }, if a.high > 0 { most } else { 0 })
}

/// The modulus with the sign of the divisor; zero for a zero divisor.
fn modulo(a: Interval, b: Interval) -> Interval {
    if b.is_point() && b.low > 0 && floor_div(a.low, b.low) == floor_div(a.high, b.low) {
        let start = floor_div(a.low, b.low) * b.low;
        return Interval::new(a.low - start, a.high - start);
    }
    let mut high = (b.high - 1).max(0);
    if a.low >= 0 && b.low > 0 {
        high = high.min(a.high);
    }
    Interval::new((b.low + 1).min(0), high)
}

fn bitwise(op: BinOp, dtype: DType, a: Interval, b: Interval) -> Option<Interval> {
    if a.low < 0 || b.low < 0 {
        return None;
    }
    if dtype == DType::Bool {
        let (low, high) = match op {
            BinOp::And => (a.low & b.low, a.high & b.high),
            BinOp::Or => (a.low | b.low, a.high | b.high),
            _ if a.is_point() && b.is_point() => (a.low ^ b.low, a.low ^ b.low),
            _ => (0, 1),
        };
        return Some(Interval::new(low, high));
    }
    match op {
        BinOp::And => Some(Interval::new(0, a.high.min(b.high))),
        _ => None,
    }
}
