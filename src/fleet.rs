//! Measuring on other machines: options of the command line to a tuner's measurer, and to a worker.

use std::path::Path;
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
use crate::cli;
use crate::search::{self, Device, Interrupt, Measuring};

/// The environment's word for a token, which a command line would show to everybody.
const TOKEN: &str = "ANSC_FLEET_TOKEN";

fn connect(server: &cli::Server) -> Result<Road, Error> {
    let url = server.fleet.clone().ok_or_else(|| {
        let text = "which fleet? name its server with --fleet nats://HOST:4222";
        Error::Usage(text.into())
    })?;
    let access = Access {
        url,
        token: server.fleet_token.clone().or_else(|| std::env::var(TOKEN).ok()),
        nkey: server.fleet_nkey.clone(),
        creds: server.fleet_creds.clone(),
        ca: server.fleet_tlsca.clone(),
        certificate: server.fleet_tlscert.clone().zip(server.fleet_tlskey.clone()),
    };
    let road = Runtime::new().and_then(|runtime| Road::connect(&runtime, &access));
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
    args: &cli::Fleet,
    target: &Target,
    how: &Measuring<'_>,
    beside: &Path,
) -> Result<FleetMeasurer, Error> {
    let cores = args.fleet_cores.unwrap_or_else(ansc_runtime::pool::cores);
    let gpu = gpu(how.device, args.fleet_gpu.as_ref())?;
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
        patience: args.fleet_patience,
        tell: tell("fleet"),
    };
    let road = connect(&args.server)?;
    let identity = Identity::take(beside);
    let measurer = identity.and_then(|identity| FleetMeasurer::new(&road, identity, wanted));
    Ok(measurer.map_err(MeasureError::from).map_err(TuneError::from)?)
}

/// Looks at a fleet.
pub fn status(server: &cli::Server) -> Result<Status, Error> {
    let status = ansc_tuner::fleet::status(&connect(server)?);
    Ok(status.map_err(MeasureError::from).map_err(TuneError::from)?)
}

/// Measures for others until it is interrupted.
pub fn work(args: &cli::Worker) -> Result<Served, Error> {
    let target = Target::parse(&args.machine.target_cpu)?;
    let (device, station) = station(args, &target)?;
    let mut worker = search::worker_command(device, &args.machine.target_cpu)?;
    let tell = station.tell.clone();
    if device == Device::Cpu && offline::is_permitted() {
        worker.args.push("--offline".into());
    } else {
        tell("candidates run with the network of this machine, which could not be taken from them");
    }
    let road = connect(&args.server)?;
    let interrupt = Interrupt::new();
    let options = LocalOptions {
        builders: search::threads(args.threads),
        ..LocalOptions::new(worker, station.kind.threads)
    };
    let make = |how: &How| -> Result<Box<dyn Measurer>, MeasureError> {
        let options = LocalOptions {
            caches: how.caches,
            build_limit: Duration::from_secs_f64(how.build_seconds),
            run_limit: Duration::from_secs_f64(how.run_seconds),
            seconds: how.seconds,
            ..options.clone()
        };
        Ok(Box::new(LocalMeasurer::new(options)?))
    };
    tell(&format!("{} measures for {}, {}", station.name, road.server(), station.kind));
    let served = ansc_tuner::fleet::serve(&road, &station, &make, interrupt.flag());
    Ok(served.map_err(TuneError::from)?)
}

fn station(args: &cli::Worker, target: &Target) -> Result<(Device, Station), Error> {
    let mut schedules = Schedules::untuned(target);
    let device = match args.machine.target {
        cli::Device::Cpu => Device::Cpu,
        cli::Device::Cuda => {
            let sm = Device::of_this_machine()?;
            schedules.aim_at(Aim::Gpu(Gpus::of(&[sm])));
            Device::Gpu { sm }
        }
        other @ cli::Device::CudaOnCpu => {
            let text = format!("workers are for `--target cpu` or `--target cuda`, not `{other}`");
            return Err(Error::Usage(text));
        }
    };
    let threads = device.threads(args.threads);
    let name = match device {
        Device::Cpu => "cpu",
        Device::Gpu { .. } => "gpu",
    };
    let lease = std::env::temp_dir().join(format!("ansc-lease-{name}"));
    let cores = ansc_runtime::pool::cores();
    let station = Station {
        kind: kind(target, device, threads, cores, &gpu(device, None)?),
        machine: schedules.machine,
        name: args.name.clone().unwrap_or_else(host_name),
        lease: Some(args.lease.clone().unwrap_or(lease)),
        patience: args.silence,
        most: args.at_once,
        log: args.log.clone(),
        tell: tell("worker"),
    };
    Ok((device, station))
}
