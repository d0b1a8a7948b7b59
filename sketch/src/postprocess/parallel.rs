//! The outermost spatial loops of each nest run in parallel.
//!
//! ```text
//! for i in 0..8 { for j in 0..32 { for k .. } }   =>   parallel ij in 0..256 { for k .. }
//! ```

use super::{chain, is_free};
use crate::schedule::{LoopRef, Schedule};

/// As few loops as give more than `enough` iterations, and fewer where iterations are not independent.
pub(super) fn parallel(schedule: &mut Schedule, enough: usize) {
    let nests: Vec<Vec<LoopRef>> = schedule.program().body.iter().map(chain).collect();
    for nest in nests {
        let loops = outermost(schedule, &nest, enough);
        for n in (1..=loops.len()).rev() {
            let mut changed = schedule.clone();
            if changed.fuse(&loops[..n]).is_ok_and(|l| changed.parallel(l).is_ok()) {
                *schedule = changed;
                break;
            }
        }
    }
}

/// The loops that are fused, if they may be.
pub(super) fn outermost(schedule: &Schedule, nest: &[LoopRef], enough: usize) -> Vec<LoopRef> {
    let mut iterations = 1;
    let mut loops = vec![];
    for &l in nest.iter().take_while(|&&l| is_free(schedule, l)) {
        if iterations > enough {
            break;
        }
        iterations *= schedule.extent(l).expect("a loop of the program");
        loops.push(l);
    }
    // One iteration is no parallelism.
    if iterations > 1 { loops } else { vec![] }
}
