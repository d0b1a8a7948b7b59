//! Axes get the strides that `storage_align` asked for: the axis inside of each grows by elements
//! that nothing touches.
//!
//! ```text
//! a: f32[64, 32] shared align(0, 32, 8)   =>   a: f32[64, 40] shared
//! ```

use crate::program::{Align, Program};

pub(super) fn align_buffers(program: &mut Program) {
    for buffer in program.buffers.iter_mut() {
        if let Some(align) = buffer.align.take()
            && let Some(length) = padded(&buffer.ty.shape, align)
        {
            buffer.ty.shape[align.axis + 1] = length;
        }
    }
}

/// The least length of the axis inside of the aligned one that gives the stride, if one does.
pub(crate) fn padded(shape: &[usize], align: Align) -> Option<usize> {
    let inner: usize = shape.get(align.axis + 2..)?.iter().product();
    let length = *shape.get(align.axis + 1)?;
    let fits = |n: &usize| n.checked_mul(inner).is_some_and(|s| s % align.factor == align.offset);
    (length..length.checked_add(align.factor)?).find(fits)
}
