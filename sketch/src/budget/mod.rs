//! How much code a program becomes, told before any is made; and programs that would become too
//! much.
//!
//! Code takes the square of its length to compile, so one long kernel is worse than many: a
//! schedule that writes out too much is refused ([`check`]), or its loops are rolled up until what
//! is left fits ([`fitted`]).
//!
//! # The model
//! In: a finished program. Out: about how many instructions code generation makes of it, on
//! vectors of the machine:
//! - the distinct expressions of a block count once each, by a table of operations (`weights`);
//!   functions that are called count for each lane;
//! - times the vectors that the lanes of a vectorised loop take. An access counts once for each
//!   vector if lanes lie side by side, once for each lane if they do not, and with all of its index
//!   for each lane if that depends on data or is no sum of variables;
//! - times the iterations of the unrolled loops that an expression depends on, for what is the same
//!   in several copies is computed once; what is stored, or added to a sum, counts in each copy.
//!   Conditions that unrolled loops decide are decided for some of the copies, which stand for all;
//! - local buffers that no loop indexes are registers, as long as the processor has that many;
//! - each address that differs by more than a constant is computed once, and each loop counts.
//!
//! It leaves out moves between registers, the memory that registers are saved to when there are too
//! few, and prefetches.

mod fit;
mod value;
mod walk;
mod weights;

#[cfg(test)]
mod tests;

pub use fit::fitted;

use crate::machine::{Correction, Machine, Units};
use crate::program::Program;
use walk::{Counting, Walk};

/// Instructions of such code that a core of the last decade issues in a cycle.
pub const ISSUED: f64 = 3.0;

/// Instructions that a kernel may have.
pub const BUDGET: usize = 16 << 10;

/// A GPU's threads compute one element at a time, and have more registers than a schedule uses;
/// how many they copy at once is known to [`lowering`](crate::lowering). A program has instructions
/// of warps only where there are such.
pub const GPU: Machine = Machine {
    vector_bytes: 4,
    registers: 255,
    units: Units { mma: true, ..Units::NONE },
    correction: Correction(None),
};

/// A program that would become too much code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("code too large: about {instructions} instructions, and a kernel may have {most}")]
pub struct CodeTooLarge {
    /// Instructions of the kernel, as estimated.
    pub instructions: usize,
    /// Instructions that a kernel may have.
    pub most: usize,
}

/// About how many instructions a finished program becomes.
pub fn code_size(program: &Program, machine: &Machine) -> usize {
    Walk::of(program, machine, Counting::Code).instructions()
}

/// About how many instructions one run of a finished program issues, by all threads together.
pub fn issued(program: &Program, machine: &Machine) -> usize {
    Walk::of(program, machine, Counting::Issued).instructions()
}

/// Whether a finished program becomes no more code than a kernel may have.
pub fn check(program: &Program, machine: &Machine) -> Result<(), CodeTooLarge> {
    let instructions = code_size(program, machine);
    match instructions <= BUDGET {
        true => Ok(()),
        false => Err(CodeTooLarge { instructions, most: BUDGET }),
    }
}
