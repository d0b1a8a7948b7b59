//! Runs some thread blocks of each kernel and watches what their threads touch.
//!
//! In: a lowered [`GpuProgram`]. That no two thread blocks get in each other's way was shown when
//! it was lowered, so that a few of them tell of all: the corners of the grid, where guarded tails
//! are, and some between ([`Blocks`]). Checked for every access of every thread that runs: indices
//! in bounds, iterators in their ranges, nothing read from shared or local memory that nothing
//! wrote, and between two barriers no element that two threads touch and one writes. Global memory
//! counts as written, with zeros; whether results are complete is for [`run`](crate::exec::run) to
//! say.
//!
//! Where indices and guards follow from loops and threads alone, nothing is computed: all threads
//! of a block go through a statement together (`team`), and each access over those loops only that
//! it depends on (`plan`). Of a branch that depends on data, both sides are taken. Kernels whose
//! indices depend on data, or which such a branch leads out of bounds, are run on zeros, thread by
//! thread.
//!
//! ```text
//! for k in 0..64 { for j in 0..8 { c[j] += a[k, tx] * b[k, j] } }       a: 64 steps, b: 512, c: 8, each for all of tx
//! ```

mod blocks;
mod lanes;
mod memory;
mod plan;
mod team;
#[cfg(test)]
mod tests;

pub use blocks::Blocks;

use std::collections::BTreeSet;

use super::GpuProgram;
use crate::exec::{self, ExecError};

/// How much was watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watched {
    pub kernels: usize,
    /// Those that had to be run on zeros.
    pub by_value: usize,
    /// Thread blocks that ran.
    pub blocks: usize,
}

impl std::iter::Sum for Watched {
    fn sum<I: Iterator<Item = Watched>>(parts: I) -> Watched {
        parts.fold(Watched::default(), |a, b| Watched {
            kernels: a.kernels + b.kernels,
            by_value: a.by_value + b.by_value,
            blocks: a.blocks + b.blocks,
        })
    }
}

/// Runs the chosen thread blocks of every kernel.
pub fn watch(gpu: &GpuProgram, blocks: Blocks) -> Result<Watched, ExecError> {
    (0..gpu.kernels.len()).map(|number| watch_kernel(gpu, number, blocks)).sum()
}

fn watch_kernel(gpu: &GpuProgram, number: usize, blocks: Blocks) -> Result<Watched, ExecError> {
    let kernel = &gpu.kernels[number];
    let blocks = blocks.of(kernel);
    let found = plan::plan(&gpu.program, kernel)
        .map(|plan| (team::run(&gpu.program, kernel, &plan, &blocks), plan.guesses));
    let by_value = match found {
        // The branch that leads there may be one that is not taken.
        None | Some((Err(ExecError::OutOfBounds { .. }), true)) => {
            by_value(gpu, number, &blocks)?;
            1
        }
        Some((found, _)) => {
            found?;
            0
        }
    };
    Ok(Watched { kernels: 1, by_value, blocks: blocks.len() })
}

/// After the kernels before it, completely, if it reads what one of them writes.
fn by_value(gpu: &GpuProgram, number: usize, blocks: &[[usize; 3]]) -> Result<(), ExecError> {
    let kernel = &gpu.kernels[number];
    let first = if reads_results(gpu, number) { 0 } else { number };
    let kernels = gpu.kernels[first..=number].to_vec();
    let form = GpuProgram { program: gpu.program.clone(), kernels }.checked_form();
    // A kernel is a loop over its blocks.
    let [x, y, _] = kernel.grid.map(|axis| axis.extent);
    exec::run_on_zeros(&form, blocks.iter().map(|[bx, by, bz]| bx + x * (by + y * bz)).collect())
}

fn reads_results(gpu: &GpuProgram, number: usize) -> bool {
    let (mut written, mut read) = (BTreeSet::new(), BTreeSet::new());
    for kernel in &gpu.kernels[..number] {
        kernel.visit_blocks(&mut |b| written.extend(b.body.writes().iter().map(|w| w.buffer)));
    }
    gpu.kernels[number].visit_blocks(&mut |b| read.extend(b.reads()));
    !read.is_disjoint(&written)
}
