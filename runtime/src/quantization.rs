//! Which tensors of a model are integers of 8 bits, and what these stand for.
//!
//! Calibration makes a [`Quantization`]. The importer, or `ansc quantize`, puts it into the model
//! as pairs of `QuantizeLinear` and `DequantizeLinear`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::dtype::DType;

/// Integers stand for `(q - zero) * scale`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Scaling {
    /// `u8` or `i8`.
    pub dtype: DType,
    /// The distance of two neighbours.
    pub scale: f32,
    /// The integer that stands for 0.
    pub zero: i32,
}

impl Scaling {
    /// Integers of `dtype` for the numbers from `low` to `high`, and for 0, which padding needs.
    pub fn over(dtype: DType, low: f32, high: f32) -> Scaling {
        let (low, high) = (low.min(0.0), high.max(0.0));
        let least = if dtype == DType::I8 { -128.0 } else { 0.0 };
        // Half of the range at a time: the whole may be beyond the largest number.
        let scale = 2.0 * ((high / 2.0 - low / 2.0) / 255.0);
        if !(scale.is_finite() && scale >= f32::MIN_POSITIVE) {
            return Scaling { dtype, scale: 1.0, zero: least as i32 };
        }
        let zero = (least - low / scale).round_ties_even().clamp(least, least + 255.0);
        Scaling { dtype, scale, zero: zero as i32 }
    }
}

/// The nodes that compute with integers, and the scalings of all that they read.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Quantization {
    /// By the name of the tensor.
    pub tensors: BTreeMap<String, Scaling>,
    /// By the name of the ONNX node, or that of its first output where it has none.
    pub nodes: BTreeSet<String>,
    /// Each output channel of a weight has a scale of its own.
    pub per_channel: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_an_integer_and_the_range_is_covered() {
        for dtype in [DType::U8, DType::I8] {
            let least = if dtype == DType::I8 { -128 } else { 0 };
            for (low, high) in [(-1.0, 3.0), (0.5, 2.0), (-7.0, -1.0), (0.0, 1e-30), (-3e38, 3e38)]
            {
                let Scaling { scale, zero, .. } = Scaling::over(dtype, low, high);
                assert!((least..=least + 255).contains(&zero), "{low} {high}: {zero}");
                let real = |q: i32| (q - zero) as f64 * f64::from(scale);
                let (low, high) = (f64::from(low.min(0.0)), f64::from(high.max(0.0)));
                let slack = f64::from(scale) * 0.51;
                assert!(real(least) <= low + slack && real(least + 255) >= high - slack);
            }
        }
    }

    #[test]
    fn a_range_of_nothing_has_a_scale() {
        for (low, high) in [(0.0, 0.0), (f32::NAN, f32::NAN), (0.0, f32::INFINITY)] {
            assert_eq!(Scaling::over(DType::U8, low, high).scale, 1.0);
        }
    }
}
