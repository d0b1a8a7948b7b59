//! transform_layout: the elements of a buffer in other places.
//!
//! ```text
//! t: f32[8, 64]   t[i, j] = ..   .. t[i, j] ..
//! => transform_layout(t, (v0, v1) -> (floor_div(v1, 16), v0, floor_mod(v1, 16)))
//! t: f32[4, 8, 16]   t[j // 16, i, j % 16] = ..   .. t[j // 16, i, j % 16] ..
//! ```
//! A map that leaves gaps is refused: what copies a whole buffer would read them.

use ansc_graph::{BufId, Expr};

use super::error::{Cause, Failure, buffer_name};
use super::moves::{check_parallel, is_internal};
use super::query::buffer_named;
use super::{Result, Schedule};
use crate::affine::{self, Extents};
use crate::index_map::IndexMap;
use crate::program::{Block, Program};
use crate::tree;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Puts element `x` of the buffer at `map(x)`, wherever it is read or written. The buffer is
    /// neither an input nor a result; the map is a bijection of its places.
    pub fn transform_layout(&mut self, buffer: &str, map: &IndexMap) -> Result<()> {
        self.apply("transform_layout", |program| {
            let id = buffer_named(program, buffer)?;
            if !is_internal(program, id) {
                return Err(Cause::Fixed { buffer: buffer_name(program, id) }.at_buffer(id));
            }
            let before = program.buffer(id).ty.len();
            lay_out(program, id, map)?;
            if program.buffer(id).ty.len() != before {
                return Err(Cause::Map("it leaves gaps".into()).at_buffer(id));
            }
            check_parallel(program)
        })
    }
}

/// Changes the type of the buffer and every access to it. The map may leave gaps.
pub(super) fn lay_out(program: &mut Program, id: BufId, map: &IndexMap) -> Checked<()> {
    let shape = &program.buffer(id).ty.shape;
    let refused = |what: &str| Cause::Map(what.to_owned()).at_buffer(id);
    if program.buffer(id).align.is_some() {
        return Err(Cause::Aligned { buffer: buffer_name(program, id) }.at_buffer(id));
    }
    if map.inputs() != shape.len() {
        return Err(refused("it has another number of axes"));
    }
    if !map.is_injective(shape) {
        return Err(refused("elements would share a place"));
    }
    let mapped = map.shape(shape).ok_or_else(|| refused("places are not numbered from 0"))?;
    program.buffers[id.index()].ty.shape = mapped;
    let extents = Extents::of(program);
    tree::visit_blocks_mut(&mut program.body, &mut |block| redirect(block, id, map, &extents));
    Ok(())
}

fn redirect(block: &mut Block, id: BufId, map: &IndexMap, extents: &Extents) {
    let place = |at: &[Expr]| -> Vec<Expr> {
        map.apply(at).iter().map(|e| affine::simplify(e, extents)).collect()
    };
    block.visit_accesses_mut(&mut |buffer, indices| {
        if *buffer == id {
            *indices = place(indices);
        }
    });
}
