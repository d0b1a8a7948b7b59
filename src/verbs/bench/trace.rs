//! Writes when each thread did which work, as trace events: the JSON that Perfetto and
//! chrome://tracing open.

use std::io::{BufWriter, Write};
use std::path::Path;

use ansc_runtime::manifest::{KernelInfo, Specialisation, Step};
use ansc_runtime::{Model, Session, Trace, TraceEvent};
use ansc_tuner::title::title;
use serde_json::{Value, json};

use super::streams::Inputs;
use crate::Error;

/// Traced runs: one after the other, after those that are measured.
const RUNS: usize = 10;
/// Pieces of work of one thread that are kept.
const ROOM: usize = 1 << 16;

/// Runs a few times, and writes what happened.
pub(super) fn write(
    path: &Path,
    model: &Model,
    session: &mut Session,
    inputs: &Inputs<'_>,
) -> Result<(), Error> {
    if session.device().is_some() {
        let reason = "a trace shows the threads of a CPU; this artifact is for a GPU";
        return Err(Error::Usage(reason.into()));
    }
    session.start_trace(ROOM);
    for _ in 0..RUNS {
        session.run(inputs)?;
    }
    let trace = session.take_trace();
    let kernels = kernels_of_steps(model, session.specialisation());
    let file = std::fs::File::create(path).map_err(|e| Error::file(path, e))?;
    let mut writer = BufWriter::new(file);
    serde_json::to_writer(&mut writer, &events(&trace, &kernels))
        .map_err(|e| Error::file(path, e))?;
    writer.flush().map_err(|e| Error::file(path, e))
}

/// The kernel of each step of the plan, nested ones after the step that they belong to; none of a
/// step of another kind.
fn kernels_of_steps<'a>(model: &'a Model, one: &Specialisation) -> Vec<Option<&'a KernelInfo>> {
    let mut all = vec![];
    one.plan.visit(&mut |step| {
        all.push(match step {
            Step::Kernel { kernel, .. } => model.manifest().kernels.get(*kernel as usize),
            _ => None,
        });
    });
    all
}

fn events(trace: &Trace, kernels: &[Option<&KernelInfo>]) -> Value {
    let threads = trace.events.iter().map(|event| event.thread).max().map_or(0, |last| last + 1);
    let named = (0..threads).map(|thread| {
        let name = if thread == 0 { "caller".to_owned() } else { format!("worker {thread}") };
        json!({ "name": "thread_name", "ph": "M", "pid": 1, "tid": thread, "args": { "name": name } })
    });
    let process = json!({ "name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": { "name": "ansc" } });
    let all = trace.events.iter().map(|event| complete(event, kernels));
    let all: Vec<Value> = std::iter::once(process).chain(named).chain(all).collect();
    json!({
        "traceEvents": all,
        "displayTimeUnit": "ns",
        "otherData": { "runs": RUNS, "dropped_events": trace.dropped },
    })
}

/// A complete event; times are in microseconds.
fn complete(event: &TraceEvent, kernels: &[Option<&KernelInfo>]) -> Value {
    let kernel = kernels.get(event.step).copied().flatten();
    let name = match kernel {
        Some(kernel) => title(&kernel.nodes, &kernel.name),
        None => event.name.clone(),
    };
    let args = match kernel {
        Some(k) => json!({
            "kernel": k.name, "nodes": k.nodes, "flops": k.flops, "bytes": k.bytes, "step": event.step,
        }),
        None => json!({ "step": event.step }),
    };
    json!({
        "name": name,
        "cat": event.kind.name(),
        "ph": "X",
        "ts": event.start.as_secs_f64() * 1e6,
        "dur": event.duration.as_secs_f64() * 1e6,
        "pid": 1,
        "tid": event.thread,
        "args": args,
    })
}
