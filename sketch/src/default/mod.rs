//! The schedule of a kernel that nobody tuned: a deterministic choice that is decent everywhere.
//!
//! In: a [`Compute`] and which of its inputs are constants. Out: a [`Program`] that computes the
//! same function, and the [`Packing`]s of constants it wants. What it does:
//!
//! 1. `inline`: stages that only move or cheaply transform elements vanish into their readers.
//! 2. A reduction that uses elements more than once (matrix products, convolutions) becomes a
//!    register-tiled nest with its epilogue (`tile`); operands that the vector axis walks are
//!    packed.
//! 3. Pairs of stages that transform small squares of elements are written out in registers
//!    (`transform`).
//! 4. Neighbouring stages that agree on their leading axes (softmax, layer normalisation) share one
//!    loop over rows, with row buffers that stay in the cache (`rows`).
//! 5. A stage that reads an operand across its rows goes through it in squares (`transpose`).
//! 6. Everything else is a nest of its own: outer axes parallel, the innermost one in vectors.
//!
//! Loops are cut into whole vectors and peeled tails, so that no iteration is guarded. Where all
//! this would become more code than a kernel may have (`budget`), less is written out.

mod build;
pub(crate) mod inline;
mod knobs;
mod rows;
mod stage;
pub(crate) mod tile;
mod transform;
mod transpose;
pub(crate) mod usage;

use ansc_graph::Compute;

use crate::budget::{self, BUDGET};
use crate::choices;
use crate::finish::finish;
use crate::packed::Packing;
use crate::program::Program;
use build::Builder;
use inline::Padding;
pub use knobs::{Knob, Knobs};
pub(crate) use transpose::{is_transposed, run_of};

/// What the default schedule needs to know of a CPU.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Machine {
    /// Bytes of a vector register.
    pub vector_bytes: usize,
    /// Architectural vector registers.
    pub registers: usize,
    /// Units for matrices.
    pub units: Units,
}

/// Units of a processor that multiply small matrices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Units {
    /// AMX for pairs of `bf16`.
    pub amx_bf16: bool,
    /// AMX for bytes, four at a time.
    pub amx_int8: bool,
    /// `mma.sync` of a GPU.
    pub mma: bool,
}

impl Machine {
    /// A processor with vectors alone.
    pub const fn new(vector_bytes: usize, registers: usize) -> Machine {
        let units = Units { amx_bf16: false, amx_int8: false, mma: false };
        Machine { vector_bytes, registers, units }
    }
}

/// A program that is scheduled, and its constants in the layouts that it reads.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheduled {
    /// Its parameters are those of the task, but for constants that are packed.
    pub program: Program,
    /// One for each parameter that is a constant in another form.
    pub packings: Vec<Packing>,
}

/// Padding to whole tiles takes room too: a sixteenth is no other form of the weights.
const PADDING: usize = 16;

impl Scheduled {
    /// Whether the constants take more room in the form in which the program reads them.
    pub fn enlarges(&self) -> bool {
        let before: usize = self.packings.iter().map(|p| p.compute.inputs[0].bytes()).sum();
        let after = self.packings.iter().flat_map(|p| p.compute.output_types());
        after.map(|ty| ty.bytes()).sum::<usize>() > before + before / PADDING
    }
}

/// What nobody tuned gets.
pub fn schedule(name: &str, compute: &Compute, constant: &[bool], machine: &Machine) -> Scheduled {
    schedule_with(name, compute, constant, machine, &Knobs::default())
}

/// The schedule with these choices; afterwards `knobs` knows on which of them it depended. If it
/// would become more code than a kernel may have, the first of these that does not: the same with
/// as little written out as the choices allow; that with loops rolled up; the naive program.
pub fn schedule_with(
    name: &str,
    compute: &Compute,
    constant: &[bool],
    machine: &Machine,
    knobs: &Knobs,
) -> Scheduled {
    let inlined = inline::inline(compute, Padding::Inlined);
    let with = |knobs: &Knobs| build(name, &inlined, constant, machine, knobs);
    let fits = |scheduled: &Scheduled| budget::check(&scheduled.program, machine).is_ok();
    let wanted = with(knobs);
    if fits(&wanted) {
        return wanted;
    }
    let less = with(&knobs.least_written_out());
    if fits(&less) {
        return less;
    }
    let rolled = Scheduled {
        program: budget::fitted(less.program, machine, BUDGET),
        packings: less.packings,
    };
    if fits(&rolled) {
        return rolled;
    }
    Scheduled { program: finish(crate::lower::lower(name, compute)), packings: vec![] }
}

/// Nests for all stages.
fn build(
    name: &str,
    compute: &Compute,
    constant: &[bool],
    machine: &Machine,
    knobs: &Knobs,
) -> Scheduled {
    let mut builder = Builder::new(name, compute, constant, machine, knobs);
    nests(&mut builder);
    let (program, packings) = builder.done();
    Scheduled { program: finish(choices::apart(program, machine)), packings }
}

fn nests(b: &mut Builder<'_>) {
    // Of an empty tensor nothing is computed.
    let mut done: Vec<bool> = b.compute.stages.iter().map(|s| s.ty.is_empty()).collect();
    for stage in 0..done.len() {
        if done[stage] {
            continue;
        }
        let covered = transform::schedule(b, stage, &done)
            .or_else(|| tile::schedule(b, stage, &done))
            .or_else(|| rows::schedule(b, stage))
            .or_else(|| transpose::schedule(b, stage))
            .unwrap_or_else(|| stage::schedule(b, stage));
        covered.into_iter().for_each(|s| done[s] = true);
    }
}
