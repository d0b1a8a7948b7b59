//! The schedule of a kernel that nobody tuned: a deterministic choice that is decent everywhere.
//!
//! In: a [`Compute`] and which of its inputs are constants. Out: a [`Program`] that computes the same
//! function, and the [`Packing`]s of constants it wants. What it does:
//!
//! 1. `inline`: stages that only move or cheaply transform elements vanish into their readers.
//! 2. A reduction that uses elements more than once (matrix products, convolutions) becomes a
//!    register-tiled nest with its epilogue (`tile`); operands that the vector axis walks are packed.
//! 3. Pairs of stages that transform small squares of elements are written out in registers (`transform`).
//! 4. Neighbouring stages that agree on their leading axes (softmax, layer normalisation) share one
//!    loop over rows, with row buffers that stay in the cache (`rows`).
//! 5. A stage that reads an operand across its rows goes through it in squares (`transpose`).
//! 6. Everything else is a nest of its own: outer axes parallel, the innermost one in vectors.
//!
//! Loops are cut into whole vectors and peeled tails, so that no iteration is guarded.

mod build;
mod gpu;
mod inline;
mod knobs;
mod rows;
mod stage;
mod tile;
mod transform;
mod transpose;
mod usage;

use ansc_graph::Compute;

use crate::finish::finish;
use crate::packed::Packing;
use crate::program::Program;
use build::Builder;
pub(crate) use gpu::{bind_points, bind_threads};
pub use gpu::{gpu_program, gpu_schedule};
use inline::Padding;
pub use knobs::{Knob, Knobs};

/// What the default schedule needs to know of a CPU.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Machine {
    pub vector_bytes: usize,
    /// Architectural vector registers.
    pub registers: usize,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Scheduled {
    pub program: Program,
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

/// The schedule with these choices; afterwards `knobs` knows on which of them it depended.
pub fn schedule_with(
    name: &str,
    compute: &Compute,
    constant: &[bool],
    machine: &Machine,
    knobs: &Knobs,
) -> Scheduled {
    let compute = inline::inline(compute, Padding::Inlined);
    let mut builder = Builder::new(name, &compute, constant, machine, knobs);
    // Of an empty tensor nothing is computed.
    let mut done: Vec<bool> = compute.stages.iter().map(|s| s.ty.is_empty()).collect();
    for stage in 0..compute.stages.len() {
        if done[stage] {
            continue;
        }
        let covered = transform::schedule(&mut builder, stage, &done)
            .or_else(|| tile::schedule(&mut builder, stage, &done))
            .or_else(|| rows::schedule(&mut builder, stage))
            .or_else(|| transpose::schedule(&mut builder, stage))
            .unwrap_or_else(|| stage::schedule(&mut builder, stage));
        covered.into_iter().for_each(|s| done[s] = true);
    }
    let (program, packings) = builder.done();
    Scheduled { program: finish(program), packings }
}
