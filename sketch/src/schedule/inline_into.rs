//! inline_into: one reader computes what another block assigns, which stays for the others.
//!
//! ```text
//! t[i] = f(i)   u[j] = g(t[j])   w[k] = h(t[k])
//! => inline_into(t, u)
//! t[i] = f(i)   u[j] = g(f(j))   w[k] = h(t[k])
//! ```

use super::compute_inline::{assignment, check_size, inlinable_axes, inlined};
use super::error::{Cause, Failure, buffer_name};
use super::moves::{check_only_writer, check_producers};
use super::query::{block_at, block_at_mut, block_path};
use super::{Result, Schedule};
use crate::program::Program;

impl Schedule {
    /// `reader` computes the elements of `block`, which assigns without reducing, in place of
    /// loading them. The block may write a result of the program.
    pub fn inline_into(&mut self, block: &str, reader: &str) -> Result<()> {
        self.apply("inline_into", |program| inline_into(program, block, reader))
    }
}

fn inline_into(
    program: &mut Program,
    name: &str,
    reader: &str,
) -> std::result::Result<(), Failure> {
    let (path, reader_path) = (block_path(program, name)?, block_path(program, reader)?);
    check_only_writer(program, &path)?;
    let block = block_at(program, &path);
    let (dst, value) = assignment(block)?;
    let axes = inlinable_axes(block, &dst)?;
    if name == reader || !block_at(program, &reader_path).reads().contains(&dst.buffer) {
        let buffer = buffer_name(program, dst.buffer);
        return Err(Cause::NotAccessed { buffer }.at_block(reader));
    }
    if reader_path < path {
        return Err(Cause::AfterConsumer(reader.to_owned()).at_block(name));
    }
    check_producers(program, &path, &reader_path)?;
    check_size(block_at(program, &reader_path), dst.buffer, &axes, &value)?;
    block_at_mut(program, &reader_path).visit_exprs_mut(&mut |e| {
        *e = e.rewrite(&mut |node| inlined(node, dst.buffer, &axes, &value));
    });
    Ok(())
}
