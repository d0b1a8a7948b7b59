//! Where the time of a run goes.

use ansc_runtime::manifest::KernelInfo;
use ansc_runtime::{Model, Session, StepKind, StepTime};
use ansc_tuner::title::title;
use serde::Serialize;

use crate::Error;
use crate::states::outside::Start;

/// Profiled runs.
const RUNS: usize = 10;

/// A step of the plan.
#[derive(Serialize)]
pub(super) struct KernelTime {
    name: String,
    /// The nodes of the model that the step computes, if it is a kernel.
    nodes: Vec<String>,
    kind: &'static str,
    /// Milliseconds in one run of the model, in which the step may run several times.
    ms: f64,
    share: f64,
    /// How often it ran in one run of the model.
    runs: u64,
    /// None for steps that are no kernels.
    gflops: Option<f64>,
    /// Inputs, constants and outputs, each counted once.
    gbytes: Option<f64>,
}

/// Mean time of every step over a few profiled runs, the slowest first. Rates are known if kernels
/// do all that they were made for.
pub(super) fn per_kernel(
    model: &Model,
    session: &mut Session,
    inputs: &Start<'_>,
    is_all: bool,
) -> Result<Vec<KernelTime>, Error> {
    session.profile(true);
    for _ in 0..RUNS {
        inputs.set_again(session)?;
        inputs.run(session)?;
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
    let mut times: Vec<_> =
        steps.into_iter().map(|(s, k)| kernel_time(s, k, total, is_all)).collect();
    times.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    Ok(times)
}

fn kernel_time(
    step: StepTime,
    kernel: Option<&KernelInfo>,
    total: f64,
    is_all: bool,
) -> KernelTime {
    let seconds = step.total.as_secs_f64();
    // A step may be faster than the clock ticks.
    let is_known = is_all && seconds > 0.0;
    let rate = |work: u64| is_known.then(|| work as f64 * step.runs as f64 / seconds / 1e9);
    KernelTime {
        kind: step.kind.name(),
        ms: seconds * 1e3 / RUNS as f64,
        share: if total > 0.0 { seconds / total } else { 0.0 },
        runs: step.runs / RUNS as u64,
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

pub(super) fn print(kernels: &[KernelTime]) {
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
