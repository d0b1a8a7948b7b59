//! set_scope: where a buffer lives.
//!
//! ```text
//! mm: f32[64, 64] global
//! => set_scope(mm, local)
//! mm: f32[64, 64] local
//! ```
//! `finish` shrinks local buffers to the part that one iteration of their home loop uses.

use super::error::{Cause, buffer_name};
use super::moves::{check_parallel, is_internal};
use super::query::buffer_named;
use super::{Result, Schedule};
use crate::program::Scope;

impl Schedule {
    pub fn set_scope(&mut self, buffer: &str, scope: Scope) -> Result<()> {
        self.apply("set_scope", |program| {
            let id = buffer_named(program, buffer)?;
            if !is_internal(program, id) || matches!(scope, Scope::Input | Scope::Output) {
                let buffer = buffer_name(program, id);
                return Err(Cause::Fixed { buffer }.at_buffer(id));
            }
            program.buffers[id.index()].scope = scope;
            check_parallel(program)
        })
    }
}
