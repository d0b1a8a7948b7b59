//! Operands of a tiled stage are read through shared memory.
//!
//! ```text
//! for ko { .. a[i, k] .. }   =>   for ko { a_shared[..] = a[.., ko]  (by all threads together)   .. a_shared[i, k] .. }
//! ```
//! How many elements a thread copies at once is a free decision.

use std::collections::BTreeSet;

use ansc_graph::BufId;

use crate::notes::COOPERATIVE;
use crate::program::Scope;
use crate::rules::Space;
use crate::trace::{LoopVar, Recorder, StepError};

/// Lengths of vectors, in elements; what does not fit becomes one element.
const LENGTHS: [i64; 4] = [1, 2, 4, 8];

/// Copies every operand of `block` under the loop `at`.
pub(super) fn cache_reads(
    space: &Space,
    recorder: &mut Recorder,
    block: &str,
    at: LoopVar,
) -> Result<(), StepError> {
    let body = &recorder.schedule().block(block)?.body;
    let loaded: BTreeSet<BufId> = body.value().loads().iter().map(|(b, _)| *b).collect();
    let program = recorder.schedule().program();
    let operands: Vec<(String, usize)> =
        loaded.into_iter().map(|b| (program.buffer(b).name.clone(), bytes(program, b))).collect();
    for (operand, bytes) in operands {
        let most = space.gpu.as_ref().map_or(1, |limits| limits.vector_bytes / bytes);
        let reader = recorder.get_block(block)?;
        let copy = recorder.cache_read(reader, &operand, Scope::Shared)?;
        recorder.compute_at(copy, at)?;
        let lengths: Vec<i64> =
            LENGTHS.into_iter().filter(|&n| n as usize <= most.max(1)).collect();
        let weights = vec![1.0 / lengths.len() as f64; lengths.len()];
        let length = recorder.sample_categorical(&lengths, &weights, &mut space.random())?;
        recorder.annotate(copy, COOPERATIVE, length.into())?;
    }
    Ok(())
}

fn bytes(program: &crate::program::Program, buffer: BufId) -> usize {
    program.buffer(buffer).ty.dtype.size()
}
