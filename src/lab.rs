//! Search strategies side by side on one subgraph: from options to a run of the laboratory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ansc_sketch::{Machine, Task};
use ansc_tuner::Records;
use ansc_tuner::lab::{
    Comparison, Lab as Laboratory, LabError, Options as LabOptions, Plan, Watch,
};
use ansc_tuner::measure::{LocalMeasurer, LocalOptions, Measurer, Simulated};
use ansc_tuner::records::{InMemory, Journal, Sqlite};
use ansc_tuner::title::title;
use ansc_tuner::tune::Weighted;

use crate::Error;
use crate::choice::{Schedules, gpu_name, target_name};
use crate::interrupt::Interrupt;
use crate::kinds::{self, Kind};
use crate::measuring;
use crate::pipeline::{self, Options};
use crate::search;

/// The device that schedules are for, and its name in records. The simulated device is the same on
/// every machine.
struct Device {
    /// The device that candidates run on, if they run.
    worker: Option<measuring::Device>,
    name: String,
    schedules: Schedules,
}

/// The subgraph, and the searches that are compared on it.
#[derive(Clone, Debug)]
pub struct Lab {
    /// A generated workload, or an ONNX model.
    pub workload: String,
    /// The subgraph by its number; the one with the most operations, if none is named.
    pub subgraph: Option<usize>,
    /// The strategies, and what each of their runs may do.
    pub plan: Plan,
    /// Leave weights in the order in which the model has them.
    pub no_layout: bool,
    /// Measure on a device that is only computed.
    pub simulated: bool,
    /// A candidate that takes longer has failed.
    pub run_limit: Duration,
    /// Where measurements are kept; those of the device that is computed need no file.
    pub records: Option<PathBuf>,
    /// Threads that candidates run on; 0 takes all cores.
    pub threads: usize,
    /// The CPU that is compiled for, by its name.
    pub target_cpu: String,
}

/// `compiled` says how a model is to be compiled.
pub fn compare(
    asked: &Lab,
    compiled: impl FnOnce(&Path) -> Result<Options, Error>,
    watch: &dyn Watch,
) -> Result<Comparison, Error> {
    let folder = tempfile::tempdir()
        .map_err(|e| Error::Machine(format!("a temporary folder cannot be made: {e}")))?;
    let model = workload(&asked.workload, folder.path())?;
    let mut options = compiled(&model)?;
    let device = device(asked, &options)?;
    options.schedules = device.schedules;
    let chosen = choose(pipeline::tasks(&model, &options)?, asked.subgraph)?;
    let task = if asked.no_layout { without_constants(&chosen.task) } else { chosen.task.clone() };
    let interrupt = Interrupt::new();
    let threads = options.schedules.threads;
    let mut measurer = measurer(asked, device.worker, threads)?;
    let mut records: Box<dyn Records> = match &asked.records {
        None if asked.simulated => Box::new(InMemory::default()),
        None => Box::new(Sqlite::open(Path::new(search::DEFAULT_RECORDS))?),
        Some(path) => Box::new(Sqlite::open(path)?),
    };
    // A device that is only computed is exact.
    let settle = if asked.simulated { 0 } else { asked.plan.settle };
    let options = LabOptions {
        plan: Plan { settle, ..asked.plan.clone() },
        target: device.name,
        version: env!("CARGO_PKG_VERSION").into(),
        threads,
    };
    let lab = Laboratory {
        measurer: measurer.as_mut(),
        records: records.as_mut(),
        watch,
        interrupted: interrupt.flag(),
        journal: Journal::default(),
    };
    let comparison = lab.compare(&task, &options)?;
    Ok(Comparison { task: title(chosen.nodes(), &chosen.task.name), ..comparison })
}

fn device(asked: &Lab, options: &Options) -> Result<Device, Error> {
    let untuned = options.schedules.clone();
    if asked.simulated {
        let Simulated { cores, vector_bytes, registers, .. } = Simulated::default();
        let machine = Machine::new(vector_bytes, registers);
        let schedules = Schedules { machine, threads: cores, ..untuned };
        return Ok(Device { worker: None, name: "simulated".into(), schedules });
    }
    let worker = measuring::Device::to_tune_on(options)?;
    let name = match worker {
        measuring::Device::Cpu => target_name(&options.target),
        measuring::Device::Gpu { sm } => gpu_name(sm),
    };
    let schedules = Schedules { threads: worker.threads(asked.threads), ..untuned };
    Ok(Device { worker: Some(worker), name, schedules })
}

fn measurer(
    asked: &Lab,
    device: Option<measuring::Device>,
    threads: usize,
) -> Result<Box<dyn Measurer>, Error> {
    let Some(device) = device else { return Ok(Box::new(Simulated::default())) };
    let worker = measuring::worker_command(device, &asked.target_cpu)?;
    let options = LocalOptions { run_limit: asked.run_limit, ..LocalOptions::new(worker, threads) };
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
