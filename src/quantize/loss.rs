//! How far outputs are from those of the model of `f32`.

use std::collections::BTreeMap;

use ansc_runtime::{DType, Tensor};

use crate::compare::Difference;

/// The largest error of an output of floats, relative to the largest element of it. Integers are
/// decisions (a class, a place), which rounding may change at any distance: they are not compared.
pub(super) fn loss(
    outputs: &BTreeMap<String, Tensor>,
    reference: &BTreeMap<String, Tensor>,
) -> f64 {
    let pairs = reference.iter().filter_map(|(name, r)| Some((outputs.get(name)?, r)));
    let floats = pairs.filter(|(_, r)| matches!(r.dtype(), DType::F32 | DType::F64 | DType::F16));
    floats.map(|(a, r)| of_one(a, r)).fold(0.0, f64::max)
}

fn of_one(actual: &Tensor, reference: &Tensor) -> f64 {
    if actual.shape() != reference.shape() {
        return f64::INFINITY;
    }
    let difference = Difference::between(actual, reference);
    if difference.non_finite > 0 { f64::INFINITY } else { difference.max_rel }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(y: &[f32], class: i64) -> BTreeMap<String, Tensor> {
        let tensors = [("y", Tensor::from_slice(&[y.len()], y)), ("class", Tensor::scalar(class))];
        tensors.into_iter().map(|(name, t)| (name.to_owned(), t)).collect()
    }

    #[test]
    fn the_worst_float_counts() {
        let reference = outputs(&[1.0, -4.0], 0);
        assert_eq!(loss(&outputs(&[1.5, -4.0], 7), &reference), 0.125);
        assert_eq!(loss(&outputs(&[f32::NAN, -4.0], 0), &reference), f64::INFINITY);
        assert_eq!(loss(&outputs(&[1.0, -4.0, 0.0], 0), &reference), f64::INFINITY);
    }
}
