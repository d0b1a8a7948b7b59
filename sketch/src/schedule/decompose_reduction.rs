//! decompose_reduction: the initialisation of a reduction as a block of its own.
//!
//! ```text
//! for i { for k { block mm: c[i] sum= x init } }
//! => decompose_reduction(mm, k)
//! for i { block mm_init: c[i] = 0   for k { block mm: c[i] sum= x } }
//! ```

use ansc_graph::VarId;

use super::error::Cause;
use super::query::{block_at, block_path, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::decompose;
use crate::program::Program;
use crate::tree::{self, Path};

impl Schedule {
    /// Initialises just before the loop `l`, from which on every loop around the block binds one of
    /// its iterators; returns the name of the new block (of an arg-reduction, of the one that
    /// initialises positions).
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
            if repeats(program, &path, &target) {
                return Err(Cause::RepeatedTerms.at_loop(l));
            }
            let depth = target.len() - 1;
            if decompose::outermost_reduction(program, &path) < depth {
                return Err(Cause::ReductionFurtherOut.at_loop(l));
            }
            Ok(decompose::decompose(program, &path, depth))
        })
    }
}

/// Whether a loop, from the one at `target` on, lets the block compute the same more than once.
fn repeats(program: &Program, path: &Path, target: &Path) -> bool {
    let block = block_at(program, path);
    let binds = |v: VarId| block.iters.iter().any(|i| i.binding.vars().contains(&v));
    let loops = tree::loops_above(&program.body, path);
    loops[target.len() - 1..].iter().any(|l| l.extent > 1 && !binds(l.var))
}
