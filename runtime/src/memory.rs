//! The memory that runs of a plan need, apart from what the caller has.

use std::io;

use memmap2::{MmapMut, MmapRaw};

use crate::exec::{Kernel, Scratch};

/// Scratch memory of threads does not share pages, so that each page is near its thread.
const PAGE: usize = 4096;

/// Memory of a plan's own. Pages that nothing touches take none.
pub(crate) struct Memory {
    arena: MmapRaw,
    scratch: MmapRaw,
    scratch_stride: usize,
}

impl Memory {
    pub(crate) fn new(kernels: &[Kernel], arena: usize, threads: usize) -> io::Result<Memory> {
        let launches = kernels.iter().flat_map(|kernel| &kernel.launches);
        let stride = launches.map(|launch| launch.scratch).max().unwrap_or(0);
        let scratch_stride = stride.next_multiple_of(PAGE);
        let scratch = map(scratch_stride.saturating_mul(threads))?;
        let memory = Memory { arena: map(arena)?, scratch, scratch_stride };
        // Fewer and larger pages make the first run faster. Where there are none, so be it.
        #[cfg(target_os = "linux")]
        let _ = memory.arena.advise(memmap2::Advice::HugePage);
        Ok(memory)
    }

    pub(crate) fn arena(&self) -> *mut u8 {
        self.arena.as_mut_ptr()
    }

    pub(crate) fn scratch(&self) -> Scratch {
        Scratch { base: self.scratch.as_mut_ptr(), stride: self.scratch_stride }
    }
}

/// Zeroed memory that begins at a page.
pub(crate) fn map(bytes: usize) -> io::Result<MmapRaw> {
    MmapMut::map_anon(bytes.max(1)).map(MmapRaw::from)
}
