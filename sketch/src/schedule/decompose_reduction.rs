//! decompose_reduction: the initialisation of a reduction as a block of its own.
//!
//! ```text
//! for i { for k { block mm: c[i] sum= x init } }
//! => decompose_reduction(mm, k)
//! for i { block mm_init: c[i] = 0   for k { block mm: c[i] sum= x } }
//! ```

use super::error::Cause;
use super::query::{block_at, block_path, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::decompose;

impl Schedule {
    /// Initialises just before the loop `l`; returns the name of the new block (of an
    /// arg-reduction, of the one that initialises positions).
    pub fn decompose_reduction(&mut self, block: &str, l: LoopRef) -> Result<String> {
        self.apply("decompose_reduction", |program| {
            let path = block_path(program, block)?;
            let target = loop_path(program, l)?;
            if !path.starts_with(&target) {
                return Err(Cause::NotUnder.at_loop(l));
            }
            if !block_at(program, &path).has_init() {
                return Err(Cause::NotInitialising.at_block(block));
            }
            let depth = target.len() - 1;
            if decompose::outermost_reduction(program, &path) < depth {
                return Err(Cause::ReductionFurtherOut.at_loop(l));
            }
            Ok(decompose::decompose(program, &path, depth))
        })
    }
}
