//! Data sets of measured traces: from options to a run of the collector.

mod operators;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ansc_codegen::Target;
use ansc_frontend::import::ImportOptions;
use ansc_sketch::Machine;
use ansc_tuner::dataset::{Collected, Collector, Dataset, Entry, Platform, Reference, Watch};
use ansc_tuner::measure::Caches;

use crate::choice::{Schedules, cold_target_name, target_name};
use crate::interrupt::Interrupt;
use crate::measuring::{self, Device, Measuring};
use crate::pipeline::{self, Options};
use crate::search::Place;
use crate::{Error, lab};

/// Traces that are measured in one go.
const PER_ROUND: usize = 8;
/// For timing one trace: labels tell what is far apart, and a data set needs many.
const TIMING_SECONDS: f64 = 0.02;

/// The traces to make and to measure.
#[derive(Clone, Debug)]
pub struct Collect {
    /// The folder of the data set, which is made if there is none.
    pub dataset: PathBuf,
    /// Generated workloads or models; all generated networks if there are none.
    pub workloads: Vec<String>,
    /// Only the traces that the data set has already.
    pub known: bool,
    /// Random operators as well, so many of them.
    pub operators: usize,
    /// Traces of a task at most.
    pub per_task: usize,
    /// The seed of all traces.
    pub seed: u64,
    /// How long it may take.
    pub time: Option<Duration>,
    /// Threads that traces run on; 0 takes all cores.
    pub threads: usize,
    /// The CPU to compile for, by its name.
    pub target_cpu: String,
    /// Constants come from memory in every run.
    pub cold_constants: bool,
}

/// Collects what the options ask for.
pub fn collect(options: &Collect, place: Place<'_>, watch: &dyn Watch) -> Result<Collected, Error> {
    let until = options.time.and_then(|time| Instant::now().checked_add(time));
    let target = Target::parse(&options.target_cpu)?;
    let (dataset, entries) = tasks(options, &target)?;
    let threads = measuring::threads(options.threads);
    let (name, caches) = match options.cold_constants {
        true => (cold_target_name(&target), Caches::ColdConstants),
        false => (target_name(&target), Caches::Warm),
    };
    let platform = Platform {
        target: name,
        threads,
        vector_bytes: target.vector_bytes,
        registers: target.vector_registers,
    };
    let interrupt = Interrupt::new();
    let measuring = Measuring {
        device: Device::Cpu,
        threads,
        caches,
        target: &platform.target,
        builders: None,
        seconds: Some(TIMING_SECONDS),
    };
    let mut measurer = place.measurer(&target, &measuring, &options.dataset.join(platform.id()))?;
    let collector = Collector {
        dataset: &dataset,
        platform: &platform,
        machine: platform.machine(),
        measurer: measurer.as_mut(),
        watch,
        interrupted: interrupt.flag(),
        per_round: PER_ROUND,
        until,
    };
    Ok(collector.collect(&entries)?)
}

fn tasks(options: &Collect, target: &Target) -> Result<(Dataset, Vec<Entry>), Error> {
    if options.known {
        let dataset = Dataset::open(&options.dataset)?;
        let entries = dataset.entries()?;
        return Ok((dataset, entries));
    }
    let dataset = Dataset::open_or_create(&options.dataset, options.seed, options.per_task)?;
    let entries = entries(options, target, &dataset.header().reference)?;
    Ok((dataset, entries))
}

/// The distinct tasks of all workloads, as they are for the machine that traces are made for.
fn entries(options: &Collect, target: &Target, reference: &Reference) -> Result<Vec<Entry>, Error> {
    let folder = tempfile::tempdir()
        .map_err(|e| Error::Machine(format!("a temporary folder cannot be made: {e}")))?;
    let networks = ansc_models::all().filter(|g| g.kind == ansc_models::Kind::Network);
    let workloads: Vec<String> = match options.workloads.is_empty() {
        true => networks.map(|g| g.name.to_owned()).collect(),
        false => options.workloads.clone(),
    };
    let mut all = Entries { places: BTreeMap::new(), entries: vec![] };
    let machine = Machine::new(reference.vector_bytes, reference.registers);
    let schedules = Schedules { machine, threads: reference.cores, ..Schedules::untuned(target) };
    for name in &workloads {
        let model = lab::workload(name, folder.path())?;
        all.add(&model, target, &schedules)?;
        let is_made = model.starts_with(folder.path());
        if is_made {
            std::fs::remove_file(&model).map_err(|e| Error::file(&model, e))?;
        }
    }
    for number in 0..options.operators {
        let path = folder.path().join("operators.onnx");
        let model = operators::random(options.seed, number as u64);
        std::fs::write(&path, model.to_bytes()).map_err(|e| Error::file(&path, e))?;
        all.add(&path, target, &schedules)?;
    }
    Ok(all.entries)
}

struct Entries {
    /// By key.
    places: BTreeMap<String, usize>,
    /// In the order in which they were found.
    entries: Vec<Entry>,
}

impl Entries {
    fn add(&mut self, model: &Path, target: &Target, schedules: &Schedules) -> Result<(), Error> {
        let network = model.file_stem().map(|n| n.to_string_lossy().into_owned());
        let network = network.unwrap_or_default();
        let options = Options::new(ImportOptions::default(), target.clone());
        let options = Options { schedules: schedules.clone(), ..options };
        for weighted in pipeline::tasks(model, &options)? {
            let key = weighted.task.key();
            let entries = &mut self.entries;
            let place = *self.places.entry(key.clone()).or_insert_with(|| {
                entries.push(Entry {
                    key,
                    name: weighted.task.name.clone(),
                    compute: weighted.task.compute.to_string(),
                    constant: weighted.task.constant.clone(),
                    networks: BTreeMap::new(),
                });
                entries.len() - 1
            });
            let count = weighted.weight().round() as u64;
            *entries[place].networks.entry(network.clone()).or_default() += count.max(1);
        }
        Ok(())
    }
}
