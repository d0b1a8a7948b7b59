//! The outermost spatial loops of each nest run in parallel.
//!
//! ```text
//! for i in 0..8 { for j in 0..32 { for k .. } }   =>   parallel ij in 0..256 { for k .. }
//! ```

use super::{chain, is_free};
use crate::notes::PARALLEL;
use crate::program::Stmt;
use crate::schedule::{Annotation, LoopRef, Schedule};

pub(super) fn parallel(schedule: &mut Schedule, enough: usize) {
    let nests = schedule.program().body.iter();
    let all: Vec<Vec<LoopRef>> = nests.map(|nest| outermost(schedule, nest, enough)).collect();
    for loops in all {
        // Most often the first try succeeds.
        for n in (1..=loops.len()).rev() {
            let before = schedule.clone();
            if schedule.fuse(&loops[..n]).is_ok_and(|l| schedule.parallel(l).is_ok()) {
                break;
            }
            *schedule = before;
        }
    }
}

/// The loops of a nest that are fused, if they may be: as many as its annotation says, or else as
/// few as give more than `enough` iterations. Fewer are where iterations are not independent.
pub(super) fn outermost(schedule: &Schedule, nest: &Stmt, enough: usize) -> Vec<LoopRef> {
    let wanted = wanted(schedule, nest);
    let mut iterations = 1;
    let mut loops = vec![];
    for l in chain(nest).into_iter().take_while(|&l| is_free(schedule, l)) {
        let is_enough = wanted.map_or(iterations > enough, |n| loops.len() == n);
        if is_enough {
            break;
        }
        iterations *= schedule.extent(l).expect("a loop of the program");
        loops.push(l);
    }
    // One iteration is no parallelism.
    if iterations > 1 { loops } else { vec![] }
}

/// The number of loops that the nest's annotation asks for. The last block that carries one
/// decides, as the others were moved to it. `None` if that block leaves the number open.
fn wanted(schedule: &Schedule, nest: &Stmt) -> Option<usize> {
    let mut last = None;
    nest.visit_blocks(&mut |block| {
        if let Some(&Annotation::Int(n)) = schedule.annotation(&block.name, PARALLEL) {
            last = usize::try_from(n).ok();
        }
    });
    last.filter(|&n| n > 0)
}
