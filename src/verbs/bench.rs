//! `ansc bench`: latency after warm-up, and where the time goes.

use std::time::{Duration, Instant};

use ansc_runtime::cuda::DeviceInfo;
use ansc_runtime::manifest::KernelInfo;
use ansc_runtime::{Model, Session, SessionOptions, StepKind, StepTime, Tensor};
use ansc_tuner::title::title;
use serde::Serialize;

use super::show::counted;
use super::{print_json, sizes};
use crate::Error;
use crate::cli::Bench;
use crate::inputs::{self, Seed};
use crate::kinds::{self, Kind};

/// Warm-up ends after this long or this many runs, whichever comes first.
const WARM_UP: (Duration, usize) = (Duration::from_millis(500), 20);
const MEASURE: Duration = Duration::from_secs(3);
const MIN_RUNS: usize = 10;

#[derive(Serialize)]
struct Latency {
    runs: usize,
    threads: usize,
    min_ms: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    mean_ms: f64,
    gflops: f64,
}

pub(super) fn run(args: &Bench) -> Result<(), Error> {
    kinds::expect(&args.artifact, &[Kind::Artifact])?;
    let model = Model::load(&args.artifact)?;
    let options = SessionOptions {
        threads: args.threads,
        keep_denormals: args.keep_denormals,
        ..SessionOptions::default()
    };
    let mut session = model.session_with(&options)?;
    let specialisation = sizes::chosen(&model, &args.size)?;
    let inputs = inputs::for_specialisation(&model, specialisation, Seed(0))?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    warm_up(&mut session, &named)?;
    let times = measure(&mut session, &named, args.runs)?;
    let flops = model.manifest().kernels_of(specialisation).iter().map(|k| k.flops).sum::<u64>();
    let latency = summarise(times, session.threads(), flops);
    let on_device = on_device(&mut session, latency.runs, flops)?;
    let kernels =
        if args.per_kernel { Some(per_kernel(&model, &mut session, &named)?) } else { None };
    if args.json {
        let name = &specialisation.name;
        let device = on_device.map(|(device, latency)| {
            serde_json::json!({ "name": device.name, "sm": device.sm, "latency": latency })
        });
        print_json(&serde_json::json!({
            "specialisation": name, "latency": latency, "device": device, "kernels": kernels,
        }));
        return Ok(());
    }
    print_latency(args, &specialisation.name, &latency);
    if let Some((device, latency)) = on_device {
        println!(
            "{}, inputs and outputs on it: p50 {:.3} ms, p90 {:.3} ms ({:.1} GFLOP/s)",
            device.name, latency.p50_ms, latency.p90_ms, latency.gflops
        );
    }
    print_kernels(kernels.as_deref().unwrap_or_default());
    Ok(())
}

fn print_latency(args: &Bench, specialisation: &str, latency: &Latency) {
    let space = if specialisation.is_empty() { "" } else { " " };
    println!(
        "{}{space}{specialisation}: p50 {:.3} ms, p90 {:.3} ms, p99 {:.3} ms, min {:.3} ms over {} on {} ({:.1} GFLOP/s)",
        args.artifact.display(),
        latency.p50_ms,
        latency.p90_ms,
        latency.p99_ms,
        latency.min_ms,
        counted(latency.runs, "run"),
        counted(latency.threads, "thread"),
        latency.gflops
    );
}

fn print_kernels(kernels: &[KernelTime]) {
    if kernels.is_empty() {
        return;
    }
    println!(
        "{:>9}  {:>6} {:>5} {:>9} {:>8}  nodes (kernel)",
        "ms", "share", "runs", "GFLOP/s", "GB/s"
    );
    for k in kernels {
        let rate = |r: Option<f64>| r.map_or("-".into(), |r| format!("{r:.1}"));
        println!(
            "{:9.3} {:6.1}% {:5} {:>9} {:>8}  {}",
            k.ms,
            k.share * 100.0,
            k.runs,
            rate(k.gflops),
            rate(k.gbytes),
            k.title()
        );
    }
}

fn warm_up(session: &mut Session, inputs: &[(&str, &Tensor)]) -> Result<(), Error> {
    let start = Instant::now();
    for _ in 0..WARM_UP.1 {
        session.run(inputs)?;
        if start.elapsed() > WARM_UP.0 {
            break;
        }
    }
    Ok(())
}

fn measure(
    session: &mut Session,
    inputs: &[(&str, &Tensor)],
    runs: Option<usize>,
) -> Result<Vec<f64>, Error> {
    let start = Instant::now();
    let mut times = Vec::new();
    let enough =
        |n: usize| runs.map_or(n >= MIN_RUNS && start.elapsed() > MEASURE, |runs| n >= runs.max(1));
    while !enough(times.len()) {
        let begin = Instant::now();
        session.run(inputs)?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

fn summarise(mut times: Vec<f64>, threads: usize, flops: u64) -> Latency {
    times.sort_by(f64::total_cmp);
    let at = |q: f64| times[((times.len() - 1) as f64 * q).round() as usize];
    Latency {
        runs: times.len(),
        threads,
        min_ms: times[0],
        p50_ms: at(0.5),
        p90_ms: at(0.9),
        p99_ms: at(0.99),
        mean_ms: times.iter().sum::<f64>() / times.len() as f64,
        gflops: flops as f64 / at(0.5) / 1e6,
    }
}

/// Latency by the clock of a GPU, with inputs and outputs there.
fn on_device(
    session: &mut Session,
    runs: usize,
    flops: u64,
) -> Result<Option<(DeviceInfo, Latency)>, Error> {
    let Some(mut device) = session.device() else { return Ok(None) };
    let times = (0..runs).map(|_| Ok(device.seconds(1)? * 1e3));
    let times = times.collect::<Result<Vec<f64>, Error>>()?;
    Ok(Some((device.info().clone(), summarise(times, 1, flops))))
}

/// A step of the plan.
#[derive(Serialize)]
struct KernelTime {
    name: String,
    /// Of the model, if it is a kernel.
    nodes: Vec<String>,
    kind: &'static str,
    /// Of one run of the model, in which the step may run several times.
    ms: f64,
    share: f64,
    /// How often it ran in one run of the model.
    runs: u64,
    /// None for steps that are no kernels.
    gflops: Option<f64>,
    /// Inputs, constants and outputs, each counted once.
    gbytes: Option<f64>,
}

/// Mean time of every step over a few profiled runs, the slowest first.
fn per_kernel(
    model: &Model,
    session: &mut Session,
    inputs: &[(&str, &Tensor)],
) -> Result<Vec<KernelTime>, Error> {
    session.profile(true);
    for _ in 0..MIN_RUNS {
        session.run(inputs)?;
    }
    // Steps and kernels are both in the order of the plan.
    let mut kernels = model.manifest().kernels_of(session.specialisation()).into_iter();
    let steps: Vec<(StepTime, Option<&KernelInfo>)> = session
        .step_times()
        .into_iter()
        .map(|step| {
            let kernel = if step.kind == StepKind::Kernel { kernels.next() } else { None };
            (step, kernel)
        })
        // The time of control flow is that of the steps inside it.
        .filter(|(s, _)| s.runs > 0 && !matches!(s.kind, StepKind::If | StepKind::Loop))
        .collect();
    let total: f64 = steps.iter().map(|(s, _)| s.total.as_secs_f64()).sum();
    let mut times: Vec<_> = steps.into_iter().map(|(s, k)| kernel_time(s, k, total)).collect();
    times.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    Ok(times)
}

fn kernel_time(step: StepTime, kernel: Option<&KernelInfo>, total: f64) -> KernelTime {
    let seconds = step.total.as_secs_f64();
    // A step may be faster than the clock ticks.
    let rate = |work: u64| (seconds > 0.0).then(|| work as f64 * step.runs as f64 / seconds / 1e9);
    KernelTime {
        kind: step.kind.name(),
        ms: seconds * 1e3 / MIN_RUNS as f64,
        share: if total > 0.0 { seconds / total } else { 0.0 },
        runs: step.runs / MIN_RUNS as u64,
        gflops: kernel.and_then(|k| rate(k.flops)),
        gbytes: kernel.and_then(|k| rate(k.bytes)),
        nodes: kernel.map_or(vec![], |k| k.nodes.clone()),
        name: step.name,
    }
}

impl KernelTime {
    /// A kernel by its nodes first; other steps by what they do.
    fn title(&self) -> String {
        match self.nodes[..] {
            [] => format!("{} {}", self.kind, self.name),
            _ => title(&self.nodes, &self.name),
        }
    }
}
