//! Constants as integers: weights of 8 bits around zero, and biases of 32 that add up with the
//! sums.

use ansc_runtime::Tensor;

/// Weights are `-127..=127`: as many below zero as above.
const LARGEST: f32 = 127.0;

/// A weight as bytes, and its scales: one for each element of the axis, or one.
pub(super) struct Integers {
    pub(super) values: Tensor,
    pub(super) scales: Vec<f32>,
}

/// The scales of a weight, by the largest element of each channel.
pub(super) fn scales(weight: &Tensor, axis: Option<usize>) -> Vec<f32> {
    let (channels, inner) = channels(weight.shape(), axis);
    let mut largest = vec![0.0f32; channels];
    for (i, w) in weight.as_slice::<f32>().iter().enumerate() {
        let channel = i / inner % channels;
        largest[channel] = largest[channel].max(w.abs());
    }
    let scale = |largest: f32| {
        Some(largest / LARGEST).filter(|s| s.is_finite() && *s >= f32::MIN_POSITIVE).unwrap_or(1.0)
    };
    largest.into_iter().map(scale).collect()
}

/// A weight in steps of its scales.
pub(super) fn weight(weight: &Tensor, scales: Vec<f32>, axis: Option<usize>) -> Integers {
    let (channels, inner) = channels(weight.shape(), axis);
    let steps = |(i, w): (usize, &f32)| {
        let steps = (w / scales[i / inner % channels]).round_ties_even();
        steps.clamp(-LARGEST, LARGEST) as i8
    };
    let values: Vec<i8> = weight.as_slice::<f32>().iter().enumerate().map(steps).collect();
    Integers { values: Tensor::from_slice(weight.shape(), &values), scales }
}

/// Makes scales larger where a bias in steps of `input * scale` would leave the range of 32 bits.
pub(super) fn make_room(scales: &mut [f32], bias: &[f32], input: f32) {
    // A step less than the largest sum, since the quotient is rounded.
    const MOST: f32 = 2_147_483_000.0;
    let last = scales.len() - 1;
    for (i, b) in bias.iter().enumerate() {
        let scale = &mut scales[i.min(last)];
        *scale = scale.max(b.abs() / MOST / input);
    }
}

/// A bias in steps of `input * scale`.
pub(super) fn bias(bias: &Tensor, scales: &[f32], input: f32) -> Integers {
    let all: Vec<f32> = scales.iter().map(|scale| input * scale).collect();
    let steps = |(i, b): (usize, &f32)| {
        let scale = all[i.min(all.len() - 1)];
        (f64::from(*b) / f64::from(scale)).round_ties_even() as i32
    };
    let values: Vec<i32> = bias.as_slice::<f32>().iter().enumerate().map(steps).collect();
    Integers { values: Tensor::from_slice(bias.shape(), &values), scales: all }
}

/// Elements of the axis, and of all axes behind it; without an axis everything is one channel.
fn channels(shape: &[usize], axis: Option<usize>) -> (usize, usize) {
    match axis {
        Some(axis) => (shape[axis].max(1), shape[axis + 1..].iter().product::<usize>().max(1)),
        None => (1, shape.iter().product::<usize>().max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_has_its_scale() {
        let w = Tensor::from_slice(&[2, 2], &[1.0f32, -2.0, 0.5, 127.0]);
        let by_row = scales(&w, Some(0));
        assert_eq!(by_row, [2.0 / 127.0, 1.0]);
        assert_eq!(scales(&w, Some(1)), [1.0 / 127.0, 1.0]);
        let found = weight(&w, by_row, Some(0));
        // 63.5 steps go to the even neighbour, 0.5 likewise.
        assert_eq!(found.values.as_slice::<i8>(), [64, -127, 0, 127]);
        assert_eq!(scales(&Tensor::from_slice(&[2], &[0.0f32, 0.0]), None), [1.0]);
    }

    #[test]
    fn a_large_bias_makes_steps_larger() {
        let mut scales = vec![1e-6, 1.0];
        make_room(&mut scales, &[1e6, 3.0], 1e-3);
        assert!(scales[0] > 1e-6 && scales[1] == 1.0);
        let b = bias(&Tensor::from_slice(&[2], &[1e6f32, 3.0]), &scales, 1e-3);
        let [large, small] = [0, 1].map(|i| b.values.as_slice::<i32>()[i]);
        assert!(large < i32::MAX && small == 3000, "{large} {small}");
        assert!((f64::from(large) * f64::from(b.scales[0]) - 1e6).abs() < 1.0);
    }
}
