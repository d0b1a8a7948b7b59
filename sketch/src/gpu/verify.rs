//! Whether a kernel fits the device.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::BufId;

use super::{GpuError, GpuLimits, GpuProgram, Kernel};
use crate::intrinsic::mma::LANES;
use crate::program::{For, ForKind, Program, Scope, ThreadAxis};
use crate::tree;

/// Buffers of a kernel begin at multiples of this.
const ALIGN: usize = 64;

/// Threads, blocks, memory and vectors of every kernel within the limits.
pub(super) fn verify(gpu: &GpuProgram, limits: &GpuLimits) -> Result<(), GpuError> {
    gpu.kernels.iter().try_for_each(|kernel| {
        let within = |what, found: usize, limit: usize| match found <= limit {
            true => Ok(()),
            false => Err(GpuError::Limit { kernel: kernel.name.clone(), what, found, limit }),
        };
        within("threads of a block", kernel.threads(), limits.threads_per_block)?;
        for axis in 0..3 {
            within("one axis of a block", kernel.block[axis].extent, limits.block[axis])?;
            within("one axis of the grid", kernel.grid[axis].extent, limits.grid[axis])?;
        }
        within("shared memory", gpu.bytes(kernel, Scope::Shared), limits.shared_bytes)?;
        within("local memory", gpu.bytes(kernel, Scope::Local), limits.local_bytes)?;
        let fragments = gpu.bytes(kernel, Scope::Fragment) / LANES;
        within("fragments of a thread", fragments, limits.fragment_bytes)
    })
}

/// Virtual threads and vectors, which are not visible in a kernel any more.
pub(super) fn verify_loops(program: &Program, limits: &GpuLimits) -> Result<(), GpuError> {
    let mut found = Ok(());
    tree::visit_loops(&program.body, &mut |l| {
        if found.is_ok() {
            found = verify_loop(program, l, limits);
        }
    });
    found
}

fn verify_loop(program: &Program, l: &For, limits: &GpuLimits) -> Result<(), GpuError> {
    let (what, found, limit) = match l.kind {
        ForKind::Bound(ThreadAxis::Virtual) => {
            ("virtual threads", l.extent, limits.virtual_threads)
        }
        ForKind::Vectorized => ("a vector", l.extent * element(program, l), limits.vector_bytes),
        _ => return Ok(()),
    };
    if found <= limit {
        return Ok(());
    }
    Err(GpuError::Limit { kernel: program.name.clone(), what, found, limit })
}

/// Bytes of the largest element that a block under the loop writes.
fn element(program: &Program, l: &For) -> usize {
    let mut bytes = 1;
    l.body.iter().for_each(|s| {
        s.visit_blocks(&mut |b| {
            for access in b.body.writes() {
                bytes = bytes.max(program.buffer(access.buffer).ty.dtype.size());
            }
        });
    });
    bytes
}

impl GpuProgram {
    /// Bytes that the kernel needs of buffers of a scope, each aligned for vectors.
    pub fn bytes(&self, kernel: &Kernel, scope: Scope) -> usize {
        let used = self.buffers(kernel).into_iter().map(|b| self.program.buffer(b));
        used.filter(|b| b.scope == scope).map(|b| b.ty.bytes().next_multiple_of(ALIGN)).sum()
    }

    /// Where the buffers that a block of threads shares begin, one behind the other.
    pub fn shared(&self, kernel: &Kernel) -> BTreeMap<BufId, usize> {
        let mut end = 0;
        let shared = |b: &BufId| self.program.buffer(*b).scope == Scope::Shared;
        let place = |b: BufId| {
            let at = end;
            end += self.program.buffer(b).ty.bytes().next_multiple_of(ALIGN);
            (b, at)
        };
        self.buffers(kernel).into_iter().filter(shared).map(place).collect()
    }

    /// The buffers that the kernel uses, in order.
    pub fn buffers(&self, kernel: &Kernel) -> BTreeSet<BufId> {
        let mut used = BTreeSet::new();
        kernel.visit_blocks(&mut |b| used.extend(b.buffers()));
        used
    }
}
