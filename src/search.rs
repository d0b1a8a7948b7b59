//! Searching for the schedules of a model's kernels: from options to a run of the tuner.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use ansc_codegen::Target;
use ansc_tuner::measure::{Caches, WorkerCommand};
use ansc_tuner::model::{self, Corrected, CostModel, Known, SharedModel, WarmUp};
use ansc_tuner::records::{MachineRecord, Sqlite};
use ansc_tuner::scheduler::{self, Objective};
use ansc_tuner::strategy;
use ansc_tuner::tune::{self, Report, Tuner, Watch, Weighted};
use ansc_tuner::{Records, SearchStrategy};

use crate::Error;
use crate::choice::{Aim, Schedules, cold_target_name, gpu_name, target_name};
use crate::host;
use crate::kinds::{self, Kind};
use crate::limits;
use crate::pipeline::{self, Options};
use crate::shipped;
pub use place::{Measuring, Place};

mod place;

/// Where measurements are kept if nothing else is said.
pub const DEFAULT_RECORDS: &str = "ansc-records.db";
/// Address space of a worker: enough for LLVM and a large kernel's operands.
const WORKER_MEMORY: u64 = 16 << 30;

/// Becomes true when a signal says that the user wants no further round.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Becomes true when a search is to end after its round: at a signal, or at the word of the host.
pub(crate) struct Interrupt(Option<Arc<AtomicBool>>);

impl Interrupt {
    /// From now on, signals are taken unless a host has them.
    pub(crate) fn new() -> Interrupt {
        let host = host::interrupted();
        if host.is_none() {
            stop_when_interrupted();
        }
        Interrupt(host)
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        self.0.as_deref().unwrap_or(&INTERRUPTED)
    }
}

/// Threads to schedule for.
pub fn threads(wanted: usize) -> usize {
    match wanted {
        0 => ansc_runtime::pool::cores(),
        n => n,
    }
}

/// How long and how to search.
#[derive(Clone, Debug)]
pub struct Search {
    /// Candidates that are measured in one go.
    pub per_round: usize,
    /// How long it may take.
    pub time: Option<Duration>,
    /// How trials are shared out among kernels.
    pub scheduler: scheduler::Options,
    /// The seed of random choices.
    pub seed: u64,
    pub constants: Constants,
    pub strategy: strategy::Kind,
    pub cost_model: model::Kind,
    /// A file with a trained model, which goes before `cost_model`.
    pub trained: Option<PathBuf>,
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

/// Where measurements are kept, and what they are for.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The file of records.
    pub records: PathBuf,
    /// Threads that schedules are for; 0 takes all cores.
    pub threads: usize,
    /// Whether kernels that the records do not know get what comes with the compiler.
    pub shipped: bool,
}

/// A model, and how it is to be compiled.
pub type Asked<'a> = (&'a Path, &'a Options);

/// Measures candidates for the kernels of models, and writes down what came of it. The machine is
/// that of the first model.
pub fn tune(
    models: &[Asked<'_>],
    (search, kept): (&Search, &Kept),
    trials: usize,
    place: Place<'_>,
    watch: &dyn Watch,
) -> Result<Report, Error> {
    kinds::expect_if_there(&kept.records, &[Kind::Records])?;
    let [(_, options), ..] = *models else {
        return Err(Error::Usage("there is no model to tune".into()));
    };
    check(search, models.len())?;
    let device = place.device(options)?;
    let threads = device.threads(kept.threads);
    let tasks_of = |(model, options): &Asked<'_>| {
        let mut schedules = as_asked(options, threads);
        if kept.shipped {
            schedules.add_shipped(&options.target);
        }
        pipeline::tasks(model, &Options { schedules, ..Options::clone(options) })
    };
    let tasks = models.iter().map(tasks_of).collect::<Result<Vec<_>, _>>()?;
    let tasks = Weighted::together(tasks);
    let mut records = Sqlite::open(&kept.records)?;
    let caches = device.caches(search.constants, &tasks);
    let target = device.name(&options.target, caches);
    if device == Device::Cpu && place.is_here() {
        know_limits(&mut records, &target, threads)?;
    }
    // Before there is anything to leave behind.
    let interrupt = Interrupt::new();
    let builders = Some(self::threads(kept.threads));
    let measuring = Measuring { device, threads, caches, target: &target, builders, seconds: None };
    let mut measurer = place.measurer(&options.target, &measuring, &kept.records)?;
    let name = |model: &Path| model.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names = models.iter().map(|(model, _)| name(model)).collect();
    let model = cost_model(search, &tasks, &options.target)?;
    let new_strategy = |task: usize| -> Box<dyn SearchStrategy> {
        let seed = search.seed ^ (task as u64) << 32;
        search.strategy.create(&model, seed)
    };
    let options = tune::Options {
        trials,
        per_round: search.per_round.max(1),
        time: search.time,
        scheduler: search.scheduler.clone(),
        models: names,
        target,
        version: env!("CARGO_PKG_VERSION").into(),
        threads,
    };
    let tuner = Tuner {
        strategy: &new_strategy,
        model: model.clone(),
        measurer: measurer.as_mut(),
        records: &mut records,
        watch,
        interrupted: interrupt.flag(),
    };
    Ok(tuner.tune(&tasks, &options)?)
}

/// A requirement is of each model.
fn check(search: &Search, models: usize) -> Result<(), Error> {
    match &search.scheduler.objective {
        Objective::Requirement(limits) if limits.len() != models => {
            let message = format!(
                "`--objective requirement=MS,..` takes a limit for each model: there are {} for {models}",
                limits.len()
            );
            Err(Error::Usage(message))
        }
        _ => Ok(()),
    }
}

/// Measures what this machine can do, unless the records know.
fn know_limits(records: &mut Sqlite, target: &str, threads: usize) -> Result<(), Error> {
    if records.limits(target, threads)?.is_none() {
        let limits = limits::measure(threads)?;
        records.set_machine(&MachineRecord { target: target.into(), threads, limits })?;
    }
    Ok(())
}

/// The kind of model that comes with the compiler.
const SHIPPED: model::Kind = model::Kind::CORRECTED;
/// Samples that a model needs before it is asked, at most.
const WARM_UP: usize = 100;

/// Starts from what was trained before: by the user, or, of the kind that comes with the compiler,
/// by us.
fn cost_model(search: &Search, tasks: &[Weighted], target: &Target) -> Result<SharedModel, Error> {
    let shared = |model: Box<dyn CostModel>| Arc::new(RwLock::new(model));
    if let Some(path) = &search.trained {
        let (model, _) = model::file::load(path).map_err(|e| Error::file(path, e))?;
        return Ok(shared(Box::new(Known(model))));
    }
    if search.cost_model == SHIPPED
        && let Some(model) = shipped::model(target)
    {
        return Ok(shared(Box::new(Known(Corrected::clone(&model)))));
    }
    let model = search.cost_model.create(search.seed);
    let least = WARM_UP.min(tasks.len() * search.per_round / 2);
    Ok(shared(Box::new(WarmUp::new(model, least, search.seed))))
}

/// The first interrupt lets the round come to its end, the second ends the program. The same goes
/// for what a session or a service that ends sends to its programs.
fn stop_when_interrupted() {
    extern "C" fn stop(signal: libc::c_int) {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            // SAFETY: `_exit` may be called in a signal handler.
            unsafe { libc::_exit(128 + signal) };
        }
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only touches an atomic and calls `_exit`, both allowed in a signal
        // handler. Signals that who started the program wants to be ignored, as `nohup` does, stay
        // ignored.
        unsafe {
            if libc::signal(signal, stop as *const () as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
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
    fn name(self, cpu: &Target, caches: Caches) -> String {
        match self {
            Device::Cpu if caches == Caches::ColdConstants => cold_target_name(cpu),
            Device::Cpu => target_name(cpu),
            Device::Gpu { sm } => gpu_name(sm),
        }
    }

    fn caches(self, constants: Constants, tasks: &[Weighted]) -> Caches {
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
fn fit_the_cache(tasks: &[Weighted]) -> bool {
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

/// For the machine and the sums that are asked for, with nothing known yet.
fn as_asked(options: &Options, threads: usize) -> Schedules {
    let Schedules { machine, aim, sums, .. } = options.schedules.clone();
    Schedules { threads, machine, aim, sums, ..Schedules::untuned(&options.target) }
}

/// The best schedules that the records know for the kernels of a model, and where they know none,
/// what comes with the compiler.
pub fn best_schedules(model: &Path, options: &Options, kept: &Kept) -> Result<Schedules, Error> {
    kinds::expect_if_there(&kept.records, &[Kind::Records])?;
    let aim = &options.schedules.aim;
    let threads = if aim.is_cpu() { threads(kept.threads) } else { 1 };
    let targets = |tasks: &[Weighted]| match aim.gpus() {
        None => cpu_targets(&options.target, tasks),
        // One schedule for all generations: that of the newest for which there is one.
        Some(gpus) => gpus.sms().iter().map(|&sm| gpu_name(sm)).collect(),
    };
    let mut schedules = as_asked(options, threads);
    if kept.shipped {
        schedules.add_shipped(&options.target);
    }
    let tasks =
        pipeline::tasks(model, &Options { schedules: schedules.clone(), ..options.clone() })?;
    let records = Sqlite::open_existing(&kept.records)?;
    let targets = targets(&tasks);
    for weighted in tasks {
        for target in &targets {
            schedules.learn(&weighted.task, target, &records as &dyn Records)?;
        }
    }
    Ok(schedules)
}

/// The names that records of kernels may be filed under, the best last: measured with constants
/// where the model has them.
fn cpu_targets(target: &Target, tasks: &[Weighted]) -> Vec<String> {
    let (warm, cold) = (target_name(target), cold_target_name(target));
    if fit_the_cache(tasks) { vec![cold, warm] } else { vec![warm, cold] }
}
