//! `TopK`: the k largest (or smallest) elements along an axis, best first.
//!
//! `[3, 9, 5, 9]`, k = 2, largest -> values `[9, 9]`, indices `[1, 3]`.

use super::number::{Number, with_type};
use super::view::{AxisView, with_extent};
use super::{HostError, check_axis, zeros};
use crate::dtype::DType;
use crate::tensor::Tensor;

const OP: &str = "TopK";

pub(super) fn run(
    x: &Tensor,
    axis: usize,
    k: usize,
    largest: bool,
) -> Result<Vec<Tensor>, HostError> {
    check_axis(OP, x, axis)?;
    if k > x.shape()[axis] {
        return Err(HostError::TooMany { op: OP, wanted: k, extent: x.shape()[axis] });
    }
    let shape = with_extent(x, axis, k);
    let mut values = zeros(OP, x.dtype(), &shape)?;
    let mut indices = zeros(OP, DType::I64, &shape)?;
    with_type!(x.dtype(), T => select::<T>(x, axis, k, largest, &mut values, &mut indices))?;
    Ok(vec![values, indices])
}

fn select<T: Number>(
    x: &Tensor,
    axis: usize,
    k: usize,
    largest: bool,
    values: &mut Tensor,
    indices: &mut Tensor,
) -> Result<(), HostError> {
    let from = AxisView::new(x, axis);
    let to = AxisView { extent: k, ..from };
    let (x, values, indices) = (x.as_slice::<T>(), values.as_mut_slice(), indices.as_mut_slice());
    let mut lane: Vec<(T, usize)> = Vec::new();
    let elements = from.extent;
    lane.try_reserve_exact(elements).map_err(|_| HostError::Memory { op: OP, elements })?;
    for outer in 0..from.outer {
        for inner in 0..from.inner {
            lane.clear();
            lane.extend((0..from.extent).map(|i| (x[from.offset(outer, i, inner)], i)));
            for (rank, &(value, index)) in best(&mut lane, k, largest).iter().enumerate() {
                let at = to.offset(outer, rank, inner);
                values[at] = value;
                indices[at] = index as i64;
            }
        }
    }
    Ok(())
}

/// The best `k` of the lane in order. Pairs are distinct by index, so the order is total and an
/// unstable selection is deterministic.
fn best<T: Number>(lane: &mut [(T, usize)], k: usize, largest: bool) -> &[(T, usize)] {
    let order = |a: &(T, usize), b: &(T, usize)| {
        let by_value = if largest { b.0.order(a.0) } else { a.0.order(b.0) };
        by_value.then(a.1.cmp(&b.1))
    };
    if k < lane.len() {
        lane.select_nth_unstable_by(k, order);
    }
    let chosen = &mut lane[..k];
    chosen.sort_unstable_by(order);
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ties_keep_the_lower_index_and_nan_is_largest() {
        let x = Tensor::from_slice(&[5], &[3f32, 9.0, f32::NAN, 9.0, -1.0]);
        let [values, indices] = <[Tensor; 2]>::try_from(run(&x, 0, 3, true).unwrap()).unwrap();
        assert!(values.as_slice::<f32>()[0].is_nan());
        assert_eq!(values.as_slice::<f32>()[1..], [9.0, 9.0]);
        assert_eq!(indices.as_slice::<i64>(), [2, 1, 3]);
    }

    #[test]
    fn along_the_first_axis() {
        let x = Tensor::from_slice(&[3, 2], &[1i32, 6, 3, 4, 5, 2]);
        let outputs = run(&x, 0, 2, false).unwrap();
        assert_eq!(outputs[0].as_slice::<i32>(), [1, 2, 3, 4]);
        assert_eq!(outputs[1].as_slice::<i64>(), [0, 2, 1, 1]);
    }

    proptest! {
        #[test]
        fn equals_a_stable_sort(
            lane in prop::collection::vec(-4i8..4, 1..40),
            k in 0usize..40,
            largest: bool,
        ) {
            let k = k.min(lane.len());
            let x = Tensor::from_slice(&[lane.len()], &lane);
            let outputs = run(&x, 0, k, largest).unwrap();
            let mut order: Vec<usize> = (0..lane.len()).collect();
            order.sort_by_key(|&i| if largest { -i32::from(lane[i]) } else { i32::from(lane[i]) });
            let indices: Vec<i64> = order[..k].iter().map(|&i| i as i64).collect();
            let values: Vec<i8> = order[..k].iter().map(|&i| lane[i]).collect();
            prop_assert_eq!(outputs[1].as_slice::<i64>(), indices);
            prop_assert_eq!(outputs[0].as_slice::<i8>(), values);
        }
    }
}
