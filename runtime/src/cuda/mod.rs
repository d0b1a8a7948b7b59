//! Running on NVIDIA GPUs.
//!
//! ```text
//! GpuCode --driver--> Code (kernels, weights: once for a model) --> Runs (memory, stream, graph: once for a session)
//! ```
//!
//! The calls to the driver itself are those of `crate::driver`.
//!
//! - `plan`: the manifest's plan as launches and copies that the device does on its own, if it can.
//! - `code`: translated kernels and uploaded weights, shared by all sessions.
//! - `runs`: memory and stream of one session. Runs that need no help from the host are one CUDA
//!   graph. Where host operators, branches or loops that end early take part, memory is such that
//!   both sides see it, and `Exec` goes through the plan as it does on a CPU.
//! - `device`: inputs and outputs that stay on the device, for callers that have more to do there.

mod code;
mod device;
mod plan;
mod runs;
#[cfg(test)]
mod tests;

pub use crate::driver::{CudaError, DeviceInfo};
pub use device::Device;

pub(crate) use code::Code;
pub(crate) use runs::{Io, Notes, Runs};

use crate::driver::open;
use crate::gpu::GpuCode;
use crate::load_error::LoadErrorKind;
use crate::manifest::Manifest;
use crate::program::Program;
use crate::validate::ManifestError;

/// The GPU that models run on, or why there is none.
pub fn device() -> Result<DeviceInfo, CudaError> {
    Ok(open()?.device().clone())
}

/// Puts the code of an artifact on the device.
pub(crate) fn load(
    manifest: &Manifest,
    programs: &[Program],
    code: &GpuCode,
    weights: &[u8],
) -> Result<Code, LoadErrorKind> {
    code::check(manifest, code)
        .map_err(|problem| ManifestError::at("the GPU code".to_owned(), problem))?;
    let driver = open().map_err(|source| code::failed(code, source))?;
    let plans: Vec<_> = manifest.specialisations.iter().zip(programs).collect();
    Ok(Code::new(&driver, &plans, code, weights)?)
}
