//! Results that are too many to be interpreted, compared with the definition here and there.
//!
//! Looked at are the corners of each output, and elements drawn at random, the same every time: as
//! many as take no longer than a few seconds.

use ansc_graph::Scalar;
use ansc_graph::interp::{PointError, Points};
use ansc_graph::{Compute, interp::InterpError};
use ansc_runtime::Tensor;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::Error;

/// Random elements of each output that are compared, besides its corners.
const ELEMENTS: usize = 256;
/// Fewer say nothing.
const LEAST: usize = 32;
/// Operations of the interpreter, all elements together.
const MOST_OPERATIONS: u64 = 20_000_000;

/// The largest difference of an element from the definition, relative to the largest element of its
/// output; infinite if only one of them is finite.
pub(super) fn difference(
    compute: &Compute,
    inputs: &[&Tensor],
    outputs: &[Tensor],
) -> Result<f64, Error> {
    let share = MOST_OPERATIONS / outputs.len().max(1) as u64;
    let mut largest = 0.0f64;
    for (&stage, output) in compute.outputs.iter().zip(outputs) {
        let mut points = Points::new(compute, inputs, share)?;
        let scale = (0..output.len())
            .map(|i| Scalar::at(output, i).as_f64().abs())
            .filter(|v| v.is_finite())
            .fold(f64::MIN_POSITIVE, f64::max);
        // The program may have collapsed axes of the output.
        let shape = &compute.stages[stage].ty.shape;
        if output.len() != shape.iter().product::<usize>() {
            return Ok(f64::INFINITY);
        }
        for (done, place) in places(shape).into_iter().enumerate() {
            let expected = match points.at(stage, &place) {
                Ok(value) => value.as_f64(),
                Err(PointError::TooMany) if done >= LEAST => break,
                Err(PointError::Interp(e)) => return Err(e.into()),
                Err(e) => return Err(unsuitable(&e)),
            };
            let found = Scalar::at(output, flat(shape, &place)).as_f64();
            largest = largest.max(off(found, expected) / scale);
        }
    }
    Ok(largest)
}

fn unsuitable(error: &PointError) -> Error {
    InterpError::Graph(format!("an element cannot be computed alone: {error}")).into()
}

fn off(found: f64, expected: f64) -> f64 {
    match (found.is_finite(), expected.is_finite()) {
        (true, true) => (found - expected).abs(),
        (false, false) => 0.0,
        _ => f64::INFINITY,
    }
}

/// Corners first, then random ones.
fn places(shape: &[usize]) -> Vec<Vec<usize>> {
    if shape.contains(&0) {
        return vec![];
    }
    let corner = |bits: usize| -> Vec<usize> {
        let end =
            |(axis, &extent): (usize, &usize)| if (bits >> axis) & 1 == 1 { extent - 1 } else { 0 };
        shape.iter().enumerate().map(end).collect()
    };
    let mut all: Vec<Vec<usize>> = (0..1usize << shape.len().min(4)).map(corner).collect();
    let random = &mut StdRng::seed_from_u64(0);
    for _ in 0..ELEMENTS {
        all.push(shape.iter().map(|&extent| random.random_range(0..extent)).collect());
    }
    all
}

fn flat(shape: &[usize], place: &[usize]) -> usize {
    place.iter().zip(shape).fold(0, |at, (&i, &extent)| at * extent + i)
}

#[cfg(test)]
mod tests {
    use ansc_graph::interp;

    use super::*;

    #[test]
    fn one_wrong_corner_is_seen() {
        let compute = Compute::parse(
            "compute(in0: f32[40, 16], in1: f32[16, 24]) -> y {
               y: f32[40, 24] = sum{r0: 16} mul(in0[i0, r0], in1[r0, i1])
             }",
        )
        .unwrap();
        let ones = |shape: &[usize]| {
            let n = shape.iter().product::<usize>();
            Tensor::from_slice(shape, &(0..n).map(|i| (i % 7) as f32).collect::<Vec<_>>())
        };
        let inputs = [ones(&[40, 16]), ones(&[16, 24])];
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let mut outputs = interp::eval(&compute, &inputs).unwrap();
        assert_eq!(difference(&compute, &inputs, &outputs).unwrap(), 0.0);
        let bytes = outputs[0].bytes_mut();
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&0f32.to_le_bytes());
        assert!(difference(&compute, &inputs, &outputs).unwrap() > 0.1);
        bytes_of_last(&mut outputs[0]).copy_from_slice(&f32::NAN.to_le_bytes());
        assert_eq!(difference(&compute, &inputs, &outputs).unwrap(), f64::INFINITY);
    }

    fn bytes_of_last(tensor: &mut Tensor) -> &mut [u8] {
        let bytes = tensor.bytes_mut();
        let end = bytes.len();
        &mut bytes[end - 4..]
    }

    #[test]
    fn places_are_inside() {
        for shape in [&[3usize, 1, 9][..], &[1], &[], &[2, 2, 2, 2, 5]] {
            let all = places(shape);
            assert!(all.len() > ELEMENTS);
            assert!(all.iter().all(|p| p.iter().zip(shape).all(|(i, n)| i < n)));
        }
        assert!(places(&[4, 0]).is_empty());
    }
}
