//! The resources that a device allows one kernel.

use ansc_runtime::gpu::DECLARED_SHARED;

/// Shared memory of a block, by compute capability times ten, that devices of this and of higher
/// ones give. Consumer devices have less than servers' of the same generation, and run the same
/// code; from 9.0 on, code is for servers, and a device with less refuses a kernel that wants more.
const SHARED: [(u32, usize); 3] = [(90, 227 << 10), (80, 99 << 10), (70, 64 << 10)];

/// Multiprocessors of a usual device of each generation, by compute capability times ten.
const PROCESSORS: [(u32, usize); 6] =
    [(90, 132), (89, 128), (86, 82), (80, 108), (75, 68), (70, 80)];

/// Limits of one thread block and one thread. The defaults hold from compute capability 7.0 on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GpuLimits {
    /// Threads of a block, all axes together.
    pub threads_per_block: usize,
    /// Along each axis of a block.
    pub block: [usize; 3],
    /// Along each axis of the grid.
    pub grid: [usize; 3],
    /// Shared memory of a block.
    pub shared_bytes: usize,
    /// Arrays of one thread: registers, and what does not fit them.
    pub local_bytes: usize,
    /// Fragments of one thread: registers only.
    pub fragment_bytes: usize,
    /// Bytes of one load or store.
    pub vector_bytes: usize,
    /// Virtual threads of one thread.
    pub virtual_threads: usize,
    /// Threads that execute in step.
    pub warp: usize,
    /// Multiprocessors, which blocks are dealt out to. No limit, but what prices depend on.
    pub processors: usize,
}

impl GpuLimits {
    /// Limits of all devices that run code for these generations, by compute capability times ten.
    pub fn of(sms: &[u32]) -> GpuLimits {
        let oldest = sms.iter().min().copied().unwrap_or(0);
        let of =
            |table: &[(u32, usize)]| table.iter().find(|(sm, _)| oldest >= *sm).map(|row| row.1);
        let defaults = GpuLimits::default();
        GpuLimits {
            shared_bytes: of(&SHARED).unwrap_or(defaults.shared_bytes),
            processors: of(&PROCESSORS).unwrap_or(defaults.processors),
            ..defaults
        }
    }
}

impl Default for GpuLimits {
    fn default() -> GpuLimits {
        GpuLimits {
            threads_per_block: 1024,
            block: [1024, 1024, 64],
            grid: [(1 << 31) - 1, 65_535, 65_535],
            shared_bytes: DECLARED_SHARED,
            local_bytes: 16 << 10,
            fragment_bytes: 768,
            vector_bytes: 16,
            virtual_threads: 8,
            warp: 32,
            processors: 108,
        }
    }
}
