use std::sync::atomic::{AtomicUsize, Ordering};

use half::f16;
use proptest::prelude::*;

use super::super::number::Number;
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

/// Positions along the axis by a stable sort of every lane.
fn sorted<T: Number>(x: &Tensor, axis: usize, k: usize, largest: bool) -> (Vec<T>, Vec<i64>) {
    let view = AxisView::new(x, axis);
    let data = x.as_slice::<T>();
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for outer in 0..view.outer {
        let lane = |inner: usize| {
            let at = |i: usize| data[view.offset(outer, i, inner)];
            let mut order: Vec<usize> = (0..view.extent).collect();
            order.sort_by(|&a, &b| if largest { at(b).order(at(a)) } else { at(a).order(at(b)) });
            order
        };
        let lanes: Vec<Vec<usize>> = (0..view.inner).map(lane).collect();
        for rank in 0..k {
            for (inner, lane) in lanes.iter().enumerate() {
                values.push(data[view.offset(outer, lane[rank], inner)]);
                indices.push(lane[rank] as i64);
            }
        }
    }
    (values, indices)
}

/// Bits decide, so that NaNs and zeros are compared, too.
fn check<T: Number>(x: &[T], shape: &[usize], k: usize, largest: bool) {
    let x = Tensor::from_slice(shape, x);
    let outputs = run(&x, 1, k, largest).unwrap();
    let (values, indices) = sorted::<T>(&x, 1, k, largest);
    assert_eq!(outputs[1].as_slice::<i64>(), indices, "{shape:?}, k {k}, largest {largest}");
    let values = Tensor::from_slice(outputs[0].shape(), &values);
    assert_eq!(outputs[0].bytes(), values.bytes(), "{shape:?}, k {k}, largest {largest}");
}

/// Numbers with many ties, some of them far apart.
fn few(seed: u64, n: usize) -> Vec<i8> {
    let mut state = seed | 1;
    let next = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as i8 >> (state >> 60)
    };
    (0..n).map(next).collect()
}

fn check_types(numbers: &[i8], shape: &[usize], k: usize, largest: bool) {
    fn of<T>(numbers: &[i8], f: impl Fn(i8) -> T) -> Vec<T> {
        numbers.iter().map(|&x| f(x)).collect()
    }
    let float = |x: i8| match x {
        -1 => f32::NAN,
        -2 => -0.0,
        -128 => f32::NEG_INFINITY,
        127 => f32::INFINITY,
        x => f32::from(x),
    };
    check(numbers, shape, k, largest);
    check(&of(numbers, |x| x > 0), shape, k, largest);
    check(&of(numbers, |x| i32::from(x) << 24), shape, k, largest);
    check(&of(numbers, |x| x as u32), shape, k, largest);
    check(&of(numbers, |x| x as u64), shape, k, largest);
    check(&of(numbers, float), shape, k, largest);
    check(&of(numbers, |x| f64::from(float(x))), shape, k, largest);
    check(&of(numbers, |x| f16::from_f32(float(x))), shape, k, largest);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn equals_a_stable_sort(
        outer in 1usize..4,
        extent in 1usize..40,
        inner in prop_oneof![1usize..33, 14usize..100],
        k in 0usize..40,
        largest: bool,
        seed: u64,
    ) {
        let numbers = few(seed, outer * extent * inner);
        check_types(&numbers, &[outer, extent, inner], k.min(extent), largest);
    }

    #[test]
    fn equals_a_stable_sort_of_long_lanes(
        extent in 60usize..700,
        inner in prop_oneof![Just(1usize), Just(3), Just(8), Just(21), Just(33)],
        k in prop_oneof![1usize..9, 9usize..80],
        largest: bool,
        seed: u64,
    ) {
        let numbers = few(seed, extent * inner);
        check_types(&numbers, &[1, extent, inner], k.min(extent), largest);
    }
}

#[test]
fn lanes_that_are_sorted_or_all_the_same() {
    for inner in [1, 32] {
        for k in [1, 3, 40] {
            let up: Vec<i32> = (0..500 * inner).collect();
            let down: Vec<i32> = up.iter().rev().copied().collect();
            let same = vec![i32::MIN; up.len()];
            for x in [up, down, same] {
                check(&x, &[1, 500, inner as usize], k, true);
                check(&x, &[1, 500, inner as usize], k, false);
            }
        }
    }
}

/// Parts in any order write what one part does.
#[test]
fn threads_share_the_lanes() {
    for (shape, k) in [([3, 40, 1000], 2), ([2, 500, 100], 7), ([900, 90, 1], 5), ([900, 90, 1], 1)]
    {
        let x = Tensor::from_slice(&shape, &few(7, shape.iter().product()));
        let call = TopK::new(x.dtype(), x.shape(), 1, k, true).unwrap();
        let [mut values, mut indices] =
            [x.dtype(), DType::I64].map(|dtype| Tensor::zeros(dtype, call.shape()));
        let parts = AtomicUsize::new(0);
        let backwards: &Share<'_> = &|extent, body| {
            (0..extent).rev().for_each(|i| body(i..i + 1));
            parts.fetch_add(extent as usize, Ordering::Relaxed);
        };
        call.write(x.bytes(), values.bytes_mut(), indices.as_mut_slice(), backwards).unwrap();
        assert!(parts.into_inner() > 1, "{shape:?}");
        assert_eq!(run(&x, 1, k, true).unwrap(), [values, indices]);
    }
}

#[test]
fn too_many_are_an_error() {
    let x = Tensor::from_slice(&[2, 3], &[0u8; 6]);
    let error = HostError::TooMany { op: OP, wanted: 4, extent: 3 };
    assert_eq!(run(&x, 1, 4, true).unwrap_err(), error);
    assert_eq!(run(&x, 2, 1, true).unwrap_err(), HostError::Axis { op: OP, axis: 2, rank: 2 });
}
