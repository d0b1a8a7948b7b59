//! Searching for the schedules of a model's kernels: from options to a run of the tuner.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use ansc_codegen::Target;
use ansc_tuner::model::{self, Corrected, CostModel, Known, SharedModel, WarmUp};
use ansc_tuner::records::{MachineRecord, Sqlite};
use ansc_tuner::scheduler::{self, Objective};
use ansc_tuner::strategy;
use ansc_tuner::tune::{self, Report, Tuner, Watch, Weighted};
use ansc_tuner::{Records, SearchStrategy};

use crate::Error;
use crate::choice::{Schedules, cold_target_name, gpu_name, target_name};
use crate::interrupt::Interrupt;
use crate::kinds::{self, Kind};
use crate::limits;
pub use crate::measuring::{Constants, Measuring, threads};
use crate::measuring::{Device, fit_the_cache};
use crate::pipeline::{self, Options};
use crate::shipped;
pub use place::Place;

mod place;

/// Where measurements are kept if nothing else is said.
pub const DEFAULT_RECORDS: &str = "ansc-records.db";

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
