//! Vectors of values of one element type, the registers of the evaluator.
//!
//! A vector holds one value per lane, or a single one that all lanes share. `f16` and `bf16` are
//! held as `f32`: every operation on them is computed in `f32` and rounded.

use ansc_runtime::{DType, Element};
use half::{bf16, f16};

use super::math;
use crate::expr::{BinOp, UnOp};

/// Values of one register.
#[derive(Clone, Debug)]
pub(super) enum Lanes {
    Bool(Vec<bool>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes::Bool(Vec::new())
    }
}

/// A Rust type that values are computed in. What is done to each lane is inlined, whatever else a
/// build optimises across the units of a crate.
pub(super) trait Lane: Copy + Default + PartialOrd + Send + Sync + 'static {
    fn of(lanes: &Lanes) -> &[Self];
    /// The vector to fill, emptied; `lanes` changes its type where it has to.
    fn fill(lanes: &mut Lanes) -> &mut Vec<Self>;
    fn unary(op: UnOp, x: &[Self], out: &mut Vec<Self>);
    fn binary(op: BinOp, a: &[Self], b: &[Self], out: &mut Vec<Self>);
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn min_of(self, other: Self) -> Self;
    fn max_of(self, other: Self) -> Self;
    fn is_nan(self) -> bool;
    fn is_inf(self) -> bool;
    /// Integers and bool only; `u64` wraps.
    fn to_i64(self) -> i64;
    /// Integers wrap, floats round.
    fn from_i64(value: i64) -> Self;
    fn from_u64(value: u64) -> Self;
    fn to_f64(self) -> f64;
    /// Integers truncate and saturate.
    fn from_f64(value: f64) -> Self;
}

/// A type that tensors store, and the type its values are computed in.
pub(super) trait Stored: Element {
    type Lane: Lane;

    fn to_lane(self) -> Self::Lane;
    fn from_lane(value: Self::Lane) -> Self;

    #[inline]
    fn from_f64(value: f64) -> Self::Lane {
        Self::Lane::from_f64(value)
    }

    #[inline]
    fn from_i64(value: i64) -> Self::Lane {
        Self::Lane::from_i64(value)
    }

    #[inline]
    fn from_u64(value: u64) -> Self::Lane {
        Self::Lane::from_u64(value)
    }

    /// The nearest value of the stored type.
    #[inline]
    fn round(value: Self::Lane) -> Self::Lane {
        Self::from_lane(value).to_lane()
    }
}

macro_rules! stored_as_is {
    ($($t:ty),*) => {$(
        impl Stored for $t {
            type Lane = $t;

            #[inline]
            fn to_lane(self) -> $t {
                self
            }

            #[inline]
            fn from_lane(value: $t) -> $t {
                value
            }
        }
    )*};
}

stored_as_is!(bool, u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

macro_rules! stored_half {
    ($($t:ty),*) => {$(
        impl Stored for $t {
            type Lane = f32;

            #[inline]
            fn to_lane(self) -> f32 {
                self.to_f32()
            }

            #[inline]
            fn from_lane(value: f32) -> $t {
                <$t>::from_f32(value)
            }

            #[inline]
            fn from_f64(value: f64) -> f32 {
                <$t>::from_f64(value).to_f32()
            }

            #[inline]
            fn from_i64(value: i64) -> f32 {
                <$t>::from_f64(value as f64).to_f32()
            }

            #[inline]
            fn from_u64(value: u64) -> f32 {
                <$t>::from_f64(value as f64).to_f32()
            }
        }
    )*};
}

stored_half!(f16, bf16);

/// Evaluates `$body` with `$s` the stored type of `$dtype`.
macro_rules! with_stored {
    ($dtype:expr, $s:ident => $body:expr) => {
        match $dtype {
            ansc_runtime::DType::Bool => {
                type $s = bool;
                $body
            }
            ansc_runtime::DType::U8 => {
                type $s = u8;
                $body
            }
            ansc_runtime::DType::U16 => {
                type $s = u16;
                $body
            }
            ansc_runtime::DType::U32 => {
                type $s = u32;
                $body
            }
            ansc_runtime::DType::U64 => {
                type $s = u64;
                $body
            }
            ansc_runtime::DType::I8 => {
                type $s = i8;
                $body
            }
            ansc_runtime::DType::I16 => {
                type $s = i16;
                $body
            }
            ansc_runtime::DType::I32 => {
                type $s = i32;
                $body
            }
            ansc_runtime::DType::I64 => {
                type $s = i64;
                $body
            }
            ansc_runtime::DType::F16 => {
                type $s = half::f16;
                $body
            }
            ansc_runtime::DType::BF16 => {
                type $s = half::bf16;
                $body
            }
            ansc_runtime::DType::F32 => {
                type $s = f32;
                $body
            }
            ansc_runtime::DType::F64 => {
                type $s = f64;
                $body
            }
        }
    };
}
pub(super) use with_stored;

/// `f` of each pair of lanes, where either side may be a single shared value.
pub(super) fn zip<A: Copy, B: Copy, R>(a: &[A], b: &[B], out: &mut Vec<R>, f: impl Fn(A, B) -> R) {
    match (a, b) {
        (&[x], b) => out.extend(b.iter().map(|&y| f(x, y))),
        (a, &[y]) => out.extend(a.iter().map(|&x| f(x, y))),
        (a, b) => out.extend(a.iter().zip(b).map(|(&x, &y)| f(x, y))),
    }
}

pub(super) fn map<A: Copy, R>(x: &[A], out: &mut Vec<R>, f: impl Fn(A) -> R) {
    out.extend(x.iter().map(|&x| f(x)));
}

/// The value of a lane, or the one that all lanes share.
pub(super) fn lane_of<T: Copy>(values: &[T], lane: usize) -> T {
    if values.len() == 1 { values[0] } else { values[lane] }
}

/// `op` on operands of `dtype`.
pub(super) fn unary(op: UnOp, dtype: DType, x: &Lanes, out: &mut Lanes) {
    with_stored!(dtype, S => unary_of::<S>(op, <S as Stored>::Lane::of(x), out));
}

fn unary_of<S: Stored>(op: UnOp, x: &[S::Lane], out: &mut Lanes) {
    match op {
        UnOp::IsNan => map(x, bool::fill(out), |v| v.is_nan()),
        UnOp::IsInf => map(x, bool::fill(out), |v| v.is_inf()),
        _ => {
            let out = S::Lane::fill(out);
            S::Lane::unary(op, x, out);
            round_all::<S>(out);
        }
    }
}

/// `op` on operands of `dtype`.
pub(super) fn binary(op: BinOp, dtype: DType, a: &Lanes, b: &Lanes, out: &mut Lanes) {
    with_stored!(dtype, S => {
        type L = <S as Stored>::Lane;
        binary_of::<S>(op, L::of(a), L::of(b), out)
    });
}

fn binary_of<S: Stored>(op: BinOp, a: &[S::Lane], b: &[S::Lane], out: &mut Lanes) {
    match op {
        BinOp::Eq => zip(a, b, bool::fill(out), |x, y| x == y),
        BinOp::Ne => zip(a, b, bool::fill(out), |x, y| x != y),
        BinOp::Lt => zip(a, b, bool::fill(out), |x, y| x < y),
        BinOp::Le => zip(a, b, bool::fill(out), |x, y| x <= y),
        BinOp::PairBf16 => {
            zip(a, b, i32::fill(out), |x, y| math::pair_bf16(x.to_f64() as f32, y.to_f64() as f32))
        }
        BinOp::DotBf16 => {
            zip(a, b, f32::fill(out), |x, y| math::dot_bf16(x.to_i64() as i32, y.to_i64() as i32))
        }
        _ => {
            let out = S::Lane::fill(out);
            S::Lane::binary(op, a, b, out);
            round_all::<S>(out);
        }
    }
}

fn round_all<S: Stored>(values: &mut [S::Lane]) {
    if matches!(S::DTYPE, DType::F16 | DType::BF16) {
        values.iter_mut().for_each(|v| *v = S::round(*v));
    }
}

pub(super) fn select(dtype: DType, c: &Lanes, a: &Lanes, b: &Lanes, out: &mut Lanes) {
    with_stored!(dtype, S => {
        type L = <S as Stored>::Lane;
        select_of(bool::of(c), L::of(a), L::of(b), L::fill(out))
    });
}

fn select_of<T: Lane>(c: &[bool], a: &[T], b: &[T], out: &mut Vec<T>) {
    match (c, a, b) {
        (&[c], a, b) => zip(a, b, out, |x, y| if c { x } else { y }),
        (c, a, &[y]) => zip(c, a, out, |c, x| if c { x } else { y }),
        (c, &[x], b) => zip(c, b, out, |c, y| if c { x } else { y }),
        (c, a, b) => {
            out.extend(c.iter().zip(a.iter().zip(b)).map(|(&c, (&x, &y))| if c { x } else { y }))
        }
    }
}

/// Values of any type, exactly.
enum Wide {
    Int(Vec<i64>),
    Unsigned(Vec<u64>),
    Float(Vec<f64>),
}

/// Conversion of `from` values to `to`: integers wrap, floats truncate and saturate.
pub(super) fn cast(from: DType, to: DType, x: &Lanes, out: &mut Lanes) {
    let wide = with_stored!(from, F => widen::<F>(<F as Stored>::Lane::of(x)));
    with_stored!(to, T => narrow::<T>(&wide, <T as Stored>::Lane::fill(out)));
}

fn widen<F: Stored>(x: &[F::Lane]) -> Wide {
    match F::DTYPE {
        d if d.is_float() => Wide::Float(x.iter().map(|v| v.to_f64()).collect()),
        DType::U64 => Wide::Unsigned(x.iter().map(|v| v.to_i64() as u64).collect()),
        _ => Wide::Int(x.iter().map(|v| v.to_i64()).collect()),
    }
}

fn narrow<T: Stored>(x: &Wide, out: &mut Vec<T::Lane>) {
    match x {
        Wide::Int(x) => map(x, out, T::from_i64),
        Wide::Unsigned(x) => map(x, out, T::from_u64),
        Wide::Float(x) => map(x, out, T::from_f64),
    }
}
