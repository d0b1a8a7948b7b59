//! Operands and results of host operators.

use ansc_runtime::host::HostOp;

use crate::sizes::used;

/// The number of operands and of results.
pub(super) fn arity(op: &HostOp) -> (usize, usize) {
    match op {
        HostOp::CheckIndices { .. } => (1, 0),
        HostOp::Draw { .. } => (0, 1),
        HostOp::TopK { .. } => (1, 2),
        HostOp::NonZero | HostOp::Det | HostOp::BitCast { .. } | HostOp::Amount { .. } => (1, 1),
        HostOp::Unique { .. } => (1, 4),
        HostOp::Compress { .. } | HostOp::NonMaxSuppression { .. } => (2, 1),
        HostOp::ScatterElements { .. } | HostOp::ScatterNd { .. } => (3, 1),
        HostOp::Append { at, count, each, .. } => {
            (2 + usize::from(*each) + used([at, count].into_iter()).len(), 1)
        }
        HostOp::Spread { count, .. } => (1, 1 + usize::from(count.is_some())),
        HostOp::Shrink { extents } => (1 + used(extents.iter()).len(), 1),
    }
}
