//! The resources that a device allows one kernel, and those that its kernels share.

use ansc_runtime::gpu::DECLARED_SHARED;

use crate::lowering::THREAD_BYTES;

/// Devices of one compute capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation {
    /// The compute capability, times ten.
    pub sm: u32,
    /// The least version of PTX that knows it, times ten.
    pub ptx: u32,
    /// Multiprocessors of a usual device.
    pub processors: usize,
    /// Shared memory that a block may have on devices of this and of higher capabilities. Consumer
    /// devices have less than servers' of the same generation, and run the same code; from 9.0 on,
    /// code is for servers, and a device with less refuses a kernel that wants more.
    pub shared_bytes: usize,
    /// Shared memory of a multiprocessor, for all blocks that are there.
    pub shared_of_processor: usize,
    /// Threads that a multiprocessor keeps.
    pub threads_of_processor: usize,
}

/// The generations that there is code for, the oldest first.
#[rustfmt::skip]
pub const GENERATIONS: [Generation; 6] = [
    of(70, 63,  80, [ 64,  96], 2048),
    of(75, 63,  68, [ 64,  64], 1024),
    of(80, 70, 108, [ 99, 164], 2048),
    of(86, 71,  82, [ 99, 100], 1536),
    of(89, 78, 128, [ 99, 100], 1536),
    of(90, 78, 132, [227, 228], 2048),
];

/// A row of the table, with shared memory in kibibytes.
const fn of(
    sm: u32,
    ptx: u32,
    processors: usize,
    [block, all]: [usize; 2],
    threads: usize,
) -> Generation {
    Generation {
        sm,
        ptx,
        processors,
        shared_bytes: block << 10,
        shared_of_processor: all << 10,
        threads_of_processor: threads,
    }
}

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
    /// Multiprocessors, which blocks are dealt out to. No limit, but prices depend on it and on
    /// the two below.
    pub processors: usize,
    /// Shared memory of a multiprocessor.
    pub shared_of_processor: usize,
    /// Threads that a multiprocessor keeps.
    pub threads_of_processor: usize,
}

impl GpuLimits {
    /// Limits of all devices that run code for these generations, by compute capability times ten.
    pub fn of(sms: &[u32]) -> GpuLimits {
        let oldest = sms.iter().min().copied().unwrap_or(0);
        let defaults = GpuLimits::default();
        match GENERATIONS.iter().rfind(|generation| oldest >= generation.sm) {
            Some(generation) => GpuLimits {
                shared_bytes: generation.shared_bytes,
                processors: generation.processors,
                shared_of_processor: generation.shared_of_processor,
                threads_of_processor: generation.threads_of_processor,
                ..defaults
            },
            None => defaults,
        }
    }
}

/// Those of a device like an A100, with the shared memory that every device gives a block.
impl Default for GpuLimits {
    fn default() -> GpuLimits {
        GpuLimits {
            threads_per_block: 1024,
            block: [1024, 1024, 64],
            grid: [(1 << 31) - 1, 65_535, 65_535],
            shared_bytes: DECLARED_SHARED,
            local_bytes: 16 << 10,
            fragment_bytes: 768,
            vector_bytes: THREAD_BYTES,
            virtual_threads: 8,
            warp: 32,
            processors: 108,
            shared_of_processor: 164 << 10,
            threads_of_processor: 2048,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_for_several_generations_keeps_to_the_oldest() {
        let limits = |sms: &[u32]| {
            let GpuLimits { shared_bytes, processors, .. } = GpuLimits::of(sms);
            (shared_bytes, processors)
        };
        assert_eq!(limits(&[90, 80]), (99 << 10, 108));
        assert_eq!(limits(&[87]), (99 << 10, 82), "one that is not in the table");
        assert_eq!(GpuLimits::of(&[]), GpuLimits::default());
    }

    /// Code for one generation runs on the later ones, whose blocks have as much shared memory.
    #[test]
    fn rows_are_in_order_and_blocks_fit_their_multiprocessor() {
        assert!(GENERATIONS.is_sorted_by(|a, b| a.sm < b.sm && a.ptx <= b.ptx));
        assert!(GENERATIONS.is_sorted_by_key(|generation| generation.shared_bytes));
        for generation in GENERATIONS {
            assert!(generation.shared_bytes <= generation.shared_of_processor, "{generation:?}");
            assert!(GpuLimits::default().threads_per_block <= generation.threads_of_processor);
        }
    }
}
