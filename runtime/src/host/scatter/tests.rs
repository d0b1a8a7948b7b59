use proptest::prelude::*;

use super::*;
use crate::dtype::DType;

#[test]
fn rows_of_a_matrix() {
    let data = Tensor::from_slice(&[3, 2], &[1i32, 2, 3, 4, 5, 6]);
    let indices = Tensor::from_slice(&[2, 1], &[-1i64, 0]);
    let updates = Tensor::from_slice(&[2, 2], &[10i32, 20, 30, 40]);
    let set = nd([&data, &indices, &updates], ScatterMode::Assign).unwrap();
    assert_eq!(set.as_slice::<i32>(), [30, 40, 3, 4, 10, 20]);
    let added = nd([&data, &indices, &updates], ScatterMode::Add).unwrap();
    assert_eq!(added.as_slice::<i32>(), [31, 42, 3, 4, 15, 26]);
}

#[test]
fn repeated_indices_merge_in_order() {
    let data = Tensor::from_slice(&[2], &[1f32, 1.0]);
    let indices = Tensor::from_slice(&[3], &[1i32, 1, -1]);
    let updates = Tensor::from_slice(&[3], &[2f32, 3.0, 4.0]);
    let last = |mode| elements([&data, &indices, &updates], 0, mode).unwrap().as_slice::<f32>()[1];
    assert_eq!(last(ScatterMode::Assign), 4.0);
    assert_eq!(last(ScatterMode::Add), 10.0);
    assert_eq!(last(ScatterMode::Mul), 24.0);
    assert_eq!(last(ScatterMode::Max), 4.0);
    assert_eq!(last(ScatterMode::Min), 1.0);
}

#[test]
fn bad_indices_and_shapes_are_errors() {
    let data = Tensor::from_slice(&[2], &[1f32, 1.0]);
    let updates = Tensor::from_slice(&[1], &[2f32]);
    let far = Tensor::from_slice(&[1], &[2i64]);
    let error = elements([&data, &far, &updates], 0, ScatterMode::Assign);
    let (op, position) = ("ScatterElements", vec![0]);
    assert_eq!(error, Err(HostError::Index { op, position, index: 2, extent: 2 }));
    let pairs = Tensor::from_slice(&[2, 2], &[0i64, 1, 1, -4]);
    let (data, updates) = (Tensor::zeros(DType::F32, &[2, 3]), Tensor::zeros(DType::F32, &[2]));
    let error = nd([&data, &pairs, &updates], ScatterMode::Assign);
    let (op, position) = ("ScatterND", vec![1, 1]);
    assert_eq!(error, Err(HostError::Index { op, position, index: -4, extent: 3 }));
    let data = Tensor::from_slice(&[2], &[1f32, 1.0]);
    let updates = Tensor::from_slice(&[1], &[2f32]);
    let deep = Tensor::from_slice(&[1, 2], &[0i64, 0]);
    assert!(matches!(nd([&data, &deep, &updates], ScatterMode::Add), Err(HostError::Shape { .. })));
}

proptest! {
    #[test]
    fn elements_equals_its_definition(
        axis in 0usize..2,
        indices in prop::collection::vec(-3i64..3, 6),
        updates in prop::collection::vec(-9i64..9, 6),
    ) {
        let data: Vec<i64> = (0..9).collect();
        let shape = if axis == 0 { [2, 3] } else { [3, 2] };
        let inputs = [
            Tensor::from_slice(&[3, 3], &data),
            Tensor::from_slice(&shape, &indices),
            Tensor::from_slice(&shape, &updates),
        ];
        let got = elements(inputs.each_ref(), axis, ScatterMode::Add).unwrap();
        let mut expected = data;
        for i in 0..6 {
            let (row, column) = (i / shape[1], i % shape[1]);
            let at = ((indices[i] + 3) % 3) as usize;
            let (row, column) = if axis == 0 { (at, column) } else { (row, at) };
            expected[row * 3 + column] += updates[i];
        }
        prop_assert_eq!(got.as_slice::<i64>(), expected);
    }
}

/// The definition: update by update, in row-major order.
fn by_definition(
    [data, indices, updates]: [&Tensor; 3],
    target: impl Fn(&[usize], &[i64]) -> Vec<usize>,
    mode: ScatterMode,
) -> Vec<i32> {
    let mut y = data.as_slice::<i32>().to_vec();
    let strides = strides(data.shape());
    for (i, update) in updates.as_slice::<i32>().iter().enumerate() {
        let at = target(&indices::point(i, updates.shape()), indices.as_slice());
        let place: usize = at.iter().zip(&strides).map(|(i, stride)| i * stride).sum();
        y[place] = y[place].merge(mode, *update);
    }
    y
}

fn wrapped(index: i64, extent: usize) -> usize {
    index.rem_euclid(extent as i64) as usize
}

/// Threads that take one part each, the last one first.
fn backwards(extent: u64, body: &(dyn Fn(std::ops::Range<u64>) + Sync)) {
    (0..extent).rev().for_each(|part| body(part..part + 1));
}

fn written(call: &Scatter, inputs: [&Tensor; 3]) -> Vec<i32> {
    let mut y = Tensor::zeros(DType::I32, inputs[0].shape());
    call.write(inputs.map(Tensor::bytes), y.bytes_mut(), &backwards).unwrap();
    y.as_slice::<i32>().to_vec()
}

/// Numbers that repeat late.
fn numbers(len: usize, below: i64) -> impl Iterator<Item = i64> {
    (0..len as i64).map(move |i| i * 7919 % 104_729 % below)
}

const MODES: [ScatterMode; 5] =
    [ScatterMode::Assign, ScatterMode::Add, ScatterMode::Mul, ScatterMode::Max, ScatterMode::Min];

#[test]
fn many_elements_on_several_threads() {
    // Rows that are whole and that are not, short and long, many and one.
    for (data, given, axis) in [
        (&[300, 200][..], &[150, 200][..], 0),
        (&[300, 200], &[300, 90], 1),
        (&[5, 40, 3], &[5, 70, 3], 1),
        (&[70, 9, 3, 50], &[60, 20, 2, 50], 1),
        (&[7, 90_000], &[9, 80_000], 0),
        (&[60_000], &[90_000], 0),
        (&[3, 4, 5], &[0, 4, 5], 0),
    ] {
        let (len, count) = (data.iter().product(), given.iter().product());
        let extent = data[axis] as i64;
        let of = |shape: &[usize], values: Vec<i32>| Tensor::from_slice(shape, &values);
        let x = of(data, numbers(len, 1000).map(|n| n as i32).collect());
        let at: Vec<i64> = numbers(count, 2 * extent).map(|n| n - extent).collect();
        let (at, new) = (Tensor::from_slice(given, &at), numbers(count, 5).map(|n| n as i32));
        let (new, strides) = (of(given, new.collect()), strides(given));
        for mode in MODES {
            let inputs = [&x, &at, &new];
            let target = |point: &[usize], indices: &[i64]| {
                let place: usize = point.iter().zip(&strides).map(|(i, s)| i * s).sum();
                let mut target = point.to_vec();
                target[axis] = wrapped(indices[place], data[axis]);
                target
            };
            let call = Scatter::elements(inputs.map(form), axis, mode).unwrap();
            let expected = by_definition(inputs, target, mode);
            assert!(written(&call, inputs) == expected, "{data:?} {given:?} {axis} {mode:?}");
        }
    }
}

#[test]
fn many_slices_on_several_threads() {
    for (data, depth, tuples) in [
        (&[30, 200, 90][..], 1, &[20][..]),
        (&[30, 20, 90], 2, &[7, 11]),
        (&[30, 20, 9], 3, &[3000]),
        (&[4, 90_000], 1, &[9]),
        (&[6, 7], 0, &[3]),
        (&[6, 7], 1, &[0]),
    ] {
        let indexed = &data[..depth];
        let of = |shape: &[usize], below| {
            let values: Vec<i32> =
                numbers(shape.iter().product(), below).map(|n| n as i32).collect();
            Tensor::from_slice(shape, &values)
        };
        let (x, new) = (of(data, 1000), of(&[tuples, &data[depth..]].concat(), 5));
        let count: usize = tuples.iter().product();
        let extents = indexed.iter().cycle().take(count * depth);
        let at: Vec<i64> = numbers(count * depth, 1 << 20)
            .zip(extents)
            .map(|(n, &extent)| n % (2 * extent as i64) - extent as i64)
            .collect();
        let at = Tensor::from_slice(&[tuples, &[depth]].concat(), &at);
        for mode in MODES {
            let inputs = [&x, &at, &new];
            let strides = strides(tuples);
            let target = |point: &[usize], indices: &[i64]| {
                let (tuple, rest) = point.split_at(tuples.len());
                let tuple: usize = tuple.iter().zip(&strides).map(|(i, s)| i * s).sum();
                let own = &indices[tuple * depth..][..depth];
                let own = own.iter().zip(indexed).map(|(&i, &extent)| wrapped(i, extent));
                own.chain(rest.iter().copied()).collect()
            };
            let call = Scatter::nd(inputs.map(form), mode).unwrap();
            let expected = by_definition(inputs, target, mode);
            assert!(written(&call, inputs) == expected, "{data:?} {depth} {tuples:?} {mode:?}");
        }
    }
}

#[test]
fn truth_values_are_joined() {
    let of = |values: &[bool]| Tensor::from_slice(&[4], values);
    let (data, updates) = (of(&[true, true, false, false]), of(&[true, false, true, false]));
    let at = Tensor::from_slice(&[4], &[0i32, 1, 2, 3]);
    let of_mode =
        |mode| elements([&data, &at, &updates], 0, mode).unwrap().as_slice::<bool>().to_vec();
    assert_eq!(of_mode(ScatterMode::Add), [true, true, true, false]);
    assert_eq!(of_mode(ScatterMode::Mul), [true, false, false, false]);
    assert_eq!(of_mode(ScatterMode::Assign), [true, false, true, false]);
}
