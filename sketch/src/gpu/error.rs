//! Why a program is no GPU program.

use crate::budget::CodeTooLarge;
use crate::program::ThreadAxis;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GpuError {
    #[error("{what} of {kernel}: {found}, and the device allows {limit}")]
    Limit { kernel: String, what: &'static str, found: usize, limit: usize },
    #[error("block `{block}` is under {found} threads, and fewer than {fewest} are a waste")]
    FewThreads { block: String, found: usize, fewest: usize },
    #[error(
        "block `{block}` is under two loops of {axis} and depends on the outer one, whose other \
         iterations no thread runs"
    )]
    Diagonal { block: String, axis: ThreadAxis },
    #[error("threads along {axis} may write the same element of `{buffer}` in block `{block}`")]
    SharedWrites { block: String, buffer: String, axis: ThreadAxis },
    #[error(
        "block `{block}` reads elements of `{buffer}` that other threads write at the same time"
    )]
    ReadsOwnWrites { block: String, buffer: String },
    #[error(
        "`{buffer}` is local, and not all of its accesses are under the loop of {axis} that writes it"
    )]
    Distributed { buffer: String, axis: ThreadAxis },
    #[error("block `{block}` writes shared memory differently in each virtual thread")]
    VirtualShared { block: String },
    #[error("`{buffer}` is written and read by different thread blocks of {kernel}")]
    AcrossBlocks { kernel: String, buffer: String },
    #[error("block `{block}` {what}")]
    Fragments { block: String, what: &'static str },
    #[error("a parallel loop is for the threads of a CPU")]
    Parallel,
    #[error(transparent)]
    TooLarge(#[from] CodeTooLarge),
}
