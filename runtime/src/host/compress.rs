//! `Compress`: the slices along an axis (or the elements) where a condition holds.
//!
//! `[1, 2, 3]`, `[true, false, true]` -> `[1, 3]`. A short condition counts as false at its end.

use super::view::{AxisView, with_extent};
use super::{HostError, check_axis, copy, list, zeros};
use crate::dtype::DType;
use crate::tensor::Tensor;

const OP: &str = "Compress";

pub(super) fn run(
    x: &Tensor,
    condition: &Tensor,
    axis: Option<usize>,
) -> Result<Tensor, HostError> {
    if condition.dtype() != DType::Bool {
        return Err(HostError::Type { op: OP, what: "condition", dtype: condition.dtype() });
    }
    match axis {
        None => along(&copy(OP, x)?.reshaped(&[x.len()]), condition.as_slice(), 0),
        Some(axis) => {
            check_axis(OP, x.rank(), axis)?;
            along(x, condition.as_slice(), axis)
        }
    }
}

fn along(x: &Tensor, condition: &[bool], axis: usize) -> Result<Tensor, HostError> {
    let view = AxisView::new(x, axis);
    let kept = list(OP, (0..view.extent.min(condition.len())).filter(|&i| condition[i]))?;
    let mut y = zeros(OP, x.dtype(), &with_extent(x, axis, kept.len()))?;
    let to = AxisView { extent: kept.len(), ..view };
    let (size, run) = (x.dtype().size(), view.inner * x.dtype().size());
    for outer in 0..view.outer {
        for (at, &source) in kept.iter().enumerate() {
            let read = view.offset(outer, source, 0) * size;
            let write = to.offset(outer, at, 0) * size;
            y.bytes_mut()[write..write + run].copy_from_slice(&x.bytes()[read..read + run]);
        }
    }
    Ok(y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_rows_and_columns() {
        let x = Tensor::from_slice(&[3, 2], &[1i16, 2, 3, 4, 5, 6]);
        let condition = |c: &[bool]| Tensor::from_slice(&[c.len()], c);
        let flat = run(&x, &condition(&[false, true, false, false, true]), None).unwrap();
        assert_eq!(flat.as_slice::<i16>(), [2, 5]);
        let rows = run(&x, &condition(&[false, true, true]), Some(0)).unwrap();
        assert_eq!(rows, Tensor::from_slice(&[2, 2], &[3i16, 4, 5, 6]));
        let column = run(&x, &condition(&[false, true]), Some(1)).unwrap();
        assert_eq!(column, Tensor::from_slice(&[3, 1], &[2i16, 4, 6]));
    }

    #[test]
    fn a_long_condition_is_cut() {
        let x = Tensor::from_slice(&[1], &[7u8]);
        let condition = Tensor::from_slice(&[3], &[true, true, true]);
        assert_eq!(run(&x, &condition, Some(0)).unwrap(), x);
    }
}
