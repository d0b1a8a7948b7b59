//! Indices that are data, and other index arithmetic that several operator families share.

use ansc_runtime::DType;

use super::OpError;
use crate::compute::TensorType;
use crate::expr::Expr;

/// The `i64` index that element `index` of type `dtype` stands for on an axis of `extent` elements:
/// negative values count from the end, and what is out of range is clamped into it, so that no
/// value of an index tensor can lead outside of the data. `extent` must not be zero.
pub fn clamped(index: Expr, dtype: DType, extent: usize) -> Expr {
    let last = Expr::index(extent - 1);
    let index = Expr::cast(dtype, DType::I64, index);
    if dtype == DType::Bool || (dtype.is_unsigned_int() && dtype != DType::U64) {
        return index.min(last);
    }
    wrapped(index, extent).min(last).max(Expr::int(0))
}

/// `index`, with negative values counted from the end of an axis of `extent` elements.
pub fn wrapped(index: Expr, extent: usize) -> Expr {
    let from_end = index.clone() + Expr::index(extent);
    Expr::select(index.clone().lt(Expr::int(0)), from_end, index)
}

/// `v0, v1, ..` of a result of rank `rank`.
pub(crate) fn own(rank: usize) -> Vec<Expr> {
    (0..rank).map(Expr::var).collect()
}

/// `x + by`, left as `x` where `by` is zero.
pub(crate) fn shifted(x: Expr, by: i64) -> Expr {
    if by == 0 { x } else { x + Expr::int(by) }
}

/// `x * by`, left as `x` where `by` is one.
pub(crate) fn scaled(x: Expr, by: i64) -> Expr {
    if by == 1 { x } else { x * Expr::int(by) }
}

pub(crate) fn check_axis(axis: usize, rank: usize) -> Result<(), OpError> {
    if axis < rank { Ok(()) } else { Err(OpError::Axis { axis, rank }) }
}

/// Index tensors may have any integer type.
pub(crate) fn check_index_type(indices: &TensorType) -> Result<(), OpError> {
    if indices.dtype.is_int() {
        return Ok(());
    }
    Err(OpError::DType { what: "the indices", expected: "an integer".into(), found: indices.dtype })
}

/// A result of `len` elements can only be read from an axis that has some.
pub(crate) fn check_not_empty(extent: usize, len: usize) -> Result<(), OpError> {
    if extent == 0 && len != 0 {
        return Err(OpError::Invalid("no index is valid on an axis without elements".into()));
    }
    Ok(())
}
