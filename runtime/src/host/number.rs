//! The operations on elements that host operators need: a total order and the scatter reductions.

use std::cmp::Ordering;

use half::{bf16, f16};

use super::ScatterMode;
use crate::dtype::Element;

pub(super) trait Number: Element {
    /// Total: `-0 == 0`, NaN equals NaN and is above all numbers.
    fn order(self, other: Self) -> Ordering;
    fn is_zero(self) -> bool;
    /// `update` merged into `self`. Integers wrap; NaN survives `Max` and `Min`.
    fn merge(self, mode: ScatterMode, update: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn order(self, other: Self) -> Ordering {
                self.cmp(&other)
            }

            fn is_zero(self) -> bool {
                self == 0
            }

            #[inline]
            fn merge(self, mode: ScatterMode, update: Self) -> Self {
                match mode {
                    ScatterMode::Assign => update,
                    ScatterMode::Add => self.wrapping_add(update),
                    ScatterMode::Mul => self.wrapping_mul(update),
                    ScatterMode::Max => self.max(update),
                    ScatterMode::Min => self.min(update),
                }
            }
        }
    )*};
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn order(self, other: Self) -> Ordering {
                self.partial_cmp(&other).unwrap_or_else(|| self.is_nan().cmp(&other.is_nan()))
            }

            fn is_zero(self) -> bool {
                self == <$t>::default()
            }

            #[inline]
            fn merge(self, mode: ScatterMode, update: Self) -> Self {
                let either_nan = self.is_nan() || update.is_nan();
                match mode {
                    ScatterMode::Assign => update,
                    ScatterMode::Add => self + update,
                    ScatterMode::Mul => self * update,
                    ScatterMode::Max | ScatterMode::Min if either_nan => self + update,
                    ScatterMode::Max => self.max(update),
                    ScatterMode::Min => self.min(update),
                }
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64);
floats!(f16, bf16, f32, f64);

impl Number for bool {
    fn order(self, other: Self) -> Ordering {
        self.cmp(&other)
    }

    fn is_zero(self) -> bool {
        !self
    }

    fn merge(self, mode: ScatterMode, update: Self) -> Self {
        match mode {
            ScatterMode::Assign => update,
            ScatterMode::Add | ScatterMode::Max => self | update,
            ScatterMode::Mul | ScatterMode::Min => self & update,
        }
    }
}

/// Evaluates `$body` with `$t` naming the Rust type of the elements of `$dtype`.
macro_rules! with_type {
    ($dtype:expr, $t:ident => $body:expr) => {{
        use $crate::dtype::DType;
        macro_rules! arm {
            ($rust:ty) => {{
                type $t = $rust;
                $body
            }};
        }
        match $dtype {
            DType::Bool => arm!(bool),
            DType::U8 => arm!(u8),
            DType::U16 => arm!(u16),
            DType::U32 => arm!(u32),
            DType::U64 => arm!(u64),
            DType::I8 => arm!(i8),
            DType::I16 => arm!(i16),
            DType::I32 => arm!(i32),
            DType::I64 => arm!(i64),
            DType::F16 => arm!(half::f16),
            DType::BF16 => arm!(half::bf16),
            DType::F32 => arm!(f32),
            DType::F64 => arm!(f64),
        }
    }};
}
pub(super) use with_type;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_above_all_and_survives() {
        assert_eq!(f32::NAN.order(f32::INFINITY), Ordering::Greater);
        assert_eq!(f32::INFINITY.order(f32::NAN), Ordering::Less);
        assert_eq!(f32::NAN.order(-f32::NAN), Ordering::Equal);
        assert_eq!((-0.0f32).order(0.0), Ordering::Equal);
        assert!(f32::NAN.merge(ScatterMode::Max, 1.0).is_nan());
        assert!(f16::ONE.merge(ScatterMode::Min, f16::NAN).is_nan());
        assert_eq!(200u8.merge(ScatterMode::Add, 100), 44);
    }
}
