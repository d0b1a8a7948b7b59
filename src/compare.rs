//! How far two tensors are apart.

use ansc_runtime::{DType, Tensor};
use serde::Serialize;

/// Errors of a tensor against its reference. NaN equals NaN, an infinity itself, and less than the
/// smallest normal number of the type is no error: below it one side may have zeros.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub max_abs: f64,
    /// `max_abs` over the largest finite magnitude of the reference.
    pub max_rel: f64,
    /// Elements of which one side is finite and the other is not, or is another infinity or NaN.
    pub non_finite: usize,
}

impl Difference {
    /// # Panics
    /// If the numbers of elements differ.
    pub fn between(actual: &Tensor, reference: &Tensor) -> Difference {
        let (a, r) = (actual.to_f64_vec(), reference.to_f64_vec());
        assert_eq!(a.len(), r.len(), "elements to compare");
        let mut difference = Difference { max_abs: 0.0, max_rel: 0.0, non_finite: 0 };
        let smallest = smallest_normal(actual.dtype());
        let mut largest = 0.0f64;
        for (&a, &r) in a.iter().zip(&r) {
            if r.is_finite() {
                largest = largest.max(r.abs());
            }
            if a.is_finite() && r.is_finite() {
                let error = Some((a - r).abs()).filter(|error| *error >= smallest).unwrap_or(0.0);
                difference.max_abs = difference.max_abs.max(error);
            } else if !(a == r || a.is_nan() && r.is_nan()) {
                difference.non_finite += 1;
            }
        }
        difference.max_rel =
            if difference.max_abs == 0.0 { 0.0 } else { difference.max_abs / largest.max(1e-30) };
        difference
    }

    pub fn within(&self, tolerance: f64) -> bool {
        self.non_finite == 0 && self.max_rel <= tolerance
    }
}

fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F32 | DType::BF16 => f64::from(f32::MIN_POSITIVE),
        // A value that is flushed to zero in `f32` is zero in `f16` as well.
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_a_number_is_equal_to_itself_only() {
        let t = |v: &[f32]| Tensor::from_slice(&[v.len()], v);
        let d = Difference::between(
            &t(&[f32::NAN, f32::INFINITY, 1.0]),
            &t(&[f32::NAN, f32::NEG_INFINITY, 2.0]),
        );
        assert_eq!((d.max_abs, d.max_rel, d.non_finite), (1.0, 0.5, 1));
    }

    #[test]
    fn zero_for_a_denormal_number_is_no_error() {
        let between = |a: &[f32], r: &[f32]| {
            let t = |v: &[f32]| Tensor::from_slice(&[v.len()], v);
            Difference::between(&t(a), &t(r))
        };
        assert!(between(&[0.0, -0.0], &[1e-38, -1e-45]).within(0.0));
        assert!(!between(&[0.0], &[f32::MIN_POSITIVE]).within(0.0));
        assert!(!between(&[0.0], &[f32::INFINITY]).within(0.0));
    }
}
