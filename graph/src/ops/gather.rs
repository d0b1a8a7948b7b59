//! `Gather`, `GatherElements`, `GatherND`: elements at indices that are data.
//!
//! ```text
//! gather(f32[5, 3], i64[2], 0)
//! ->  gather: f32[2, 3] = b0[clamped(b1[v0]), v1]
//! ```
//!
//! An index out of range is clamped into it (see [`clamped`]), lest it lead out of the data. That
//! it is an error is the business of a check beside the operator (`HostOp::CheckIndices`), which
//! importers add.

use super::index::{check_axis, check_index_type, check_not_empty, clamped, own};
use super::{OpError, sized};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};

/// Slices of `data` along `axis`; the axes of `indices` take the place of `axis`.
pub fn gather(data: &TensorType, indices: &TensorType, axis: usize) -> Result<ComputeOp, OpError> {
    check_axis(axis, data.rank())?;
    check_index_type(indices)?;
    let (head, tail) = (&data.shape[..axis], &data.shape[axis + 1..]);
    let out = sized(TensorType::new(data.dtype, [head, &indices.shape, tail].concat()))?;
    check_not_empty(data.shape[axis], out.len())?;
    let at = (axis..axis + indices.rank()).map(Expr::var).collect();
    let mut source: Vec<Expr> = (0..axis).map(Expr::var).collect();
    source.push(index(1, at, indices, data.shape[axis]));
    source.extend((axis + indices.rank()..out.rank()).map(Expr::var));
    Ok(finish("Gather", out, source, data, indices))
}

/// `y[i, j, ..] = data[i, indices[i, j, ..], ..]`, the index replacing the coordinate of `axis`.
pub fn gather_elements(
    data: &TensorType,
    indices: &TensorType,
    axis: usize,
) -> Result<ComputeOp, OpError> {
    check_axis(axis, data.rank())?;
    check_index_type(indices)?;
    let fits = |(i, (n, m)): (usize, (&usize, &usize))| i == axis || n <= m;
    let pairs = indices.shape.iter().zip(&data.shape);
    if indices.rank() != data.rank() || !pairs.enumerate().all(fits) {
        return Err(OpError::Invalid(format!(
            "indices of shape {:?} do not fit data of shape {:?} along axis {axis}",
            indices.shape, data.shape
        )));
    }
    let out = sized(TensorType::new(data.dtype, indices.shape.clone()))?;
    check_not_empty(data.shape[axis], out.len())?;
    let mut source = own(data.rank());
    source[axis] = index(1, own(data.rank()), indices, data.shape[axis]);
    Ok(finish("GatherElements", out, source, data, indices))
}

/// The last axis of `indices` holds coordinates for the axes of `data` after the first
/// `batch_dims`, which both tensors share.
pub fn gather_nd(
    data: &TensorType,
    indices: &TensorType,
    batch_dims: usize,
) -> Result<ComputeOp, OpError> {
    check_index_type(indices)?;
    let invalid = || {
        OpError::Invalid(format!(
            "indices of shape {:?} do not fit data of shape {:?} with {batch_dims} batch axes",
            indices.shape, data.shape
        ))
    };
    let (&depth, tuples) = indices.shape.split_last().ok_or_else(invalid)?;
    let sliced = depth.checked_add(batch_dims).filter(|&n| n <= data.rank()).ok_or_else(invalid)?;
    if tuples.len() < batch_dims || tuples[..batch_dims] != data.shape[..batch_dims] {
        return Err(invalid());
    }
    let out = sized(TensorType::new(data.dtype, [tuples, &data.shape[sliced..]].concat()))?;
    let mut source: Vec<Expr> = (0..batch_dims).map(Expr::var).collect();
    for component in 0..depth {
        let extent = data.shape[batch_dims + component];
        check_not_empty(extent, out.len())?;
        let mut at = own(tuples.len());
        at.push(Expr::index(component));
        source.push(index(1, at, indices, extent));
    }
    source.extend((tuples.len()..out.rank()).map(Expr::var));
    Ok(finish("GatherND", out, source, data, indices))
}

/// The index that buffer `buffer` holds at `at`. On an empty axis nothing is ever read.
fn index(buffer: usize, at: Vec<Expr>, indices: &TensorType, extent: usize) -> Expr {
    clamped(Expr::load(buffer, at), indices.dtype, extent.max(1))
}

fn finish(
    name: &str,
    out: TensorType,
    source: Vec<Expr>,
    data: &TensorType,
    indices: &TensorType,
) -> ComputeOp {
    let stage = Stage::map("gather", out, Expr::load(0, source));
    let expr = Compute::single(vec![data.clone(), indices.clone()], stage);
    ComputeOp::new(Kind::Other(name.into()), expr)
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;

    use super::*;

    fn ty(dtype: DType, shape: &[usize]) -> TensorType {
        TensorType::new(dtype, shape)
    }

    #[test]
    fn shapes() {
        let data = ty(DType::F32, &[2, 5, 3]);
        let shape =
            |op: Result<ComputeOp, OpError>| op.unwrap().expr.output_types()[0].shape.clone();
        assert_eq!(shape(gather(&data, &ty(DType::I32, &[4, 6]), 1)), [2, 4, 6, 3]);
        assert_eq!(shape(gather(&data, &ty(DType::I64, &[]), 0)), [5, 3]);
        assert_eq!(shape(gather_nd(&data, &ty(DType::I64, &[7, 2]), 0)), [7, 3]);
        assert_eq!(shape(gather_nd(&data, &ty(DType::I64, &[2, 7, 1]), 1)), [2, 7, 3]);
        assert_eq!(shape(gather_elements(&data, &ty(DType::I64, &[2, 9, 1]), 1)), [2, 9, 1]);
    }

    #[test]
    fn what_cannot_be_gathered() {
        let data = ty(DType::F32, &[2, 5]);
        assert!(gather(&data, &ty(DType::F32, &[1]), 0).is_err());
        assert!(gather(&data, &ty(DType::I64, &[1]), 2).is_err());
        assert!(gather(&ty(DType::F32, &[0]), &ty(DType::I64, &[1]), 0).is_err());
        assert!(gather(&ty(DType::F32, &[0]), &ty(DType::I64, &[0]), 0).is_ok());
        assert!(gather_elements(&data, &ty(DType::I64, &[3, 5]), 1).is_err());
        assert!(gather_nd(&data, &ty(DType::I64, &[1, 3]), 0).is_err());
        assert!(gather_nd(&data, &ty(DType::I64, &[3, 1]), 1).is_err());
        assert!(gather_nd(&data, &ty(DType::I64, &[]), 0).is_err());
    }
}
