//! `NonZero`: the indices of elements that are not zero, in row-major order, one column each.
//!
//! `[[1, 0], [0, 2]]` -> `[[0, 1], [0, 1]]`. A scalar gives `[0, n]`: it has no coordinates.

use super::number::{Number, with_type};
use super::{HostError, list, zeros};
use crate::dtype::DType;
use crate::tensor::Tensor;

const OP: &str = "NonZero";

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

fn positions<T: Number>(x: &Tensor) -> Result<Vec<usize>, HostError> {
    let elements = x.as_slice::<T>().iter().enumerate();
    list(OP, elements.filter(|(_, v)| !v.is_zero()).map(|(i, _)| i))
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
    fn no_axes_and_no_elements() {
        assert_eq!(run(&Tensor::scalar(5i32)).unwrap().shape(), [0, 1]);
        assert_eq!(run(&Tensor::scalar(0i32)).unwrap().shape(), [0, 0]);
        assert_eq!(run(&Tensor::zeros(DType::Bool, &[2, 0])).unwrap().shape(), [2, 0]);
    }
}
