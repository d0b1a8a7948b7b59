//! What a device allows one kernel.

/// Limits of one thread block and one thread. The defaults hold from compute capability 7.0 on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GpuLimits {
    /// Threads of a block, all axes together.
    pub threads_per_block: usize,
    /// Along each axis of a block.
    pub block: [usize; 3],
    /// Along each axis of the grid.
    pub grid: [usize; 3],
    /// Shared memory that a kernel declares; more needs to be asked for at every launch.
    pub shared_bytes: usize,
    /// Arrays of one thread: registers, and what does not fit them.
    pub local_bytes: usize,
    /// Fragments of one thread: registers only.
    pub fragment_bytes: usize,
    /// Of one load or store.
    pub vector_bytes: usize,
    /// Virtual threads of one thread.
    pub virtual_threads: usize,
    /// Threads that execute in step.
    pub warp: usize,
}

impl Default for GpuLimits {
    fn default() -> GpuLimits {
        GpuLimits {
            threads_per_block: 1024,
            block: [1024, 1024, 64],
            grid: [(1 << 31) - 1, 65_535, 65_535],
            shared_bytes: 48 << 10,
            local_bytes: 16 << 10,
            fragment_bytes: 768,
            vector_bytes: 16,
            virtual_threads: 8,
            warp: 32,
        }
    }
}
