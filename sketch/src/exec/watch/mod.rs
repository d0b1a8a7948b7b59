//! Runs some thread blocks of each kernel and watches what their threads touch.
//!
//! In: a lowered [`GpuProgram`]. That no two thread blocks get in each other's way was shown when it was lowered, so that a
//! few of them tell of all: the corners of the grid, where guarded tails are, and some between ([`Blocks`]). Checked for
//! every access of every thread that runs: indices in bounds, iterators in their ranges, nothing read from shared or local
//! memory that nothing wrote, and between two barriers no element that two threads touch and one writes.
//! Global memory counts as written, with zeros; whether results are complete is for [`run`](super::run()) to say.
//!
//! Where indices and guards follow from loops and threads alone, nothing is computed: all threads of a block go through a
//! statement together (`team`), and each access over those loops only that it depends on (`plan`). Of a branch that
//! depends on data, both sides are taken. Kernels whose indices depend on data are run on zeros, thread by thread.
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

use super::{ExecError, Machine};
use crate::gpu::{GpuProgram, Kernel};

/// How much was watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watched {
    pub kernels: usize,
    /// Those whose indices depend on data.
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
    gpu.kernels.iter().map(|kernel| watch_kernel(gpu, kernel, &blocks.of(kernel))).sum()
}

fn watch_kernel(
    gpu: &GpuProgram,
    kernel: &Kernel,
    blocks: &[[usize; 3]],
) -> Result<Watched, ExecError> {
    let plan = plan::plan(&gpu.program, kernel);
    match &plan {
        Some(plan) => team::run(&gpu.program, kernel, plan, blocks)?,
        None => by_value(gpu, kernel, blocks)?,
    }
    Ok(Watched { kernels: 1, by_value: usize::from(plan.is_none()), blocks: blocks.len() })
}

fn by_value(gpu: &GpuProgram, kernel: &Kernel, blocks: &[[usize; 3]]) -> Result<(), ExecError> {
    let alone = GpuProgram { program: gpu.program.clone(), kernels: vec![kernel.clone()] };
    let form = alone.checked_form();
    let [x, y, _] = kernel.grid.map(|axis| axis.extent);
    let numbers = blocks.iter().map(|[bx, by, bz]| bx + x * (by + y * bz)).collect();
    let mut machine = Machine::of_blocks(&form, numbers)?;
    machine.stmts(&form.body)
}
