//! A tensor seen as `[outer, extent, inner]` around one axis.

use crate::tensor::Tensor;

#[derive(Clone, Copy)]
pub(super) struct AxisView {
    pub(super) outer: usize,
    pub(super) extent: usize,
    pub(super) inner: usize,
}

impl AxisView {
    /// `axis` must be an axis of the tensor.
    pub(super) fn new(tensor: &Tensor, axis: usize) -> AxisView {
        AxisView::of(tensor.shape(), axis)
    }

    /// The view of any tensor of this shape, which must have the axis.
    pub(super) fn of(shape: &[usize], axis: usize) -> AxisView {
        AxisView {
            outer: shape[..axis].iter().product(),
            extent: shape[axis],
            inner: shape[axis + 1..].iter().product(),
        }
    }

    pub(super) fn offset(&self, outer: usize, at: usize, inner: usize) -> usize {
        (outer * self.extent + at) * self.inner + inner
    }
}

/// The shape of `tensor` with `extent` along `axis`.
pub(super) fn with_extent(tensor: &Tensor, axis: usize, extent: usize) -> Vec<usize> {
    let mut shape = tensor.shape().to_vec();
    shape[axis] = extent;
    shape
}
