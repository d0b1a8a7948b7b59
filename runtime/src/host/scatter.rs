//! `ScatterElements` and `ScatterND`: a copy of the data with updates merged in at given indices.
//!
//! `ScatterElements` axis 0: `y[indices[i, j], j] = updates[i, j]`;
//! `ScatterND`: `y[indices[i], ..] = updates[i, ..]`. Repeated indices merge in row-major order.

use super::indices::point;
use super::number::{Number, with_type};
use super::{HostError, ScatterMode, check_axis, copy, indices_of, list, resolve};
use crate::tensor::Tensor;

pub(super) fn elements(
    data: &Tensor,
    indices: &Tensor,
    updates: &Tensor,
    axis: usize,
    mode: ScatterMode,
) -> Result<Tensor, HostError> {
    const OP: &str = "ScatterElements";
    check_axis(OP, data.rank(), axis)?;
    same_type(OP, data, updates)?;
    let fits = |(i, (&n, &m))| i == axis || n <= m;
    let shape = indices.shape();
    if shape.len() != data.rank() || !shape.iter().zip(data.shape()).enumerate().all(fits) {
        return Err(HostError::Shape { op: OP, what: "indices", shape: shape.to_vec() });
    }
    if shape != updates.shape() {
        let shape = updates.shape().to_vec();
        return Err(HostError::Shape { op: OP, what: "updates", shape });
    }
    let along = indices_of(OP, indices)?;
    let extent = data.shape()[axis];
    let strides = strides(data.shape());
    let mut targets = list(OP, along.iter().map(|_| 0))?;
    let mut point = vec![0; shape.len()];
    for ((i, index), target) in along.into_iter().enumerate().zip(&mut targets) {
        let at = resolve(index, extent).ok_or_else(|| outside(OP, indices, i, index, extent))?;
        let coordinate = |i: usize| if i == axis { at } else { point[i] };
        *target = (0..shape.len()).map(|i| coordinate(i) * strides[i]).sum();
        advance(&mut point, shape);
    }
    let mut y = copy(OP, data)?;
    with_type!(data.dtype(), T => merge::<T>(&mut y, &targets, updates, 1, mode));
    Ok(y)
}

pub(super) fn nd(
    data: &Tensor,
    indices: &Tensor,
    updates: &Tensor,
    mode: ScatterMode,
) -> Result<Tensor, HostError> {
    const OP: &str = "ScatterND";
    same_type(OP, data, updates)?;
    let bad = |what, t: &Tensor| HostError::Shape { op: OP, what, shape: t.shape().to_vec() };
    let (&depth, tuples) = indices.shape().split_last().ok_or_else(|| bad("indices", indices))?;
    if depth > data.rank() {
        return Err(bad("indices", indices));
    }
    let (indexed, slice) = data.shape().split_at(depth);
    if *updates.shape() != [tuples, slice].concat() {
        return Err(bad("updates", updates));
    }
    let run: usize = slice.iter().product();
    let strides = strides(indexed);
    let coordinates = indices_of(OP, indices)?;
    let count: usize = tuples.iter().product();
    let mut targets = list(OP, (0..count).map(|_| 0))?;
    for (tuple, target) in targets.iter_mut().enumerate() {
        for (axis, &index) in coordinates[tuple * depth..][..depth].iter().enumerate() {
            let extent = indexed[axis];
            let at = resolve(index, extent);
            let at = at.ok_or_else(|| outside(OP, indices, tuple * depth + axis, index, extent))?;
            *target += at * strides[axis];
        }
        *target *= run;
    }
    let mut y = copy(OP, data)?;
    with_type!(data.dtype(), T => merge::<T>(&mut y, &targets, updates, run, mode));
    Ok(y)
}

/// The error for element `i` of the indices.
fn outside(op: &'static str, indices: &Tensor, i: usize, index: i64, extent: usize) -> HostError {
    HostError::Index { op, position: point(i, indices.shape()), index, extent }
}

/// Merges consecutive runs of `updates` into `y` at the offsets `targets`.
fn merge<T: Number>(
    y: &mut Tensor,
    targets: &[usize],
    updates: &Tensor,
    run: usize,
    mode: ScatterMode,
) {
    let (out, updates) = (y.as_mut_slice::<T>(), updates.as_slice::<T>());
    for (i, &target) in targets.iter().enumerate() {
        let (to, from) = (&mut out[target..target + run], &updates[i * run..][..run]);
        match mode {
            ScatterMode::Assign => to.copy_from_slice(from),
            _ => to.iter_mut().zip(from).for_each(|(old, &new)| *old = old.merge(mode, new)),
        }
    }
}

fn same_type(op: &'static str, data: &Tensor, updates: &Tensor) -> Result<(), HostError> {
    if data.dtype() == updates.dtype() {
        Ok(())
    } else {
        Err(HostError::Type { op, what: "updates", dtype: updates.dtype() })
    }
}

fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// The next point of `shape` in row-major order; wraps at the end.
fn advance(point: &mut [usize], shape: &[usize]) {
    for (at, &extent) in point.iter_mut().zip(shape).rev() {
        *at += 1;
        if *at < extent {
            return;
        }
        *at = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dtype::DType;

    #[test]
    fn rows_of_a_matrix() {
        let data = Tensor::from_slice(&[3, 2], &[1i32, 2, 3, 4, 5, 6]);
        let indices = Tensor::from_slice(&[2, 1], &[-1i64, 0]);
        let updates = Tensor::from_slice(&[2, 2], &[10i32, 20, 30, 40]);
        let set = nd(&data, &indices, &updates, ScatterMode::Assign).unwrap();
        assert_eq!(set.as_slice::<i32>(), [30, 40, 3, 4, 10, 20]);
        let added = nd(&data, &indices, &updates, ScatterMode::Add).unwrap();
        assert_eq!(added.as_slice::<i32>(), [31, 42, 3, 4, 15, 26]);
    }

    #[test]
    fn repeated_indices_merge_in_order() {
        let data = Tensor::from_slice(&[2], &[1f32, 1.0]);
        let indices = Tensor::from_slice(&[3], &[1i32, 1, -1]);
        let updates = Tensor::from_slice(&[3], &[2f32, 3.0, 4.0]);
        let last =
            |mode| elements(&data, &indices, &updates, 0, mode).unwrap().as_slice::<f32>()[1];
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
        let error = elements(&data, &far, &updates, 0, ScatterMode::Assign);
        let (op, position) = ("ScatterElements", vec![0]);
        assert_eq!(error, Err(HostError::Index { op, position, index: 2, extent: 2 }));
        let pairs = Tensor::from_slice(&[2, 2], &[0i64, 1, 1, -4]);
        let (data, updates) = (Tensor::zeros(DType::F32, &[2, 3]), Tensor::zeros(DType::F32, &[2]));
        let error = nd(&data, &pairs, &updates, ScatterMode::Assign);
        let (op, position) = ("ScatterND", vec![1, 1]);
        assert_eq!(error, Err(HostError::Index { op, position, index: -4, extent: 3 }));
        let data = Tensor::from_slice(&[2], &[1f32, 1.0]);
        let updates = Tensor::from_slice(&[1], &[2f32]);
        let deep = Tensor::from_slice(&[1, 2], &[0i64, 0]);
        assert!(matches!(
            nd(&data, &deep, &updates, ScatterMode::Add),
            Err(HostError::Shape { .. })
        ));
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
            let got = elements(
                &Tensor::from_slice(&[3, 3], &data),
                &Tensor::from_slice(&shape, &indices),
                &Tensor::from_slice(&shape, &updates),
                axis,
                ScatterMode::Add,
            ).unwrap();
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
}
