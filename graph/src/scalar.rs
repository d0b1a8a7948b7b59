//! Typed constants of expressions.

use std::fmt;
use std::str::FromStr;

use ansc_runtime::{DType, Tensor};
use half::{bf16, f16};

/// A constant of an element type. Equality and hashing are by type and bits, so that `NaN == NaN`
/// and `0.0 != -0.0`: two equal scalars are interchangeable in code. Ordering is by type and bits
/// too: some order, not that of the values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Scalar {
    dtype: DType,
    /// Floats: the bits of the value as `f64`. Signed: as `i64`. Unsigned and bool: as `u64`.
    bits: u64,
}

impl Scalar {
    /// `value` rounded to `dtype`; integers wrap, `Bool` is `value != 0`.
    #[inline]
    pub fn from_f64(dtype: DType, value: f64) -> Scalar {
        match dtype {
            DType::F64 => Scalar { dtype, bits: value.to_bits() },
            DType::F32 => Scalar { dtype, bits: f64::from(value as f32).to_bits() },
            DType::F16 => Scalar { dtype, bits: f16::from_f64(value).to_f64().to_bits() },
            DType::BF16 => Scalar { dtype, bits: bf16::from_f64(value).to_f64().to_bits() },
            DType::Bool => Scalar::bool(value != 0.0),
            DType::U64 => Scalar { dtype, bits: value as u64 },
            _ => Scalar::from_i64(dtype, value as i64),
        }
    }

    /// `value` converted to `dtype`; integers wrap, `Bool` is `value != 0`.
    #[inline]
    pub fn from_i64(dtype: DType, value: i64) -> Scalar {
        let bits = match dtype {
            DType::Bool => u64::from(value != 0),
            DType::U8 => u64::from(value as u8),
            DType::U16 => u64::from(value as u16),
            DType::U32 => u64::from(value as u32),
            DType::U64 | DType::I64 => value as u64,
            DType::I8 => i64::from(value as i8) as u64,
            DType::I16 => i64::from(value as i16) as u64,
            DType::I32 => i64::from(value as i32) as u64,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
                return Scalar::from_f64(dtype, value as f64);
            }
        };
        Scalar { dtype, bits }
    }

    /// Element `index` of a tensor, in row-major order.
    ///
    /// # Panics
    /// If the tensor has no such element.
    #[inline]
    pub fn at(tensor: &Tensor, index: usize) -> Scalar {
        let dtype = tensor.dtype();
        match dtype {
            DType::Bool => Scalar::bool(tensor.as_slice::<bool>()[index]),
            DType::U8 => Scalar::from_i64(dtype, tensor.as_slice::<u8>()[index].into()),
            DType::U16 => Scalar::from_i64(dtype, tensor.as_slice::<u16>()[index].into()),
            DType::U32 => Scalar::from_i64(dtype, tensor.as_slice::<u32>()[index].into()),
            DType::U64 => Scalar::from_i64(dtype, tensor.as_slice::<u64>()[index] as i64),
            DType::I8 => Scalar::from_i64(dtype, tensor.as_slice::<i8>()[index].into()),
            DType::I16 => Scalar::from_i64(dtype, tensor.as_slice::<i16>()[index].into()),
            DType::I32 => Scalar::from_i64(dtype, tensor.as_slice::<i32>()[index].into()),
            DType::I64 => Scalar::from_i64(dtype, tensor.as_slice::<i64>()[index]),
            DType::F16 => Scalar::from_f64(dtype, tensor.as_slice::<f16>()[index].to_f64()),
            DType::BF16 => Scalar::from_f64(dtype, tensor.as_slice::<bf16>()[index].to_f64()),
            DType::F32 => Scalar::from_f64(dtype, tensor.as_slice::<f32>()[index].into()),
            DType::F64 => Scalar::from_f64(dtype, tensor.as_slice::<f64>()[index]),
        }
    }

    /// 0 or 1, as a `Bool`.
    #[inline]
    pub const fn bool(value: bool) -> Scalar {
        Scalar { dtype: DType::Bool, bits: value as u64 }
    }

    /// An `i64`, the type of variables and indices.
    #[inline]
    pub const fn index(value: i64) -> Scalar {
        Scalar { dtype: DType::I64, bits: value as u64 }
    }

    /// The number 0; `false` of a `Bool`.
    pub fn zero(dtype: DType) -> Scalar {
        Scalar::from_i64(dtype, 0)
    }

    /// The number 1; `true` of a `Bool`.
    pub fn one(dtype: DType) -> Scalar {
        Scalar::from_i64(dtype, 1)
    }

    /// The smallest value: minus infinity for floats.
    pub fn lowest(dtype: DType) -> Scalar {
        match dtype {
            d if d.is_float() => Scalar::from_f64(d, f64::NEG_INFINITY),
            d if d.is_signed_int() => Scalar::from_i64(d, i64::MIN >> (64 - 8 * d.size())),
            d => Scalar::zero(d),
        }
    }

    /// The largest value: infinity for floats.
    pub fn highest(dtype: DType) -> Scalar {
        match dtype {
            d if d.is_float() => Scalar::from_f64(d, f64::INFINITY),
            d if d.is_signed_int() => Scalar::from_i64(d, i64::MAX >> (64 - 8 * d.size())),
            DType::Bool => Scalar::bool(true),
            d => Scalar { dtype: d, bits: u64::MAX >> (64 - 8 * d.size()) },
        }
    }

    /// The type that it is a constant of.
    #[inline]
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// The value as `f64`; exact for all but large 64-bit integers.
    #[inline]
    pub fn as_f64(self) -> f64 {
        match self.dtype {
            d if d.is_float() => f64::from_bits(self.bits),
            d if d.is_signed_int() => self.bits as i64 as f64,
            _ => self.bits as f64,
        }
    }

    /// The value of an integer or bool, as `i64` (`u64` wraps); floats are truncated.
    #[inline]
    pub fn as_i64(self) -> i64 {
        if self.dtype.is_float() { f64::from_bits(self.bits) as i64 } else { self.bits as i64 }
    }

    /// Whether the value is 0; -0.0 is too.
    #[inline]
    pub fn is_zero(self) -> bool {
        self.as_f64() == 0.0
    }

    /// Whether the value is 1.
    pub fn is_one(self) -> bool {
        self.as_f64() == 1.0
    }
}

/// `1.5_f32`, `-inf_f32`, `nan_f16`, `3_i64`, `true`; parses back to the same bits.
impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype {
            DType::Bool => write!(f, "{}", self.bits != 0),
            d if d.is_float() => match f64::from_bits(self.bits) {
                v if v.is_nan() => write!(f, "nan_{d}"),
                v if d == DType::F64 => write!(f, "{v:?}_{d}"),
                // The shortest digits that name the value among those of `f32`.
                v => write!(f, "{:?}_{d}", v as f32),
            },
            d if d.is_signed_int() => write!(f, "{}_{d}", self.bits as i64),
            d => write!(f, "{}_{d}", self.bits),
        }
    }
}

impl FromStr for Scalar {
    type Err = String;

    fn from_str(text: &str) -> Result<Scalar, String> {
        let bad = || format!("`{text}` is not a constant");
        if let Ok(value) = text.parse::<bool>() {
            return Ok(Scalar::bool(value));
        }
        let (digits, dtype) = text.rsplit_once('_').ok_or_else(bad)?;
        let dtype: DType = dtype.parse()?;
        match dtype {
            d if d.is_float() && digits == "nan" => Ok(Scalar::from_f64(d, f64::NAN)),
            // Through `f32` for the types within it: rounding once, from the digits.
            DType::F64 => digits.parse().map(|v| Scalar::from_f64(dtype, v)).map_err(|_| bad()),
            d if d.is_float() => {
                let value = digits.parse::<f32>().map_err(|_| bad())?;
                Ok(Scalar::from_f64(d, value.into()))
            }
            DType::U64 => {
                digits.parse::<u64>().map(|bits| Scalar { dtype, bits }).map_err(|_| bad())
            }
            d => digits.parse().map(|v| Scalar::from_i64(d, v)).map_err(|_| bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes() {
        assert_eq!(Scalar::lowest(DType::I8).as_i64(), -128);
        assert_eq!(Scalar::highest(DType::I8).as_i64(), 127);
        assert_eq!(Scalar::highest(DType::U16).as_i64(), 65535);
        assert_eq!(Scalar::lowest(DType::I64).as_i64(), i64::MIN);
        assert_eq!(Scalar::highest(DType::F16).as_f64(), f64::INFINITY);
    }

    #[test]
    fn text_parses_back() {
        for dtype in DType::ALL {
            for s in [
                Scalar::lowest(dtype),
                Scalar::highest(dtype),
                Scalar::one(dtype),
                Scalar::from_f64(dtype, 0.1),
            ] {
                assert_eq!(s.to_string().parse(), Ok(s), "{s}");
            }
        }
    }
}
