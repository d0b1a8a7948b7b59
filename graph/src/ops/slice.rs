//! `Slice` and its relatives: an affine choice of elements along each axis.
//!
//! ```text
//! slice(f32[10, 4], [9, 1], [-2, 1], [5, 3])  ->  slice: f32[5, 3] = b0[v0 * -2 + 9, v1 + 1]
//! ```

use super::index::{check_axis, scaled, shifted};
use super::{OpError, sized};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};

/// Along axis `i` the elements `starts[i] + steps[i] * (0..extents[i])`.
pub fn slice(
    x: &TensorType,
    starts: &[i64],
    steps: &[i64],
    extents: &[usize],
) -> Result<ComputeOp, OpError> {
    if [starts.len(), steps.len(), extents.len()] != [x.rank(); 3] {
        return Err(OpError::Invalid(format!(
            "a slice of shape {:?} needs a start, a step and an extent for each axis",
            x.shape
        )));
    }
    for axis in 0..x.rank() {
        check_range(axis, x.shape[axis], starts[axis], steps[axis], extents[axis])?;
    }
    let out = sized(TensorType::new(x.dtype, extents))?;
    let index = |axis: usize| shifted(scaled(Expr::var(axis), steps[axis]), starts[axis]);
    let body = Expr::load(0, (0..x.rank()).map(index).collect());
    let stage = Stage::map("slice", out, body);
    Ok(ComputeOp::new(Kind::Slice, Compute::single(vec![x.clone()], stage)))
}

/// The elements `begin..begin + extent` of `axis`.
pub fn narrow(
    x: &TensorType,
    axis: usize,
    begin: usize,
    extent: usize,
) -> Result<ComputeOp, OpError> {
    check_axis(axis, x.rank())?;
    let begin = i64::try_from(begin).map_err(|_| OpError::TooLarge(x.clone()))?;
    let mut starts = vec![0; x.rank()];
    let mut extents = x.shape.clone();
    starts[axis] = begin;
    extents[axis] = extent;
    slice(x, &starts, &vec![1; x.rank()], &extents)
}

/// The slice at `index` of `axis`, which goes away.
pub fn select(x: &TensorType, axis: usize, index: usize) -> Result<ComputeOp, OpError> {
    check_axis(axis, x.rank())?;
    if index >= x.shape[axis] {
        return Err(out_of_range(axis, x.shape[axis]));
    }
    let mut shape = x.shape.clone();
    shape.remove(axis);
    let mut indices: Vec<Expr> = (0..shape.len()).map(Expr::var).collect();
    indices.insert(axis, Expr::index(index));
    let stage = Stage::map("slice", TensorType::new(x.dtype, shape), Expr::load(0, indices));
    Ok(ComputeOp::new(Kind::Slice, Compute::single(vec![x.clone()], stage)))
}

fn check_range(
    axis: usize,
    have: usize,
    start: i64,
    step: i64,
    extent: usize,
) -> Result<(), OpError> {
    if extent == 0 {
        return Ok(());
    }
    let last = i64::try_from(extent - 1)
        .ok()
        .and_then(|n| n.checked_mul(step))
        .and_then(|n| n.checked_add(start));
    let inside = |i: i64| usize::try_from(i).is_ok_and(|i| i < have);
    if inside(start) && last.is_some_and(inside) { Ok(()) } else { Err(out_of_range(axis, have)) }
}

fn out_of_range(axis: usize, extent: usize) -> OpError {
    OpError::Invalid(format!("the slice leaves axis {axis}, which has {extent} elements"))
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;

    use super::*;

    #[test]
    fn whole_axes_are_plain() {
        let x = TensorType::new(DType::F32, [10, 4, 2]);
        let op = slice(&x, &[9, 1, 0], &[-2, 1, 1], &[5, 3, 2]).unwrap();
        let indices = vec![
            Expr::var(0) * Expr::int(-2) + Expr::int(9),
            Expr::var(1) + Expr::int(1),
            Expr::var(2),
        ];
        assert_eq!(op.expr.stages[0].body, Expr::load(0, indices));
        assert_eq!(op.expr.output_types()[0].shape, [5, 3, 2]);
    }

    #[test]
    fn slices_stay_inside() {
        let x = TensorType::new(DType::F32, [10]);
        assert!(slice(&x, &[0], &[3], &[4]).is_ok());
        assert!(slice(&x, &[1], &[3], &[4]).is_err());
        assert!(slice(&x, &[8], &[-3], &[4]).is_err());
        assert!(slice(&x, &[99], &[1], &[0]).is_ok());
        assert!(slice(&x, &[i64::MAX], &[i64::MAX], &[9]).is_err());
        assert!(narrow(&x, 0, 4, 7).is_err());
        assert!(select(&x, 0, 10).is_err());
        assert_eq!(select(&x, 0, 9).unwrap().expr.output_types()[0].shape, [0usize; 0]);
    }
}
