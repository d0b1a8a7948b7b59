//! GPU code in an artifact: what a driver translates for the device at hand, and how each kernel is
//! launched.
//!
//! An artifact for GPUs has the section [`GPU_SECTION`], this module's [`GpuCode`] as JSON, in
//! place of functions in its library. The plan in the manifest is the same as for a CPU; a kernel
//! step runs the launches of its kernel in order, each with the addresses of the step's arguments
//! as its parameters. On the device, buffers begin at multiples of 64 bytes.

use serde::{Deserialize, Serialize};

/// The ELF section that holds the [`GpuCode`].
pub const GPU_SECTION: &str = ".ansc.gpu";

/// Shared memory that a kernel has without asking. Where it needs more, all of it is asked for at
/// the launch.
pub const DECLARED_SHARED: usize = 48 << 10;

/// The content of the section: the same kernels for several generations of GPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GpuCode {
    /// One for each generation of GPUs, in the order of their compute capabilities.
    pub texts: Vec<GpuText>,
    /// The launches of each of the manifest's kernels.
    pub kernels: Vec<Vec<GpuLaunch>>,
}

/// All kernels of a model for one generation of GPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GpuText {
    /// Compute capability times ten; the code runs on GPUs of this and of higher ones.
    pub sm: u32,
    /// Source in NVIDIA's PTX, which the driver compiles when the model is loaded.
    pub ptx: String,
}

/// One launch of an entry of the PTX.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GpuLaunch {
    /// The name of the entry in [`GpuText::ptx`].
    pub symbol: String,
    /// Thread blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Shared memory of a block.
    pub shared_bytes: usize,
}

impl GpuLaunch {
    /// Shared memory that the launch asks for.
    pub fn asked_bytes(&self) -> usize {
        if self.shared_bytes > DECLARED_SHARED { self.shared_bytes } else { 0 }
    }
}
