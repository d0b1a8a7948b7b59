//! `ansc bench`: latency and throughput after warm-up, and where the time goes.

mod kernels;
mod latency;
mod streams;
mod trace;

use std::time::Instant;

use ansc_runtime::cuda::DeviceInfo;
use ansc_runtime::manifest::Specialisation;
use ansc_runtime::{Model, Session, SessionOptions, Tensor};
use serde_json::json;

use super::show::counted;
use super::{given, print_json};
use crate::cli::Bench;
use crate::inputs::Seed;
use crate::kinds::{self, Kind};
use crate::states::outside::{Start, opened};
use crate::{Error, chosen, output};
use kernels::KernelTime;
use latency::{Latency, summarise};
use streams::{Measured, Plan};
use trace::Runs;

/// Everything that was measured.
struct Report<'a> {
    specialisation: &'a Specialisation,
    load_ms: f64,
    first_run_ms: f64,
    measured: Measured,
    latency: Latency,
    device: Option<(DeviceInfo, Latency)>,
    kernels: Option<Vec<KernelTime>>,
}

pub(super) fn run(args: &Bench) -> Result<(), Error> {
    kinds::expect(&args.artifact, &[Kind::Artifact])?;
    let options = SessionOptions {
        threads: args.threads.unwrap_or(usize::from(args.streams > 1)),
        keep_denormals: args.keep_denormals,
        ..SessionOptions::default()
    };
    let begin = Instant::now();
    let model = Model::load(&args.artifact)?;
    let mut session = model.session_with(&options)?;
    let load_ms = milliseconds(begin);
    if let Some(path) = &args.trace {
        output::check(path, &[&args.artifact])?;
    }
    if args.trace.is_some() && session.device().is_some() {
        let reason = "`--trace` shows the threads of a CPU; this artifact is for a GPU";
        return Err(Error::Usage(reason.into()));
    }
    let wanted = args.size.wanted()?;
    let specialisation = chosen::specialisation(&model, &wanted)?;
    let inputs = given::or_made_up(&args.inputs, &model, &specialisation, Seed(0))?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let begin = Instant::now();
    let start = Start::new(&session, &named);
    start.set(&mut session)?;
    start.run(&mut session)?;
    let first_run_ms = milliseconds(begin);
    // Values that were given decide by their shapes.
    let shapes: Vec<_> = named.iter().map(|(name, tensor)| (*name, tensor.shape())).collect();
    let ran = chosen::with_shapes(&opened(session.specialisation()), &shapes);
    let sized = !wanted.is_any();
    if sized && ran.name != specialisation.name {
        let (is, asked) = (&ran.name, &specialisation.name);
        let message = format!("the inputs have the size {is}, but {asked} was asked for");
        return Err(Error::Usage(message));
    }
    let specialisation = &ran;
    let measured = measure(args, &model, &mut session, &options, &start)?;
    let is_all = chosen::is_largest(&opened(session.specialisation()), &shapes);
    let kernels = model.manifest().kernels_of(specialisation);
    let flops = is_all.then(|| kernels.iter().map(|k| k.flops).sum::<u64>());
    let latency = summarise(&measured.times, session.threads(), flops);
    let device = on_device(&mut session, latency.runs, flops)?;
    let kernels = match args.per_kernel {
        true => Some(kernels::per_kernel(&model, &mut session, &start, is_all)?),
        false => None,
    };
    let report =
        Report { specialisation, load_ms, first_run_ms, measured, latency, device, kernels };
    if args.json {
        report.print_json(args)
    } else {
        report.print(args)
    }
    Ok(())
}

fn measure(
    args: &Bench,
    model: &Model,
    session: &mut Session,
    options: &SessionOptions,
    inputs: &Start<'_>,
) -> Result<Measured, Error> {
    let plan = Plan { warm_up: args.warmup, runs: args.runs, duration: args.duration };
    if args.streams > 1 {
        return plan.measure_streams(model, options, args.streams, inputs);
    }
    plan.warm_up(session, inputs)?;
    let Some(path) = &args.trace else { return plan.measure(session, inputs) };
    let origin = session.start_trace(trace::ROOM);
    let mut measured = plan.measure(session, inputs)?;
    measured.dropped = trace::write(path, model, session, &Runs { origin, measured: &measured })?;
    Ok(measured)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

impl Report<'_> {
    fn print_json(&self, args: &Bench) {
        let device = self.device.as_ref().map(
            |(device, latency)| json!({ "name": device.name, "sm": device.sm, "latency": latency }),
        );
        let mut report = json!({
            "specialisation": self.specialisation.name,
            "streams": args.streams,
            "load_ms": self.load_ms,
            "first_run_ms": self.first_run_ms,
            "throughput": self.measured.throughput(),
            "latency": self.latency,
            "device": device,
            "kernels": self.kernels,
        });
        if args.raw {
            report["times_ms"] = json!(self.measured.times);
        }
        print_json(&report);
    }

    fn print(&self, args: &Bench) {
        let (latency, name) = (&self.latency, &self.specialisation.name);
        let space = if name.is_empty() { "" } else { " " };
        let streams = match args.streams {
            1 => String::new(),
            n => format!(" in each of {n} streams"),
        };
        println!(
            "{}{space}{name}: p50 {:.3} ms, p90 {:.3} ms, p99 {:.3} ms, min {:.3} ms over {} on {}{streams}{}",
            args.artifact.display(),
            latency.p50_ms,
            latency.p90_ms,
            latency.p99_ms,
            latency.min_ms,
            counted(latency.runs, "run"),
            counted(latency.threads, "thread"),
            latency.rate()
        );
        println!(
            "{:.1} runs/s; loaded in {:.1} ms, first run {:.3} ms; mean {:.3} ms, standard deviation {:.3} ms",
            self.measured.throughput(),
            self.load_ms,
            self.first_run_ms,
            latency.mean_ms,
            latency.std_ms
        );
        if let Some((device, latency)) = &self.device {
            println!(
                "{}, inputs and outputs on it: p50 {:.3} ms, p90 {:.3} ms{}",
                device.name,
                latency.p50_ms,
                latency.p90_ms,
                latency.rate()
            );
        }
        kernels::print(self.kernels.as_deref().unwrap_or_default());
        if let Some(path) = &args.trace {
            let rest = match self.measured.dropped {
                0 => String::new(),
                n => format!("; it shows the first runs, and had no room for {n} pieces of work"),
            };
            println!("{}: open it at https://ui.perfetto.dev{rest}", path.display());
        }
    }
}

/// Latency by the clock of a GPU, with inputs and outputs there.
fn on_device(
    session: &mut Session,
    runs: usize,
    flops: Option<u64>,
) -> Result<Option<(DeviceInfo, Latency)>, Error> {
    let Some(mut device) = session.device() else { return Ok(None) };
    let times = (0..runs).map(|_| Ok(device.seconds(1)? * 1e3));
    let times = times.collect::<Result<Vec<f64>, Error>>()?;
    Ok(Some((device.info().clone(), summarise(&times, 1, flops))))
}
