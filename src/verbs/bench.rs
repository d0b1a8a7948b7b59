//! `ansc bench`: latency after warm-up, and where the time goes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ansc_runtime::{Model, Session, SessionOptions, StepKind, Tensor};
use serde::Serialize;

use super::print_json;
use crate::Error;
use crate::cli::Bench;
use crate::inputs::{self, Seed};

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
    let model = Model::load(&args.artifact)?;
    let options = SessionOptions { threads: args.threads, ..SessionOptions::default() };
    let mut session = model.session_with(&options)?;
    let inputs = inputs::for_model(&model, Seed(0));
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    warm_up(&mut session, &named)?;
    let times = measure(&mut session, &named, args.runs)?;
    let flops = model.manifest().kernels.iter().map(|k| k.flops).sum::<u64>();
    let latency = summarise(times, session.threads(), flops);
    let kernels =
        if args.per_kernel { Some(per_kernel(&model, &mut session, &named)?) } else { None };
    if args.json {
        print_json(&serde_json::json!({ "latency": latency, "kernels": kernels }));
        return Ok(());
    }
    println!(
        "{}: p50 {:.3} ms, p90 {:.3} ms, p99 {:.3} ms, min {:.3} ms over {} runs on {} threads ({:.1} GFLOP/s)",
        args.artifact.display(),
        latency.p50_ms,
        latency.p90_ms,
        latency.p99_ms,
        latency.min_ms,
        latency.runs,
        latency.threads,
        latency.gflops
    );
    for k in kernels.iter().flatten() {
        println!("{:9.3} ms {:5.1}% {:8.1} GFLOP/s  {}", k.ms, k.share * 100.0, k.gflops, k.name);
    }
    Ok(())
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

#[derive(Serialize)]
struct KernelTime {
    name: String,
    ms: f64,
    share: f64,
    gflops: f64,
}

/// Mean time of every step over a few profiled runs, the slowest first.
fn per_kernel(
    model: &Model,
    session: &mut Session,
    inputs: &[(&str, &Tensor)],
) -> Result<Vec<KernelTime>, Error> {
    let flops: BTreeMap<&str, u64> =
        model.manifest().kernels.iter().map(|k| (k.name.as_str(), k.flops)).collect();
    session.profile(true);
    for _ in 0..MIN_RUNS {
        session.run(inputs)?;
    }
    // The time of control flow is that of the steps inside it.
    let mut steps = session.step_times();
    steps.retain(|s| s.runs > 0 && !matches!(s.kind, StepKind::If | StepKind::Loop));
    let total: f64 = steps.iter().map(|s| s.total.as_secs_f64()).sum();
    let mut times: Vec<KernelTime> = steps
        .into_iter()
        .map(|s| {
            let (seconds, runs) = (s.total.as_secs_f64(), s.runs as f64);
            let flops = flops.get(s.name.as_str()).map_or(0.0, |f| *f as f64);
            let (ms, share) = (seconds * 1e3 / MIN_RUNS as f64, seconds / total);
            KernelTime { name: s.name, ms, share, gflops: flops * runs / seconds / 1e9 }
        })
        .collect();
    times.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    Ok(times)
}
