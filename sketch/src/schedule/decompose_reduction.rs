//! decompose_reduction: the initialisation of a reduction as a block of its own.
//!
//! ```text
//! for i { for k { block mm: c[i] sum= x init } }
//! => decompose_reduction(mm, k)
//! for i { block mm_init: c[i] = 0   for k { block mm: c[i] sum= x } }
//! ```

use ansc_graph::VarId;

use super::copies::Twins;
use super::error::{Cause, Failure};
use super::query::{block_at, block_path, bound_to, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::decompose;
use crate::program::{IterKind, Program};
use crate::tree::{self, Path};

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Initialises just before the loop `l`, from which on every loop around the block binds one of
    /// its iterators; returns the name of the new block (of an arg-reduction, of the one that
    /// initialises positions).
    pub fn decompose_reduction(&mut self, block: &str, l: LoopRef) -> Result<String> {
        let (init, twins) = self.apply("decompose_reduction", |program| {
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
            let init = decompose::decompose(program, &path, depth);
            let twins = twins(program, &init, block, depth)?;
            Ok((init, twins))
        })?;
        self.copy_all_notes(&twins);
        Ok(init)
    }
}

/// Loops of the block from `depth` on that its initial value has, too, and those of the latter.
fn twins(program: &Program, init: &str, block: &str, depth: usize) -> Checked<Twins> {
    let (of_init, of_block) = (block_path(program, init)?, block_path(program, block)?);
    let spatial = bound_to(block_at(program, &of_block), IterKind::Spatial);
    let below = |path: &Path| -> Vec<VarId> {
        tree::loops_above(&program.body, path)[depth..].iter().map(|l| l.var).collect()
    };
    let kept = below(&of_block).into_iter().filter(|v| spatial.contains(v));
    let loops = kept.zip(below(&of_init)).collect();
    Ok(Twins { loops, blocks: vec![] })
}

/// Whether a loop, from the one at `target` on, lets the block compute the same more than once.
fn repeats(program: &Program, path: &Path, target: &Path) -> bool {
    let block = block_at(program, path);
    let binds = |v: VarId| block.iters.iter().any(|i| i.binding.vars().contains(&v));
    let loops = tree::loops_above(&program.body, path);
    loops[target.len() - 1..].iter().any(|l| l.extent > 1 && !binds(l.var))
}
