//! `NonZero`: the indices of elements that are not zero, in row-major order, one column each.
//!
//! `[[1, 0], [0, 2]]` -> `[[0, 1], [0, 1]]`. A scalar gives `[0, n]`: it has no coordinates.

use super::number::{Number, with_type};
use super::{HostError, zeros};
use crate::dtype::DType;
use crate::tensor::Tensor;

const OP: &str = "NonZero";
/// Elements that are looked at together.
const BLOCK: usize = 64;

pub(super) fn run(x: &Tensor) -> Result<Tensor, HostError> {
    let found = with_type!(x.dtype(), T => positions::<T>(x))?;
    let mut indices = zeros(OP, DType::I64, &[x.rank(), found.len()])?;
    let out = indices.as_mut_slice::<i64>();
    for (column, &position) in found.iter().enumerate() {
        let mut rest = position;
        for axis in (0..x.rank()).rev() {
            let extent = x.shape()[axis];
            out[axis * found.len() + column] = (rest % extent) as i64;
            rest /= extent;
        }
    }
    Ok(indices)
}

/// Where elements are that are not zero. Most are zero, mostly: blocks of these are passed over.
fn positions<T: Number>(x: &Tensor) -> Result<Vec<usize>, HostError> {
    let mut found = Vec::new();
    for (block, elements) in x.as_slice::<T>().chunks(BLOCK).enumerate() {
        let mut any = false;
        for element in elements {
            any |= !element.is_zero();
        }
        if any {
            let elements = elements.iter().zip(block * BLOCK..);
            let these = elements.filter(|(element, _)| !element.is_zero()).map(|(_, at)| at);
            let wanted = found.len() + BLOCK;
            let memory = |_| HostError::Memory { op: OP, elements: wanted };
            found.try_reserve(BLOCK).map_err(memory)?;
            found.extend(these);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_by_row_major_order() {
        let x = Tensor::from_slice(&[2, 3], &[0f32, 1.0, -0.0, f32::NAN, 0.0, 2.0]);
        let y = run(&x).unwrap();
        assert_eq!(y.shape(), [2, 3]);
        assert_eq!(y.as_slice::<i64>(), [0, 1, 1, 1, 0, 2]);
    }

    #[test]
    fn blocks_are_passed_over() {
        let values: Vec<bool> = (0..1000).map(|i| i == 63 || i == 64 || i > 900).collect();
        let y = run(&Tensor::from_slice(&[10, 100], &values)).unwrap();
        let places: Vec<i64> = [63, 64].into_iter().chain(901..1000).collect();
        let (rows, columns) = y.as_slice::<i64>().split_at(places.len());
        let found = rows.iter().zip(columns).map(|(row, column)| row * 100 + column);
        assert_eq!(found.collect::<Vec<_>>(), places);
    }

    #[test]
    fn no_axes_and_no_elements() {
        assert_eq!(run(&Tensor::scalar(5i32)).unwrap().shape(), [0, 1]);
        assert_eq!(run(&Tensor::scalar(0i32)).unwrap().shape(), [0, 0]);
        assert_eq!(run(&Tensor::zeros(DType::Bool, &[2, 0])).unwrap().shape(), [2, 0]);
    }
}
