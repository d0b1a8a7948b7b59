//! The GPU schedule of a kernel that nobody tuned.
//!
//! In: a [`Compute`]. Out: a [`GpuProgram`] that computes the same and fits every device of the
//! [`GpuLimits`]. What it does:
//!
//! 1. Stages that only move or cheaply transform elements vanish into their readers, as on a CPU.
//! 2. A reduction that uses elements more than once becomes a nest with tiles of the operands in shared memory and
//!    of the result in registers, with its epilogue (`tile`).
//! 3. Neighbouring stages that agree on their leading axes (softmax, layer normalisation), and long reductions,
//!    have a block of threads for each row (`rows`).
//! 4. Other long reductions with few results, such as of a matrix and a vector, are shared by threads (`split`).
//! 5. Everything else has a thread for each element, or for four (`points`).
//!
//! A choice that does not fit the device, or would become too much code, gives way to a smaller one, at last to a thread for
//! each element.

mod points;
mod rows;
mod split;
mod tile;

use std::collections::BTreeSet;

use ansc_graph::{Compute, TensorType};

use super::build::Builder;
use super::inline::Padding;
use super::knobs::Knobs;
use super::{Machine, inline};
use crate::budget::{self, BUDGET};
use crate::finish::finish;
use crate::gpu::{GpuError, GpuLimits, GpuProgram, lower};
use crate::program::{ForKind, Program, Scope, ThreadAxis};
use crate::schedule::{LoopRef, Schedule, ScheduleError};
use crate::tree;

/// What the schedule may do beyond a thread for each element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    All,
    Points,
}

/// What nobody tuned gets on a GPU.
pub fn gpu_schedule(
    name: &str,
    compute: &Compute,
    limits: &GpuLimits,
) -> Result<GpuProgram, GpuError> {
    lower(&gpu_program(name, compute, limits)?, limits)
}

/// The same before it is [lowered](lower): a finished program with bound loops.
pub fn gpu_program(name: &str, compute: &Compute, limits: &GpuLimits) -> Result<Program, GpuError> {
    let inlined = inline::inline(compute, Padding::Kept);
    attempt(name, &inlined, limits, Effort::All)
        .or_else(|_| attempt(name, &inlined, limits, Effort::Points))
        .or_else(|_| attempt(name, compute, limits, Effort::Points))
}

fn attempt(
    name: &str,
    compute: &Compute,
    limits: &GpuLimits,
    effort: Effort,
) -> Result<Program, GpuError> {
    let mut schedule = Schedule::new(nests(name, compute, limits, effort));
    for block in schedule.blocks() {
        if effort == Effort::All && is_unbound(&schedule, &block) {
            tile::schedule(&mut schedule, &block, limits);
        }
        if effort == Effort::All && is_unbound(&schedule, &block) {
            split::schedule(&mut schedule, &block, limits);
        }
        bind_points(&mut schedule, &block, limits);
    }
    let mut program = finish(schedule.into_program());
    match effort {
        Effort::All => budget::check(&program, &budget::GPU)?,
        Effort::Points => program = budget::fitted(program, &budget::GPU, BUDGET),
    }
    lower(&program, limits).map(|_| program)
}

/// A thread for each element, or a few, where no loop around the block is bound.
pub(crate) fn bind_points(schedule: &mut Schedule, block: &str, limits: &GpuLimits) {
    if is_unbound(schedule, block) {
        points::schedule(schedule, block, limits);
    }
}

/// Spreads the iterations of a loop over the threads that a block has.
pub(crate) fn bind_threads(
    s: &mut Schedule,
    l: LoopRef,
    threads: usize,
) -> Result<(), ScheduleError> {
    // One iteration is for one thread.
    let shared = if s.extent(l)? == 1 { l } else { s.split(l, &[0, threads])?[1] };
    s.bind(shared, ThreadAxis::ThreadX)
}

/// Rows as kernels, all other stages as in the naive program.
fn nests(name: &str, compute: &Compute, limits: &GpuLimits, effort: Effort) -> Program {
    let naive = crate::lower::lower(name, compute).body;
    let (machine, knobs) = (Machine::new(16, 0), Knobs::default());
    let mut builder = Builder::new(name, compute, &[], &machine, &knobs);
    let mut done: Vec<bool> = compute.stages.iter().map(|s| s.ty.is_empty()).collect();
    for stage in 0..compute.stages.len() {
        if done[stage] {
            continue;
        }
        let rows =
            if effort == Effort::All { rows::schedule(&mut builder, stage, limits) } else { None };
        let covered = rows.unwrap_or_else(|| {
            builder.push(vec![naive[stage].clone()]);
            vec![stage]
        });
        covered.into_iter().for_each(|s| done[s] = true);
    }
    let mut program = builder.done().0;
    number_names(&mut program);
    program
}

/// Gives each block a name of its own.
fn number_names(program: &mut Program) {
    let mut taken = BTreeSet::new();
    tree::visit_blocks_mut(&mut program.body, &mut |b| {
        let numbered = (1..).map(|n| format!("{}_{n}", b.name));
        let mut candidates = std::iter::once(b.name.clone()).chain(numbered);
        b.name = candidates.find(|n| !taken.contains(n)).expect("numbers do not run out");
        taken.insert(b.name.clone());
    });
}

/// Whether no loop around the block is bound.
fn is_unbound(schedule: &Schedule, block: &str) -> bool {
    let is_bound = |l| schedule.for_loop(l).is_ok_and(|l| matches!(l.kind, ForKind::Bound(_)));
    schedule.loops(block).is_ok_and(|loops| !loops.into_iter().any(is_bound))
}

/// Whether the buffer is one that the program keeps to itself.
fn is_internal(program: &Program, buffer: ansc_graph::BufId) -> bool {
    program.buffer(buffer).scope == Scope::Global
}

/// The type of one of `shape`'s elements each.
fn like(ty: &TensorType, shape: &[usize]) -> TensorType {
    TensorType::new(ty.dtype, shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn kernels(compute: &Compute) -> GpuProgram {
        gpu_schedule("k", compute, &GpuLimits::default()).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn operands_are_in_shared_memory_whatever_their_extents() {
        for c in [
            matmul_bias_relu(128, 128, 64),
            matmul_bias_relu(37, 41, 29),
            conv(32, 16, 14, 14, 1),
            conv(32, 16, 14, 14, 2),
        ] {
            let gpu = kernels(&c);
            let shared = gpu.kernels.iter().map(|k| gpu.bytes(k, Scope::Shared)).max();
            assert!(shared > Some(0), "{gpu}");
        }
    }

    #[test]
    fn a_matrix_and_a_vector_are_shared_by_threads() {
        for (n, k) in [(1000, 2048), (37, 129), (7, 64)] {
            let c = matmul_bias_relu(1, n, k);
            let gpu = kernels(&c);
            let [kernel] = &gpu.kernels[..] else { panic!("{} kernels", gpu.kernels.len()) };
            assert!(kernel.threads() >= 128, "{gpu}");
            assert!(gpu.bytes(kernel, Scope::Shared) > 0, "{gpu}");
            // The interpreter takes long for the first.
            if n * k < 10_000
                && let Err(problem) = compare(&c, &gpu.checked_form())
            {
                panic!("{problem}\n{gpu}");
            }
        }
    }

    #[test]
    fn a_softmax_is_one_kernel() {
        let gpu = kernels(&softmax(64, 200));
        assert_eq!(gpu.kernels.len(), 1, "{gpu}");
        assert_eq!((gpu.kernels[0].blocks(), gpu.kernels[0].threads()), (64, 64));
    }
}
