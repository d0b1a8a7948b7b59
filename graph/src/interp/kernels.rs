//! The effect of each operation on one value: the semantics of [`crate::expr`], type by type.
//!
//! An operation that a type does not have (`exp` of an integer) gives zero; the evaluator and the
//! verifier reject such expressions before they get here (see [`accepts_unary`]).

use ansc_runtime::DType;

use super::lanes::{Lane, Lanes, map, zip};
use super::math;
use crate::expr::{BinOp, UnOp};

/// Whether `op` is defined for operands of `dtype`.
pub(crate) fn accepts_unary(op: UnOp, dtype: DType) -> bool {
    match op {
        UnOp::Neg | UnOp::Abs | UnOp::Sign => dtype != DType::Bool,
        UnOp::Not => !dtype.is_float(),
        UnOp::Tf32 => dtype == DType::F32,
        _ => dtype.is_float(),
    }
}

/// Whether `op` is defined for operands of `dtype`.
pub(crate) fn accepts_binary(op: BinOp, dtype: DType) -> bool {
    use BinOp::*;
    match op {
        Add | Sub | Mul | Div | Rem | FloorDiv | FloorMod | Pow => dtype != DType::Bool,
        And | Or | Xor => !dtype.is_float(),
        Shl | Shr => dtype.is_int(),
        Min | Max | Eq | Ne | Lt | Le => true,
        Dot4 | Dot2 | DotBf16 => dtype == DType::I32,
        PairBf16 => dtype == DType::F32,
        Mix => dtype == DType::U32,
    }
}

macro_rules! common {
    ($t:ty, $variant:ident) => {
        #[inline]
        fn of(lanes: &Lanes) -> &[$t] {
            match lanes {
                Lanes::$variant(values) => values,
                _ => unreachable!("registers hold the type that the code was built for"),
            }
        }

        #[inline]
        fn fill(lanes: &mut Lanes) -> &mut Vec<$t> {
            if !matches!(lanes, Lanes::$variant(_)) {
                *lanes = Lanes::$variant(Vec::new());
            }
            match lanes {
                Lanes::$variant(values) => {
                    values.clear();
                    values
                }
                _ => unreachable!("the variant was just set"),
            }
        }
    };
}

impl Lane for bool {
    common!(bool, Bool);

    fn unary(op: UnOp, x: &[bool], out: &mut Vec<bool>) {
        match op {
            UnOp::Not => map(x, out, |v: bool| !v),
            _ => map(x, out, |_| false),
        }
    }

    fn binary(op: BinOp, a: &[bool], b: &[bool], out: &mut Vec<bool>) {
        match op {
            BinOp::And | BinOp::Min => zip(a, b, out, |x, y| x & y),
            BinOp::Or | BinOp::Max => zip(a, b, out, |x, y| x | y),
            BinOp::Xor => zip(a, b, out, |x, y| x ^ y),
            _ => zip(a, b, out, |_, _| false),
        }
    }

    #[inline]
    fn add(self, other: bool) -> bool {
        self | other
    }

    #[inline]
    fn mul(self, other: bool) -> bool {
        self & other
    }

    #[inline]
    fn min_of(self, other: bool) -> bool {
        self & other
    }

    #[inline]
    fn max_of(self, other: bool) -> bool {
        self | other
    }

    #[inline]
    fn is_nan(self) -> bool {
        false
    }

    #[inline]
    fn is_inf(self) -> bool {
        false
    }

    #[inline]
    fn to_i64(self) -> i64 {
        i64::from(self)
    }

    #[inline]
    fn from_i64(value: i64) -> bool {
        value != 0
    }

    #[inline]
    fn from_u64(value: u64) -> bool {
        value != 0
    }

    #[inline]
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self))
    }

    #[inline]
    fn from_f64(value: f64) -> bool {
        value != 0.0
    }
}

/// Where signed and unsigned integers differ.
trait Integer: Sized {
    fn abs_of(self) -> Self;
    fn sign_of(self) -> Self;
    fn floor_div(self, b: Self) -> Self;
    fn floor_mod(self, b: Self) -> Self;
    /// A negative exponent gives the truncated reciprocal.
    fn power(self, exponent: Self) -> Self;
    /// Shifts by the width or more, which negative amounts count as, move every bit out.
    fn shift_left(self, amount: Self) -> Self;
    fn shift_right(self, amount: Self) -> Self;
}

/// Wrapping power by squaring.
macro_rules! wrapping_power {
    ($base:expr, $exponent:expr) => {{
        let (mut base, mut exponent, mut result) = ($base, $exponent, 1);
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = base.wrapping_mul(result);
            }
            base = base.wrapping_mul(base);
            exponent >>= 1;
        }
        result
    }};
}

macro_rules! signed {
    ($($t:ty),*) => {$(
        impl Integer for $t {
            #[inline]
            fn abs_of(self) -> $t {
                self.wrapping_abs()
            }

            #[inline]
            fn sign_of(self) -> $t {
                self.signum()
            }

            #[inline]
            fn floor_div(self, b: $t) -> $t {
                if b == 0 {
                    return 0;
                }
                let (q, r) = (self.wrapping_div(b), self.wrapping_rem(b));
                if r != 0 && (r < 0) != (b < 0) { q - 1 } else { q }
            }

            #[inline]
            fn floor_mod(self, b: $t) -> $t {
                if b == 0 {
                    return 0;
                }
                let r = self.wrapping_rem(b);
                if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
            }

            #[inline]
            fn power(self, exponent: $t) -> $t {
                match self {
                    1 => 1,
                    -1 => if exponent & 1 == 0 { 1 } else { -1 },
                    _ if exponent < 0 => 0,
                    base => wrapping_power!(base, exponent),
                }
            }

            #[inline]
            fn shift_left(self, amount: $t) -> $t {
                if (0..<$t>::BITS as i64).contains(&(amount as i64)) { self << amount } else { 0 }
            }

            #[inline]
            fn shift_right(self, amount: $t) -> $t {
                let all = <$t>::BITS as i64 - 1;
                self >> if (0..=all).contains(&(amount as i64)) { amount as i64 } else { all }
            }
        }
    )*};
}

macro_rules! unsigned {
    ($($t:ty),*) => {$(
        impl Integer for $t {
            #[inline]
            fn abs_of(self) -> $t {
                self
            }

            #[inline]
            fn sign_of(self) -> $t {
                self.min(1)
            }

            #[inline]
            fn floor_div(self, b: $t) -> $t {
                self.checked_div(b).unwrap_or(0)
            }

            #[inline]
            fn floor_mod(self, b: $t) -> $t {
                self.checked_rem(b).unwrap_or(0)
            }

            #[inline]
            fn power(self, exponent: $t) -> $t {
                wrapping_power!(self, exponent)
            }

            #[inline]
            fn shift_left(self, amount: $t) -> $t {
                if (amount as u64) < u64::from(<$t>::BITS) { self << amount } else { 0 }
            }

            #[inline]
            fn shift_right(self, amount: $t) -> $t {
                if (amount as u64) < u64::from(<$t>::BITS) { self >> amount } else { 0 }
            }
        }
    )*};
}

signed!(i8, i16, i32, i64);
unsigned!(u8, u16, u32, u64);

macro_rules! integer_lane {
    ($($t:ty => $variant:ident),*) => {$(
        impl Lane for $t {
            common!($t, $variant);

            fn unary(op: UnOp, x: &[$t], out: &mut Vec<$t>) {
                match op {
                    UnOp::Neg => map(x, out, <$t>::wrapping_neg),
                    UnOp::Abs => map(x, out, <$t>::abs_of),
                    UnOp::Sign => map(x, out, <$t>::sign_of),
                    UnOp::Not => map(x, out, |v: $t| !v),
                    _ => map(x, out, |_| 0),
                }
            }

            fn binary(op: BinOp, a: &[$t], b: &[$t], out: &mut Vec<$t>) {
                match op {
                    BinOp::Add => zip(a, b, out, <$t>::wrapping_add),
                    BinOp::Sub => zip(a, b, out, <$t>::wrapping_sub),
                    BinOp::Mul => zip(a, b, out, <$t>::wrapping_mul),
                    BinOp::Div => zip(a, b, out, |x: $t, y| if y == 0 { 0 } else { x.wrapping_div(y) }),
                    BinOp::Rem => zip(a, b, out, |x: $t, y| if y == 0 { 0 } else { x.wrapping_rem(y) }),
                    BinOp::FloorDiv => zip(a, b, out, <$t>::floor_div),
                    BinOp::FloorMod => zip(a, b, out, <$t>::floor_mod),
                    BinOp::Pow => zip(a, b, out, <$t>::power),
                    BinOp::Min => zip(a, b, out, <$t>::min_of),
                    BinOp::Max => zip(a, b, out, <$t>::max_of),
                    BinOp::And => zip(a, b, out, |x: $t, y: $t| x & y),
                    BinOp::Or => zip(a, b, out, |x: $t, y: $t| x | y),
                    BinOp::Xor => zip(a, b, out, |x: $t, y: $t| x ^ y),
                    BinOp::Shl => zip(a, b, out, <$t>::shift_left),
                    BinOp::Shr => zip(a, b, out, <$t>::shift_right),
                    BinOp::Dot4 => zip(a, b, out, |x: $t, y: $t| math::dot4(x as i32, y as i32) as $t),
                    BinOp::Dot2 => zip(a, b, out, |x: $t, y: $t| math::dot2(x as i32, y as i32) as $t),
                    BinOp::Mix => zip(a, b, out, |x: $t, y: $t| math::mix(x as u32, y as u32) as $t),
                    // These have results of other types; see `lanes::binary`.
                    BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::PairBf16 | BinOp::DotBf16 => {
                        zip(a, b, out, |_, _| 0)
                    }
                }
            }

            #[inline]
            fn add(self, other: $t) -> $t {
                self.wrapping_add(other)
            }

            #[inline]
            fn mul(self, other: $t) -> $t {
                self.wrapping_mul(other)
            }

            #[inline]
            fn min_of(self, other: $t) -> $t {
                self.min(other)
            }

            #[inline]
            fn max_of(self, other: $t) -> $t {
                self.max(other)
            }

            #[inline]
            fn is_nan(self) -> bool {
                false
            }

            #[inline]
            fn is_inf(self) -> bool {
                false
            }

            #[inline]
            fn to_i64(self) -> i64 {
                self as i64
            }

            #[inline]
            fn from_i64(value: i64) -> $t {
                value as $t
            }

            #[inline]
            fn from_u64(value: u64) -> $t {
                value as $t
            }

            #[inline]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline]
            fn from_f64(value: f64) -> $t {
                value as $t
            }
        }
    )*};
}

integer_lane!(u8 => U8, u16 => U16, u32 => U32, u64 => U64, i8 => I8, i16 => I16, i32 => I32, i64 => I64);

macro_rules! float_lane {
    ($($t:ident => $variant:ident),*) => {$(
        impl Lane for $t {
            common!($t, $variant);

            fn unary(op: UnOp, x: &[$t], out: &mut Vec<$t>) {
                match op {
                    UnOp::Neg => map(x, out, |v: $t| -v),
                    UnOp::Abs => map(x, out, $t::abs),
                    UnOp::Sign => map(x, out, math::$t::sign),
                    UnOp::Exp => map(x, out, $t::exp),
                    UnOp::Log => map(x, out, $t::ln),
                    UnOp::Sqrt => map(x, out, $t::sqrt),
                    UnOp::Tanh => map(x, out, $t::tanh),
                    UnOp::Sigmoid => map(x, out, math::$t::sigmoid),
                    UnOp::Erf => map(x, out, |v: $t| math::erf(f64::from(v)) as $t),
                    UnOp::Sin => map(x, out, $t::sin),
                    UnOp::Cos => map(x, out, $t::cos),
                    UnOp::Tan => map(x, out, $t::tan),
                    UnOp::Asin => map(x, out, $t::asin),
                    UnOp::Acos => map(x, out, $t::acos),
                    UnOp::Atan => map(x, out, $t::atan),
                    UnOp::Sinh => map(x, out, $t::sinh),
                    UnOp::Cosh => map(x, out, $t::cosh),
                    UnOp::Asinh => map(x, out, $t::asinh),
                    UnOp::Acosh => map(x, out, $t::acosh),
                    UnOp::Atanh => map(x, out, $t::atanh),
                    UnOp::Floor => map(x, out, $t::floor),
                    UnOp::Ceil => map(x, out, $t::ceil),
                    UnOp::Round => map(x, out, $t::round_ties_even),
                    UnOp::Trunc => map(x, out, $t::trunc),
                    UnOp::Tf32 => map(x, out, |v: $t| $t::from(math::tf32(v as f32))),
                    UnOp::Not | UnOp::IsNan | UnOp::IsInf => map(x, out, |_| 0.0),
                }
            }

            fn binary(op: BinOp, a: &[$t], b: &[$t], out: &mut Vec<$t>) {
                match op {
                    BinOp::Add => zip(a, b, out, |x: $t, y: $t| x + y),
                    BinOp::Sub => zip(a, b, out, |x: $t, y: $t| x - y),
                    BinOp::Mul => zip(a, b, out, |x: $t, y: $t| x * y),
                    BinOp::Div => zip(a, b, out, |x: $t, y: $t| x / y),
                    BinOp::Rem => zip(a, b, out, |x: $t, y: $t| x % y),
                    BinOp::FloorDiv => zip(a, b, out, |x: $t, y: $t| (x / y).floor()),
                    BinOp::FloorMod => zip(a, b, out, math::$t::floor_mod),
                    BinOp::Pow => zip(a, b, out, $t::powf),
                    BinOp::Min => zip(a, b, out, <$t>::min_of),
                    BinOp::Max => zip(a, b, out, <$t>::max_of),
                    _ => zip(a, b, out, |_, _| 0.0),
                }
            }

            #[inline]
            fn add(self, other: $t) -> $t {
                self + other
            }

            #[inline]
            fn mul(self, other: $t) -> $t {
                self * other
            }

            #[inline]
            fn min_of(self, other: $t) -> $t {
                if self < other || self.is_nan() { self } else { other }
            }

            #[inline]
            fn max_of(self, other: $t) -> $t {
                if self > other || self.is_nan() { self } else { other }
            }

            #[inline]
            fn is_nan(self) -> bool {
                $t::is_nan(self)
            }

            #[inline]
            fn is_inf(self) -> bool {
                $t::is_infinite(self)
            }

            #[inline]
            fn to_i64(self) -> i64 {
                self as i64
            }

            #[inline]
            fn from_i64(value: i64) -> $t {
                value as $t
            }

            #[inline]
            fn from_u64(value: u64) -> $t {
                value as $t
            }

            #[inline]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline]
            fn from_f64(value: f64) -> $t {
                value as $t
            }
        }
    )*};
}

float_lane!(f32 => F32, f64 => F64);
