//! The innermost spatial loop of each block becomes a vector.
//!
//! ```text
//! for j in 0..64 { c[i, j] = .. }   =>   for jo in 0..8 { vectorized j in 0..8 { c[i, jo * 8 + j] = .. } }
//! ```

use super::is_free;
use crate::notes::VECTORS;
use crate::program::Stmt;
use crate::schedule::{Annotation, LoopRef, Schedule};

/// Registers of a vector where no annotation says how many: a loop of at most the first number is
/// one vector, a longer one is cut into vectors of the second.
const REGISTERS: [usize; 2] = [4, 1];

pub(super) fn vectorize(schedule: &mut Schedule, vector_bytes: usize) {
    for block in schedule.blocks() {
        let lanes = lanes(schedule, &block, vector_bytes);
        let Some(l) = innermost(schedule, &block) else { continue };
        let extent = schedule.extent(l).expect("a loop of the program");
        let [most, cut_to] = registers(schedule, &block);
        if extent <= most * lanes {
            // A loop that may not be a vector stays as it is.
            let _ = schedule.vectorize(l);
            continue;
        }
        let mut changed = schedule.clone();
        if cut(&mut changed, l, cut_to * lanes).is_some() {
            *schedule = changed;
        }
    }
}

/// Where a loop was parted, the annotated block has copies, which write the same buffer.
fn registers(schedule: &Schedule, block: &str) -> [usize; 2] {
    let written = |name: &str| schedule.block(name).map(|b| b.body.writes()[0].buffer).ok();
    let copies = schedule.blocks().into_iter().filter(|name| written(name) == written(block));
    let mut notes = copies.filter_map(|name| schedule.annotation(&name, VECTORS));
    match notes.next() {
        Some(&Annotation::Int(most)) => [usize::try_from(most).unwrap_or(1).max(1); 2],
        _ => REGISTERS,
    }
}

fn lanes(schedule: &Schedule, block: &str, vector_bytes: usize) -> usize {
    let block = schedule.block(block).expect("a block of the program");
    let written = block.body.writes()[0].buffer;
    (vector_bytes / schedule.program().buffer(written).ty.dtype.size()).max(1)
}

/// The loop directly around the block, if it is free, contains no other loop, and is more than one
/// iteration.
fn innermost(schedule: &Schedule, block: &str) -> Option<LoopRef> {
    let loops = schedule.loops(block).ok()?;
    let is_more = |l: &LoopRef| schedule.extent(*l).is_ok_and(|extent| extent > 1);
    let l = loops.into_iter().rev().find(is_more)?;
    let only_blocks = schedule.for_loop(l).ok()?.body.iter().all(|s| matches!(s, Stmt::Block(_)));
    (only_blocks && is_free(schedule, l)).then_some(l)
}

/// Whole vectors, and what is left as a loop of its own.
fn cut(schedule: &mut Schedule, l: LoopRef, lanes: usize) -> Option<()> {
    let extent = schedule.extent(l).ok()?;
    if !extent.is_multiple_of(lanes) {
        let parts = schedule.loop_partition(l, &[extent / lanes * lanes]).ok()?;
        // The rest may be one iteration.
        let _ = schedule.vectorize(parts[1]);
    }
    let inner = *schedule.split(l, &[0, lanes]).ok()?.last()?;
    schedule.vectorize(inner).ok()
}
