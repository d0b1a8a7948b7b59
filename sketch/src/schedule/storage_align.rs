//! storage_align: the stride of an axis, so that rows do not fall on the same banks or sets.
//!
//! ```text
//! a: f32[64, 32] shared
//! => storage_align(a, 0, 32, 8)
//! a: f32[64, 32] shared align(0, 32, 8)
//! ```
//! `finish` then makes it `f32[64, 40]`, after it has shrunk buffers to what is used of them.

use super::error::{Cause, Failure, buffer_name};
use super::moves::is_internal;
use super::query::buffer_named;
use super::{Result, Schedule};
use crate::finish::align::padded;
use crate::program::{Align, Program};

/// No bank and no set is as large; lengths are tried one by one up to it.
const MOST_FACTOR: usize = 1 << 16;

impl Schedule {
    /// The stride of `axis` of the buffer, in elements, becomes `offset` more than a multiple of
    /// `factor`. The buffer is neither an input nor a result, and the axis not the last one.
    pub fn storage_align(
        &mut self,
        buffer: &str,
        axis: usize,
        factor: usize,
        offset: usize,
    ) -> Result<()> {
        let align = Align { axis, factor, offset };
        self.apply("storage_align", |program| storage_align(program, buffer, align))
    }
}

fn storage_align(
    program: &mut Program,
    name: &str,
    align: Align,
) -> std::result::Result<(), Failure> {
    let id = buffer_named(program, name)?;
    let buffer = buffer_name(program, id);
    let shape = &program.buffer(id).ty.shape;
    if !is_internal(program, id) {
        return Err(Cause::Fixed { buffer }.at_buffer(id));
    }
    if align.axis + 1 >= shape.len() {
        return Err(Cause::NoSuchAxis { axis: align.axis }.at_buffer(id));
    }
    let is_stride = align.offset < align.factor && align.factor <= MOST_FACTOR;
    if !is_stride || padded(shape, align).is_none() {
        return Err(Cause::Alignment { buffer }.at_buffer(id));
    }
    program.buffers[id.index()].align = Some(align);
    Ok(())
}
