//! Loops around an annotated block are written out, from the innermost outwards.
//!
//! ```text
//! for k in 0..64 { for i in 0..4 { vectorized j { mm } } }     unroll = 16
//! => for k in 0..64 { unrolled i in 0..4 { vectorized j { mm } } }
//! ```

use crate::notes::UNROLL;
use crate::program::ForKind;
use crate::schedule::{Annotation, Schedule};

pub(super) fn unroll(schedule: &mut Schedule) {
    for block in schedule.blocks() {
        let Some(&Annotation::Int(most)) = schedule.annotation(&block, UNROLL) else { continue };
        let loops = schedule.loops(&block).expect("a block of the program");
        let mut iterations = 1;
        for l in loops.into_iter().rev() {
            let (kind, extent) = {
                let l = schedule.for_loop(l).expect("a loop of the program");
                (l.kind, l.extent as i64)
            };
            iterations *= if kind == ForKind::Vectorized { 1 } else { extent };
            if iterations > most {
                break;
            }
            if kind == ForKind::Serial {
                // A loop that cannot be written out stays a loop.
                let _ = schedule.unroll(l);
            }
        }
    }
}
