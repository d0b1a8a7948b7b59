//! How candidates are measured: on which device, with which constants in its caches, and by which
//! process.

use ansc_codegen::Target;
use ansc_tuner::measure::{Caches, WorkerCommand};
use ansc_tuner::tune::Weighted;

use crate::Error;
use crate::choice::{Aim, cold_target_name, gpu_name, target_name};
use crate::host;
use crate::pipeline::Options;

/// Address space of a worker: enough for LLVM and a large kernel's operands.
const WORKER_MEMORY: u64 = 16 << 30;

/// How candidates are measured.
pub struct Measuring<'a> {
    pub(crate) device: Device,
    pub threads: usize,
    pub caches: Caches,
    /// The target that records are filed under.
    pub target: &'a str,
    /// Processes that build here, if it is not the usual number.
    pub builders: Option<usize>,
    /// For timing one candidate, if it is not the usual time.
    pub seconds: Option<f64>,
}

/// Where a kernel finds its constants while it is measured.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constants {
    /// As the model will find them.
    Auto,
    /// In the caches.
    Warm,
    /// In memory.
    Cold,
}

/// Threads to schedule for.
pub fn threads(wanted: usize) -> usize {
    match wanted {
        0 => ansc_runtime::pool::cores(),
        n => n,
    }
}

/// The device that candidates run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Device {
    Cpu,
    /// A GPU, and the newest generation that we compile for and that it runs.
    Gpu {
        sm: u32,
    },
}

impl Device {
    pub(crate) fn to_tune_on(options: &Options) -> Result<Device, Error> {
        match &options.schedules.aim {
            Aim::Cpu => Ok(Device::Cpu),
            Aim::GpuOnCpu(_) => {
                Err(Error::Usage("tuning is for `--target cpu` or `--target cuda`".into()))
            }
            Aim::Gpu(_) => Ok(Device::Gpu { sm: Device::of_this_machine()? }),
        }
    }

    /// The newest generation that we compile for and that the GPU at hand runs.
    pub(crate) fn of_this_machine() -> Result<u32, Error> {
        let needed = |e| Error::Machine(format!("tuning for a GPU needs one, but {e}"));
        let device = ansc_runtime::cuda::device().map_err(needed)?;
        let known = Target::sms().filter(|sm| *sm <= device.sm).max();
        let old = || format!("the {} is too old to be compiled for", device.name);
        known.ok_or_else(|| Error::Machine(old()))
    }

    /// The same where another machine has the GPU, of the newest generation that is asked for.
    #[cfg(feature = "fleet")]
    pub(crate) fn asked(options: &Options) -> Result<Device, Error> {
        match &options.schedules.aim {
            Aim::Gpu(gpus) => {
                let newest = gpus.sms().last().map(|&sm| Ok(Device::Gpu { sm }));
                newest.unwrap_or_else(|| Device::to_tune_on(options))
            }
            Aim::Cpu | Aim::GpuOnCpu(_) => Device::to_tune_on(options),
        }
    }

    /// Threads that schedules are for. Those of a GPU are another matter.
    pub(crate) fn threads(self, wanted: usize) -> usize {
        if self == Device::Cpu { threads(wanted) } else { 1 }
    }

    /// The name under which records are filed.
    pub(crate) fn name(self, cpu: &Target, caches: Caches) -> String {
        match self {
            Device::Cpu if caches == Caches::ColdConstants => cold_target_name(cpu),
            Device::Cpu => target_name(cpu),
            Device::Gpu { sm } => gpu_name(sm),
        }
    }

    pub(crate) fn caches(self, constants: Constants, tasks: &[Weighted]) -> Caches {
        match (self, constants) {
            (Device::Gpu { .. }, _) => Caches::Cold,
            (Device::Cpu, Constants::Warm) => Caches::Warm,
            (Device::Cpu, Constants::Cold) => Caches::ColdConstants,
            (Device::Cpu, Constants::Auto) if fit_the_cache(tasks) => Caches::Warm,
            (Device::Cpu, Constants::Auto) => Caches::ColdConstants,
        }
    }
}

/// Where the system does not tell how large the last cache is.
const LAST_CACHE: usize = 32 << 20;

/// Whether a run of the model finds its constants where the run before left them.
pub(crate) fn fit_the_cache(tasks: &[Weighted]) -> bool {
    // SAFETY: asks for a constant of the system.
    let told = unsafe { libc::sysconf(libc::_SC_LEVEL3_CACHE_SIZE) };
    let cache = usize::try_from(told).ok().filter(|&bytes| bytes > 0).unwrap_or(LAST_CACHE);
    tasks.iter().map(constants).sum::<f64>() <= cache as f64
}

/// Bytes of the constants of all kernels of a kind.
fn constants(kind: &Weighted) -> f64 {
    let (inputs, constant) = (&kind.task.compute.inputs, &kind.task.constant);
    let own = inputs.iter().zip(constant).filter(|(_, is_constant)| **is_constant);
    kind.weight() * own.map(|(ty, _)| ty.bytes()).sum::<usize>() as f64
}

/// This very program, which also serves as the worker.
pub(crate) fn worker_command(device: Device, target_cpu: &str) -> Result<WorkerCommand, Error> {
    let WorkerCommand { program, mut args } = host::program()?;
    args.extend(["candidates".to_owned(), "--target-cpu".into(), target_cpu.into()]);
    match device {
        Device::Cpu => args.extend(["--memory".into(), WORKER_MEMORY.to_string()]),
        // The driver reserves addresses for the memory of all devices: they have no limit.
        Device::Gpu { sm } => {
            args.extend(["--target".into(), "cuda".into(), "--sm".into(), sm.to_string()]);
        }
    }
    Ok(WorkerCommand { program, args })
}
