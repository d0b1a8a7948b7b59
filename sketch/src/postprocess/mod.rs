//! From a sampled schedule to a program for code generation.
//!
//! A trace says how loops are tiled and where blocks are computed; what follows from that and from
//! the machine is done here, after every replay, so that it fits whatever was decided:
//!
//! 1. `privatise`: buffers that one iteration fills and uses become local;
//! 2. `layout`: constants lie in the order in which the tiles go through them;
//! 3. `peel`: tiles that overrun are parted from those that do not;
//! 4. `parallel`: the outermost spatial loops of each nest are fused and run by several threads, as
//!    many as give enough iterations, or as a block's [`PARALLEL`](crate::notes::PARALLEL) says;
//! 5. `vectorize`: the innermost spatial loop of each block becomes a vector of as many registers
//!    as a block's [`VECTORS`](crate::notes::VECTORS) says;
//! 6. `unroll`: loops around a block that carries [`UNROLL`](crate::notes::UNROLL) are written out
//!    up to that many iterations.
//!
//! A step that a primitive refuses is left out; the program stays valid.

mod gpu;
mod layout;
mod parallel;
mod peel;
mod privatise;
mod unroll;
mod vectorize;

#[cfg(test)]
mod tests;

pub use gpu::{bound_program, postprocess_gpu};

use crate::finish;
use crate::program::{ForKind, IterKind, Stmt};
use crate::schedule::{LoopRef, Schedule};
use crate::scheduled::Scheduled;

/// The properties of the machine that the steps need to know.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Machine {
    /// Cores that parallel loops are spread over.
    pub cores: usize,
    /// Bytes of a vector register.
    pub vector_bytes: usize,
}

/// `constant`: which parameters are known when compiling.
pub fn postprocess(mut schedule: Schedule, constant: &[bool], machine: &Machine) -> Scheduled {
    let enough = 16 * machine.cores;
    privatise::privatise(&mut schedule);
    let packings = layout::pack_constants(&mut schedule, constant);
    peel::peel(&mut schedule, enough);
    parallel::parallel(&mut schedule, enough);
    vectorize::vectorize(&mut schedule, machine.vector_bytes);
    unroll::unroll(&mut schedule);
    Scheduled { program: finish(schedule.into_program()), packings }
}

/// Whether the loop is serial and runs over spatial iterators only.
fn is_free(schedule: &Schedule, l: LoopRef) -> bool {
    schedule.for_loop(l).is_ok_and(|f| f.kind == ForKind::Serial)
        && schedule.loop_serves(l, IterKind::Reduce).is_ok_and(|reduces| !reduces)
}

/// The loops from a statement of the root inwards, as long as each contains nothing but the next.
fn chain(stmt: &Stmt) -> Vec<LoopRef> {
    let mut loops = vec![];
    let mut at = stmt;
    while let Stmt::For(l) = at {
        loops.push(LoopRef(l.var));
        match l.body.as_slice() {
            [only] => at = only,
            _ => break,
        }
    }
    loops
}
