//! The code of an artifact on a device: translated kernels and weights, which all sessions share.

use std::sync::Arc;

use super::plan::{self, Op};
use crate::driver::{CudaError, Driver, Handle, Owned, Reach, Resource, Result, Threads};
use crate::gpu::{GpuCode, GpuLaunch};
use crate::manifest::{Manifest, Specialisation};
use crate::program::Program;
use crate::target::TargetError;

pub(crate) struct Code {
    pub(crate) driver: Arc<dyn Driver>,
    /// As in the manifest.
    pub(crate) kernels: Vec<Vec<Launch>>,
    pub(crate) weights: Owned,
    /// The work of the device in a run of each specialisation, if it needs no help from the host.
    pub(crate) ops: Vec<Option<Vec<Op>>>,
    /// A model of host operators and copies alone has no kernels, and nothing to translate.
    _module: Option<Owned>,
}

pub(crate) struct Launch {
    pub(crate) function: Handle,
    pub(crate) threads: Threads,
}

impl Code {
    /// Translates the code and uploads the weights. The text is the newest one that the device runs.
    pub(crate) fn new(
        driver: &Arc<dyn Driver>,
        plans: &[(&Specialisation, &Program)],
        code: &GpuCode,
        weights: &[u8],
    ) -> std::result::Result<Code, TargetError> {
        let text = text_for(code, driver)?;
        let driver = driver.clone();
        let make = || -> Result<Code> {
            let load = || Ok(Owned::new(&driver, Resource::Module(driver.load(text)?)));
            let module: Option<Owned> = (!code.kernels.is_empty()).then(load).transpose()?;
            let kernels = match &module {
                Some(module) => launches(&driver, module, code)?,
                None => vec![],
            };
            let ops: Vec<_> = plans.iter().map(|(s, program)| plan::flatten(s, program)).collect();
            let weights = upload(&driver, weights, reach(&ops))?;
            Ok(Code { driver: driver.clone(), kernels, weights, ops, _module: module })
        };
        make().map_err(|source| failed(code, source))
    }

    /// Who works on the memory of a session.
    pub(crate) fn reach(&self) -> Reach {
        reach(&self.ops)
    }
}

/// The launches of each kernel. A grid without blocks has nothing to do, and is no grid to the
/// driver.
fn launches(driver: &Arc<dyn Driver>, module: &Owned, code: &GpuCode) -> Result<Vec<Vec<Launch>>> {
    let launch = |l: &GpuLaunch| {
        // More than a number can say is more than a device has, and refused by it.
        let shared = u32::try_from(l.asked_bytes()).unwrap_or(u32::MAX);
        let function = driver.function(module.handle(), &l.symbol, shared)?;
        Ok(Launch { function, threads: Threads { grid: l.grid, block: l.block, shared } })
    };
    let of_kernel = |launches: &Vec<GpuLaunch>| {
        launches.iter().filter(|l| !l.grid.contains(&0)).map(launch).collect()
    };
    code.kernels.iter().map(of_kernel).collect()
}

fn reach(ops: &[Option<Vec<Op>>]) -> Reach {
    if ops.iter().all(Option::is_some) { Reach::Device } else { Reach::Both }
}

fn upload(driver: &Arc<dyn Driver>, bytes: &[u8], reach: Reach) -> Result<Owned> {
    let memory = Owned::memory(driver, bytes.len(), reach)?;
    let stream = Owned::new(driver, Resource::Stream(driver.stream()?));
    if !bytes.is_empty() {
        driver.upload(stream.handle(), bytes, memory.address())?;
    }
    driver.wait(stream.handle())?;
    Ok(memory)
}

/// The newest text for a device, which runs what is for older ones of its kind.
fn text_for<'a>(
    code: &'a GpuCode,
    driver: &Arc<dyn Driver>,
) -> std::result::Result<&'a str, TargetError> {
    let device = driver.device();
    let fitting = code.texts.iter().filter(|t| t.sm <= device.sm);
    let newest = fitting.max_by_key(|t| t.sm).map(|t| t.ptx.as_str());
    newest.ok_or_else(|| TargetError::OldGpu {
        needed: needed(code),
        device: device.name.clone(),
        sm: device.sm,
    })
}

/// The generations that the code is for, as in `sm_80,sm_90`.
fn needed(code: &GpuCode) -> String {
    code.texts.iter().map(|t| format!("sm_{}", t.sm)).collect::<Vec<_>>().join(",")
}

/// Why code does not run on this machine.
pub(crate) fn failed(code: &GpuCode, source: CudaError) -> TargetError {
    TargetError::Gpu { needed: needed(code), source }
}

/// Whether the launches are those of the manifest's kernels, and all sizes are fixed: memory on the
/// device is filled and read as a whole.
pub(crate) fn check(manifest: &Manifest, code: &GpuCode) -> std::result::Result<(), String> {
    if let Some(ranged) = manifest.specialisations.iter().find(|one| !one.sizes.is_empty()) {
        return Err(format!("specialisation `{}` is of a range of sizes", ranged.name));
    }
    let (found, wanted) = (code.kernels.len(), manifest.kernels.len());
    match found == wanted {
        true => Ok(()),
        false => Err(format!("launches of {found} kernels, where there are {wanted}")),
    }
}
