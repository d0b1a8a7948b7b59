//! Indices that generated code is about to read: whether the axes have them.
//!
//! In: an [`IndexCheck`] and the bytes of the indices. Out: nothing, or the error that names the
//! first bad one.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::host::indices::{self, Outside};
use crate::host::{self, Share};
use crate::manifest::{BufferId, BufferInfo, Storage};
use crate::run_error::{BadIndex, RunError};
use crate::validate::bytes_of;

/// A step of a plan.
pub(crate) struct IndexCheck<'a> {
    /// The name of the step.
    pub(crate) node: &'a str,
    pub(crate) buffers: &'a [BufferInfo],
    pub(crate) indices: BufferId,
    /// Extents of the axes that indices are of, in turn.
    pub(crate) extents: &'a [usize],
}

impl IndexCheck<'_> {
    pub(crate) fn run(&self, bytes: &[u8], share: &Share<'_>) -> Result<(), RunError> {
        let dtype = self.buffers[self.indices.0 as usize].dtype;
        let len = indices::chunk_bytes(dtype, self.extents);
        let is_bad = AtomicBool::new(false);
        let look = |chunks: Range<u64>| {
            let end = bytes.len().min(chunks.end as usize * len);
            let mut part = bytes[chunks.start as usize * len..end].chunks(len);
            if part.any(|chunk| indices::any_outside(dtype, chunk, self.extents)) {
                is_bad.store(true, Ordering::Relaxed);
            }
        };
        share(bytes.len().div_ceil(len) as u64, &look);
        let found = is_bad.into_inner().then(|| indices::first_outside(dtype, bytes, self.extents));
        let Some(Outside { position, index, extent }) = found.flatten() else { return Ok(()) };
        let position = indices::point(position, &named(self.buffers, self.indices).shape);
        Err(out_of_range(self.node, self.buffers, self.indices, position, index, extent))
    }
}

/// The error for an index that an axis of `extent` elements does not have.
pub(super) fn out_of_range(
    node: &str,
    buffers: &[BufferInfo],
    indices: BufferId,
    position: Vec<usize>,
    index: i64,
    extent: usize,
) -> RunError {
    let BufferInfo { name: tensor, storage, .. } = named(buffers, indices).clone();
    let is_input = matches!(storage, Storage::Input(_));
    let (node, legal) = (node.to_owned(), host::legal(extent));
    RunError::Index(Box::new(BadIndex { node, tensor, is_input, position, index, legal }))
}

/// The buffer, but the input itself for another look at one: that is what the caller knows.
fn named(buffers: &[BufferInfo], id: BufferId) -> &BufferInfo {
    let info = &buffers[id.0 as usize];
    let is_same =
        |other: &&BufferInfo| other.storage == info.storage && bytes_of(other) == bytes_of(info);
    match info.storage {
        Storage::Input(_) => buffers.iter().find(is_same).unwrap_or(info),
        _ => info,
    }
}
