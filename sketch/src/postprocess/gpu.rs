//! From a sampled schedule to the kernels of a GPU.
//!
//! 1. Copies to shared memory that carry [`COOPERATIVE`] are shared by all threads of the block,
//!    each of which takes vectors of that many elements where they fit;
//! 2. nests that nothing is bound of get a thread for each element, or a few;
//! 3. loops that carry [`PIPELINE`](crate::notes::PIPELINE) are pipelined;
//! 4. loops over registers are written out, and others as far as [`UNROLL`](crate::notes::UNROLL)
//!    says;
//! 5. the program is lowered: races and sizes are checked there.
//!
//! A program with fewer threads than a loop's [`FEWEST_THREADS`] is refused before all that.

use std::collections::BTreeSet;

use ansc_graph::VarId;

use super::unroll;
use crate::finish;
use crate::gpu::{GpuError, GpuLimits, GpuProgram, lower};
use crate::notes::{COOPERATIVE, FEWEST_THREADS, pipeline_all};
use crate::program::{ForKind, Program, Scope, ThreadAxis};
use crate::rules::nests::gpu::{Lengths, bind_points};
use crate::schedule::{Annotation, LoopRef, Result, Schedule};
use crate::trace::Recorder;

/// Iterations over registers that are written out in any case.
const MAX_REGISTERS: usize = 256;

pub fn postprocess_gpu(
    schedule: Schedule,
    limits: &GpuLimits,
) -> std::result::Result<GpuProgram, GpuError> {
    lower(&bound(schedule, limits)?, limits)
}

/// The same before it is lowered: a finished program with bound loops, of which lowering is known
/// to succeed.
pub fn bound_program(
    schedule: Schedule,
    limits: &GpuLimits,
) -> std::result::Result<Program, GpuError> {
    let program = bound(schedule, limits)?;
    lower(&program, limits).map(|_| program)
}

fn bound(mut schedule: Schedule, limits: &GpuLimits) -> std::result::Result<Program, GpuError> {
    check_threads(&schedule)?;
    for block in schedule.blocks() {
        if let Some(&Annotation::Int(length)) = schedule.annotation(&block, COOPERATIVE) {
            let mut changed = schedule.clone();
            // A copy that cannot be shared is found when the program is lowered.
            if fetch(&mut changed, &block, usize::try_from(length).unwrap_or(1)).is_ok() {
                schedule = changed;
            }
        }
    }
    let mut recorder = Recorder::resume(schedule);
    for block in recorder.schedule().blocks() {
        bind_points(&mut recorder, &block, limits, Lengths::Vectors);
    }
    let mut schedule = recorder.into_parts().0;
    pipeline_all(&mut schedule);
    for block in schedule.blocks() {
        registers(&mut schedule, &block);
    }
    unroll::unroll(&mut schedule);
    Ok(finish(schedule.into_program()))
}

/// Lanes without a thread would idle, as many as there are.
fn check_threads(schedule: &Schedule) -> std::result::Result<(), GpuError> {
    for block in schedule.blocks() {
        for l in schedule.loops(&block).unwrap_or_default() {
            let Some(&Annotation::Int(fewest)) = schedule.loop_annotation(l, FEWEST_THREADS) else {
                continue;
            };
            let found = schedule.extent(l).unwrap_or(0);
            let fewest = usize::try_from(fewest).unwrap_or(0);
            if found < fewest {
                return Err(GpuError::FewThreads { block, found, fewest });
            }
        }
    }
    Ok(())
}

/// Spreads the copy over the threads that the block around it has.
fn fetch(schedule: &mut Schedule, block: &str, length: usize) -> Result<()> {
    let loops = schedule.loops(block)?;
    let own = loops.len() - schedule.block(block)?.iters.len();
    let threads = threads_around(schedule, &loops[..own])?;
    let fused = schedule.fuse(&loops[own..])?;
    let extent = schedule.extent(fused)?;
    let length = if extent.is_multiple_of(length) && extent > 1 { length } else { 1 };
    let parts = schedule.split(fused, &[0, length])?;
    // One iteration is for one thread.
    let shared = match schedule.extent(parts[0])? {
        1 => parts[0],
        _ => schedule.split(parts[0], &[0, threads])?[1],
    };
    schedule.bind(shared, ThreadAxis::ThreadX)?;
    // Elements that are not known to be apart are copied one after the other.
    let _ = schedule.vectorize(parts[1]);
    Ok(())
}

fn threads_around(schedule: &Schedule, loops: &[LoopRef]) -> Result<usize> {
    let mut threads = 1;
    for &l in loops {
        let l = schedule.for_loop(l)?;
        if l.kind == ForKind::Bound(ThreadAxis::ThreadX) {
            threads = l.extent;
        }
    }
    Ok(threads)
}

/// Writes out the loops that a local buffer is indexed by: registers have no addresses.
fn registers(schedule: &mut Schedule, block: &str) {
    let Ok(loops) = schedule.loops(block) else { return };
    let indexing = indexing(schedule, block);
    let mut count = 1;
    for l in loops.into_iter().rev().filter(|l| indexing.contains(&l.0)) {
        let (kind, extent) = match schedule.for_loop(l) {
            Ok(l) => (l.kind, l.extent),
            Err(_) => return,
        };
        count *= extent;
        if count > MAX_REGISTERS {
            return;
        }
        if kind == ForKind::Serial {
            // A loop that cannot be written out stays a loop.
            let _ = schedule.unroll(l);
        }
    }
}

/// Loops that the indices of local buffers depend on.
fn indexing(schedule: &Schedule, block: &str) -> BTreeSet<VarId> {
    let Ok(b) = schedule.block(block) else { return BTreeSet::new() };
    let is_local = |b| schedule.program().buffer(b).scope == Scope::Local;
    let loads = b.exprs().into_iter().flat_map(|e| e.loads());
    let reads = loads.filter(|(b, _)| is_local(*b)).flat_map(|(_, indices)| indices);
    let writes = b.body.writes().into_iter().filter(|a| is_local(a.buffer));
    let vars: BTreeSet<VarId> =
        reads.chain(writes.flat_map(|a| &a.indices)).flat_map(ansc_graph::Expr::vars).collect();
    let bindings = b.iters.iter().filter(|i| vars.contains(&i.var));
    bindings.flat_map(|i| i.binding.vars()).collect()
}
