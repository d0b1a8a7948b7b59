//! Search strategies side by side on one subgraph: options of the command line to a run of the
//! laboratory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ansc_codegen::Target;
use ansc_frontend::import::ImportOptions;
use ansc_sketch::{Machine, Task};
use ansc_tuner::Records;
use ansc_tuner::lab::{Comparison, Lab, LabError, Options as LabOptions, Watch};
use ansc_tuner::measure::{LocalMeasurer, LocalOptions, Measurer, Simulated};
use ansc_tuner::records::{InMemory, Journal, Sqlite};
use ansc_tuner::title::title;
use ansc_tuner::tune::Weighted;

use crate::Error;
use crate::choice::{Schedules, gpu_name, target_name};
use crate::cli;
use crate::kinds::{self, Kind};
use crate::pipeline::{self, Options};
use crate::quantize::asked;
use crate::search;

/// The device that schedules are for, and its name in records. The simulated device is the same on
/// every machine.
struct Device {
    /// The device that candidates run on, if they run.
    worker: Option<search::Device>,
    name: String,
    schedules: Schedules,
}

pub fn compare(
    args: &cli::Lab,
    import: impl FnOnce(&Path) -> Result<ImportOptions, Error>,
    aim: impl FnOnce(&mut Options) -> Result<(), Error>,
    watch: &dyn Watch,
) -> Result<Comparison, Error> {
    let folder = tempfile::tempdir()
        .map_err(|e| Error::Machine(format!("a temporary folder cannot be made: {e}")))?;
    let model = workload(&args.workload, folder.path())?;
    let target = Target::parse(&args.machine.target_cpu)?;
    let mut options = Options::new(import(&model)?, target);
    options.schedules.sums = args.accuracy.sums();
    asked::apply(&model, &args.accuracy, &mut options)?;
    aim(&mut options)?;
    let device = device(args, &options)?;
    options.schedules = device.schedules;
    let chosen = choose(pipeline::tasks(&model, &options)?, args.subgraph)?;
    let task = if args.no_layout { without_constants(&chosen.task) } else { chosen.task.clone() };
    let interrupt = search::Interrupt::new();
    let threads = options.schedules.threads;
    let mut measurer = measurer(args, device.worker, threads)?;
    let mut records: Box<dyn Records> = match &args.tuned.records {
        None if args.simulated => Box::new(InMemory::default()),
        _ => Box::new(Sqlite::open(&search::records_path(&args.tuned))?),
    };
    let options = LabOptions {
        strategies: args.strategies.clone(),
        seeds: args.seeds,
        trials: args.trials,
        per_round: args.per_round,
        cost_model: args.cost_model,
        trained: args.trained.clone(),
        space: args.space.parse().map_err(LabError::from)?,
        settle: if args.simulated { 0 } else { args.settle },
        target: device.name,
        version: env!("CARGO_PKG_VERSION").into(),
        threads,
    };
    let lab = Lab {
        measurer: measurer.as_mut(),
        records: records.as_mut(),
        watch,
        interrupted: interrupt.flag(),
        journal: Journal::default(),
    };
    let comparison = lab.compare(&task, &options)?;
    Ok(Comparison { task: title(chosen.nodes(), &chosen.task.name), ..comparison })
}

fn device(args: &cli::Lab, options: &Options) -> Result<Device, Error> {
    let untuned = options.schedules.clone();
    if args.simulated {
        let Simulated { cores, vector_bytes, registers, .. } = Simulated::default();
        let machine = Machine::new(vector_bytes, registers);
        let schedules = Schedules { machine, threads: cores, ..untuned };
        return Ok(Device { worker: None, name: "simulated".into(), schedules });
    }
    let worker = search::Device::to_tune_on(options)?;
    let name = match worker {
        search::Device::Cpu => target_name(&options.target),
        search::Device::Gpu { sm } => gpu_name(sm),
    };
    let schedules = Schedules { threads: worker.threads(args.tuned.threads), ..untuned };
    Ok(Device { worker: Some(worker), name, schedules })
}

fn measurer(
    args: &cli::Lab,
    device: Option<search::Device>,
    threads: usize,
) -> Result<Box<dyn Measurer>, Error> {
    let Some(device) = device else { return Ok(Box::new(Simulated::default())) };
    let worker = search::worker_command(device, &args.machine.target_cpu)?;
    let options = LocalOptions { run_limit: args.run_limit, ..LocalOptions::new(worker, threads) };
    let local = LocalMeasurer::new(options).map_err(LabError::from)?;
    Ok(Box::new(local))
}

/// Weights that may be anything when the program runs are not laid out when it is compiled.
fn without_constants(task: &Arc<Task>) -> Arc<Task> {
    let constant = vec![false; task.constant.len()];
    Arc::new(Task { constant, ..task.as_ref().clone() })
}

/// A file as it is; a generated workload is written to the folder.
pub(crate) fn workload(name: &str, folder: &Path) -> Result<PathBuf, Error> {
    let path = PathBuf::from(name);
    if path.extension().is_some_and(|e| e == "onnx") || path.is_file() {
        kinds::expect(&path, &[Kind::Model])?;
        return Ok(path);
    }
    let unknown = || {
        Error::Usage(format!(
            "`{name}` is neither a file nor a generated workload; `ansc models` lists those"
        ))
    };
    let generator = ansc_models::find(name).ok_or_else(unknown)?;
    let path = folder.join(format!("{}.onnx", generator.name));
    std::fs::write(&path, generator.build().to_bytes()).map_err(|e| Error::file(&path, e))?;
    Ok(path)
}

/// The subgraph of that number, or the one with the most operations.
fn choose(tasks: Vec<Weighted>, number: Option<usize>) -> Result<Weighted, Error> {
    let count = tasks.len();
    let none = || match number {
        Some(n) => Error::Usage(format!(
            "there is no subgraph {n}; the last of {count} is {}",
            count.saturating_sub(1)
        )),
        None => Error::Usage("the workload has no subgraph to schedule".into()),
    };
    let chosen = match number {
        Some(n) => tasks.into_iter().nth(n),
        None => tasks.into_iter().rev().max_by_key(|t| t.flops),
    };
    chosen.ok_or_else(none)
}
