//! `Unique`: distinct elements, or distinct slices along an axis, with where they first occur, the
//! number that each element has among them, and how often each occurs.
//!
//! `[2, 1, 1]` -> y `[1, 2]`, first `[1, 0]`, inverse `[1, 0, 0]`, counts `[2, 1]`.

use std::cmp::Ordering;

use super::number::{Number, with_type};
use super::view::{AxisView, with_extent};
use super::{HostError, check_axis, copy, list, zeros};
use crate::dtype::DType;
use crate::tensor::Tensor;

const OP: &str = "Unique";

pub(super) fn run(x: &Tensor, axis: Option<usize>, sorted: bool) -> Result<Vec<Tensor>, HostError> {
    let Some(axis) = axis else {
        return with_type!(x.dtype(), T => along::<T>(&copy(OP, x)?.reshaped(&[x.len()]), 0, sorted));
    };
    check_axis(OP, x.rank(), axis)?;
    with_type!(x.dtype(), T => along::<T>(x, axis, sorted))
}

fn along<T: Number>(x: &Tensor, axis: usize, sorted: bool) -> Result<Vec<Tensor>, HostError> {
    let view = AxisView::new(x, axis);
    let elements = x.as_slice::<T>();
    let classes = classify(view.extent, |a, b| compare(elements, view, a, b), sorted)?;
    let mut y = zeros(OP, x.dtype(), &with_extent(x, axis, classes.first.len()))?;
    copy_slices(elements, view, &classes.first, y.as_mut_slice());
    let first = list(OP, classes.first.iter().map(|&i| i as i64))?;
    let of = |v: &[i64]| {
        let mut tensor = zeros(OP, DType::I64, &[v.len()])?;
        tensor.as_mut_slice().copy_from_slice(v);
        Ok(tensor)
    };
    Ok(vec![y, of(&first)?, of(&classes.inverse)?, of(&classes.counts)?])
}

/// Lexicographic order of two slices.
fn compare<T: Number>(x: &[T], view: AxisView, a: usize, b: usize) -> Ordering {
    let points = (0..view.outer).flat_map(|o| (0..view.inner).map(move |i| (o, i)));
    points
        .map(|(o, i)| x[view.offset(o, a, i)].order(x[view.offset(o, b, i)]))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

struct Classes {
    first: Vec<usize>,
    inverse: Vec<i64>,
    counts: Vec<i64>,
}

/// Groups `0..n` by equality under `compare`; groups in order, or in order of first occurrence.
fn classify(
    n: usize,
    compare: impl Fn(usize, usize) -> Ordering,
    sorted: bool,
) -> Result<Classes, HostError> {
    let mut order: Vec<usize> = list(OP, 0..n)?;
    order.sort_by(|&a, &b| compare(a, b));
    let mut groups = list(OP, order.chunk_by(|&a, &b| compare(a, b).is_eq()))?;
    if !sorted {
        groups.sort_by_key(|group| group[0]);
    }
    let mut inverse = list(OP, (0..n).map(|_| 0))?;
    for (number, group) in groups.iter().enumerate() {
        for &member in *group {
            inverse[member] = number as i64;
        }
    }
    let first = list(OP, groups.iter().map(|group| group[0]))?;
    let counts = list(OP, groups.iter().map(|group| group.len() as i64))?;
    Ok(Classes { first, inverse, counts })
}

fn copy_slices<T: Number>(x: &[T], from: AxisView, chosen: &[usize], y: &mut [T]) {
    let to = AxisView { extent: chosen.len(), ..from };
    for outer in 0..from.outer {
        for (at, &source) in chosen.iter().enumerate() {
            let (read, write) = (from.offset(outer, source, 0), to.offset(outer, at, 0));
            y[write..write + from.inner].copy_from_slice(&x[read..read + from.inner]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn i64s(tensors: &[Tensor]) -> Vec<Vec<i64>> {
        tensors.iter().map(|t| t.to_i64_vec().unwrap()).collect()
    }

    #[test]
    fn order_of_first_occurrence() {
        let x = Tensor::from_slice(&[6], &[2i32, 1, 1, 3, 4, 3]);
        let got = i64s(&run(&x, None, false).unwrap());
        assert_eq!(
            got,
            [vec![2, 1, 3, 4], vec![0, 1, 3, 4], vec![0, 1, 1, 2, 3, 2], vec![1, 2, 2, 1]]
        );
    }

    #[test]
    fn slices_of_the_last_axis() {
        let x = Tensor::from_slice(&[2, 3], &[1i8, 0, 1, 5, 7, 5]);
        let got = i64s(&run(&x, Some(1), true).unwrap());
        assert_eq!(got, [vec![0, 1, 7, 5], vec![1, 0], vec![1, 0, 1], vec![1, 2]]);
    }

    #[test]
    fn nan_is_one_value() {
        let x = Tensor::from_slice(&[3], &[f32::NAN, 1.0, f32::NAN]);
        assert_eq!(run(&x, None, true).unwrap()[3].as_slice::<i64>(), [1, 2]);
    }

    proptest! {
        #[test]
        fn outputs_rebuild_the_input(values in prop::collection::vec(0u8..6, 0..30), sorted: bool) {
            let x = Tensor::from_slice(&[values.len()], &values);
            let outputs = run(&x, None, sorted).unwrap();
            let y = outputs[0].as_slice::<u8>();
            let inverse = outputs[2].as_slice::<i64>();
            let rebuilt: Vec<u8> = inverse.iter().map(|&i| y[i as usize]).collect();
            prop_assert_eq!(&rebuilt, &values);
            for (i, &v) in y.iter().enumerate() {
                let first = values.iter().position(|&w| w == v).unwrap();
                prop_assert_eq!(outputs[1].as_slice::<i64>()[i], first as i64);
                let count = values.iter().filter(|&&w| w == v).count();
                prop_assert_eq!(outputs[3].as_slice::<i64>()[i], count as i64);
            }
            if sorted {
                prop_assert!(y.is_sorted());
            }
        }
    }
}
