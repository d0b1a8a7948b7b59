//! Notes that rules leave on blocks and loops for the steps after sampling: their names, and what
//! the primitives do about them.

use crate::program::Ahead;
use crate::schedule::{Annotation, Schedule};

/// On a block: how many iterations may be written out around it.
pub const UNROLL: &str = "unroll";
/// On a block: how many loops around its nest are fused and run in parallel; 0 is as many as give
/// enough iterations.
pub const PARALLEL: &str = "parallel";
/// On a block: how many registers a vector of the innermost loop around it takes at most.
pub const VECTORS: &str = "vectors";
/// On a block that all threads execute together: elements that one takes at once.
pub const COOPERATIVE: &str = "cooperative";
/// On a loop: its copies to shared memory are begun so many iterations early.
pub const PIPELINE: &str = "pipeline";
/// On a loop over the threads of a block: how many it has at least.
pub const FEWEST_THREADS: &str = "fewest_threads";

/// Pipelines all loops that ask for it.
pub(crate) fn pipeline_all(schedule: &mut Schedule) {
    for block in schedule.blocks() {
        pipeline(schedule, &block);
    }
}

fn pipeline(schedule: &mut Schedule, block: &str) {
    for l in schedule.loops(block).unwrap_or_default() {
        let Some(&Annotation::Int(wanted)) = schedule.loop_annotation(l, PIPELINE) else {
            continue;
        };
        if let Some(ahead) = usize::try_from(wanted).ok().and_then(Ahead::new) {
            // Another block may have asked already.
            let _ = schedule.pipeline(l, ahead);
        }
    }
}
