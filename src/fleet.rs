//! Measuring on other machines: from options to a tuner's measurer, and to a worker.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ansc_codegen::Target;
use ansc_tuner::Measurer;
use ansc_tuner::fleet::{
    Access, FleetMeasurer, How, Identity, Kind, PROTOCOL, Road, Runtime, Served, Station, Status,
    Tell, Wanted,
};
use ansc_tuner::measure::{LocalMeasurer, LocalOptions, MeasureError, WorkerCommand};
use ansc_tuner::tune::TuneError;

use crate::Error;
use crate::candidate::offline;
use crate::choice::{Aim, Gpus, Schedules, gpu_name, target_name};
use crate::interrupt::Interrupt;
use crate::measuring::{self, Device, Measuring};

/// Measuring on a fleet in place of this machine.
#[derive(Clone, Debug)]
pub struct Options {
    pub access: Access,
    /// Cores of the machines that measure; if nothing is said, those of this machine.
    pub cores: Option<usize>,
    /// The name of the GPU that measures; if nothing is said, that of this machine.
    pub gpu: Option<String>,
    /// How long workers of this kind of machine are waited for.
    pub patience: Duration,
}

/// Measuring for others.
#[derive(Clone, Debug)]
pub struct Work {
    pub access: Access,
    /// The CPU that is compiled for, by its name.
    pub target_cpu: String,
    /// On the GPU of this machine, in place of its CPU.
    pub on_gpu: bool,
    /// Threads that run a candidate; 0 takes all cores.
    pub threads: usize,
    /// The name of this machine in records, if it is not its host name.
    pub name: Option<String>,
    /// The file that stands for the device, if it is not the usual one.
    pub lease: Option<PathBuf>,
    /// Candidates that it takes at a time, at most.
    pub at_once: usize,
    /// If the server hears nothing of a candidate for so long, another worker gets it.
    pub silence: Duration,
    /// A file that gets a line of JSON for each answer that the server has kept.
    pub log: Option<PathBuf>,
}

fn connect(access: &Access) -> Result<Road, Error> {
    let road = Runtime::new().and_then(|runtime| Road::connect(&runtime, access));
    Ok(road.map_err(MeasureError::from).map_err(TuneError::from)?)
}

fn tell(who: &'static str) -> Tell {
    Arc::new(move |line| eprintln!("{who}: {line}"))
}

/// The name of this machine.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(64).collect();
    if name.is_empty() { "unnamed".into() } else { name }
}

fn kind(target: &Target, device: Device, threads: usize, cores: usize, gpu: &str) -> Kind {
    let (target, gpu) = match device {
        Device::Cpu => (target_name(target), None),
        Device::Gpu { sm } => (gpu_name(sm), Some(gpu.to_owned())),
    };
    Kind {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        target,
        cores,
        threads,
        gpu,
    }
}

/// The name of the GPU that candidates run on, if they run on one.
fn gpu(device: Device, given: Option<&String>) -> Result<String, Error> {
    match (device, given) {
        (Device::Cpu, _) => Ok(String::new()),
        (Device::Gpu { .. }, Some(name)) => Ok(name.clone()),
        (Device::Gpu { .. }, None) => {
            let needed = |e| {
                Error::Machine(format!("name the GPU that measures with --fleet-gpu: here, {e}"))
            };
            Ok(ansc_runtime::cuda::device().map_err(needed)?.name)
        }
    }
}

/// The measurer on a fleet, for a tuner or a data set that is kept in `beside`.
pub fn measurer(
    options: &Options,
    target: &Target,
    how: &Measuring<'_>,
    beside: &Path,
) -> Result<FleetMeasurer, Error> {
    let cores = options.cores.unwrap_or_else(ansc_runtime::pool::cores);
    let gpu = gpu(how.device, options.gpu.as_ref())?;
    let nothing = WorkerCommand { program: "".into(), args: vec![] };
    let usual = LocalOptions::new(nothing, how.threads);
    let wanted = Wanted {
        kind: kind(target, how.device, how.threads, cores, &gpu),
        target: how.target.to_owned(),
        how: How {
            caches: how.caches,
            build_seconds: usual.build_limit.as_secs_f64(),
            run_seconds: usual.run_limit.as_secs_f64(),
            seconds: how.seconds.unwrap_or(usual.seconds),
        },
        machine: host_name(),
        patience: options.patience,
        tell: tell("fleet"),
    };
    let road = connect(&options.access)?;
    let identity = Identity::take(beside);
    let measurer = identity.and_then(|identity| FleetMeasurer::new(&road, identity, wanted));
    Ok(measurer.map_err(MeasureError::from).map_err(TuneError::from)?)
}

/// Looks at a fleet.
pub fn status(access: &Access) -> Result<Status, Error> {
    let status = ansc_tuner::fleet::status(&connect(access)?);
    Ok(status.map_err(MeasureError::from).map_err(TuneError::from)?)
}

/// Measures for others until it is interrupted.
pub fn work(options: &Work) -> Result<Served, Error> {
    let target = Target::parse(&options.target_cpu)?;
    let (device, station) = station(options, &target)?;
    let mut worker = measuring::worker_command(device, &options.target_cpu)?;
    let tell = station.tell.clone();
    if device == Device::Cpu && offline::is_permitted() {
        worker.args.push("--offline".into());
    } else {
        tell("candidates run with the network of this machine, which could not be taken from them");
    }
    let road = connect(&options.access)?;
    let interrupt = Interrupt::new();
    let usual = LocalOptions {
        builders: measuring::threads(options.threads),
        ..LocalOptions::new(worker, station.kind.threads)
    };
    let make = |how: &How| -> Result<Box<dyn Measurer>, MeasureError> {
        let options = LocalOptions {
            caches: how.caches,
            build_limit: Duration::from_secs_f64(how.build_seconds),
            run_limit: Duration::from_secs_f64(how.run_seconds),
            seconds: how.seconds,
            ..usual.clone()
        };
        Ok(Box::new(LocalMeasurer::new(options)?))
    };
    tell(&format!("{} measures for {}, {}", station.name, road.server(), station.kind));
    let served = ansc_tuner::fleet::serve(&road, &station, &make, interrupt.flag());
    Ok(served.map_err(TuneError::from)?)
}

fn station(options: &Work, target: &Target) -> Result<(Device, Station), Error> {
    let mut schedules = Schedules::untuned(target);
    let device = match options.on_gpu {
        false => Device::Cpu,
        true => {
            let sm = Device::of_this_machine()?;
            schedules.aim_at(Aim::Gpu(Gpus::of(&[sm])));
            Device::Gpu { sm }
        }
    };
    let threads = device.threads(options.threads);
    let name = match device {
        Device::Cpu => "cpu",
        Device::Gpu { .. } => "gpu",
    };
    let lease = std::env::temp_dir().join(format!("ansc-lease-{name}"));
    let cores = ansc_runtime::pool::cores();
    let station = Station {
        kind: kind(target, device, threads, cores, &gpu(device, None)?),
        machine: schedules.machine,
        name: options.name.clone().unwrap_or_else(host_name),
        lease: Some(options.lease.clone().unwrap_or(lease)),
        patience: options.silence,
        most: options.at_once,
        log: options.log.clone(),
        tell: tell("worker"),
    };
    Ok((device, station))
}
