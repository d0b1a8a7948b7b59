//! Writes when each thread did which work in the timed runs, as trace events: the JSON that
//! Perfetto and chrome://tracing open.

use std::path::Path;
use std::time::Instant;

use ansc_runtime::manifest::{KernelInfo, Specialisation, Step};
use ansc_runtime::{Model, Session, Trace, TraceEvent};
use ansc_tuner::title::title;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::streams::Measured;
use crate::{Error, output};

/// Pieces of work of one thread that are kept. They take 1.5 MB for each thread, and about 20 MB of
/// JSON.
pub(super) const ROOM: usize = 1 << 16;

/// The runs that were traced.
pub(super) struct Runs<'a> {
    /// When the times of events count from.
    pub(super) origin: Instant,
    pub(super) measured: &'a Measured,
}

/// Ends the trace, and writes what happened. The result is the number of events that found no room.
pub(super) fn write(
    path: &Path,
    model: &Model,
    session: &mut Session,
    runs: &Runs<'_>,
) -> Result<u64, Error> {
    let trace = session.take_trace();
    let kernels = kernels_of_steps(model, session.specialisation());
    let whole = File {
        events: Events { trace: &trace, kernels: &kernels, runs },
        unit: "ns",
        other: json!({ "runs": runs.measured.times.len(), "dropped_events": trace.dropped }),
    };
    output::write(path, |out| {
        serde_json::to_writer(out, &whole).map_err(|e| Error::io(path, e.into()))
    })?;
    Ok(trace.dropped)
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

/// The format's outermost object.
#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "traceEvents")]
    events: Events<'a>,
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
    #[serde(rename = "otherData")]
    other: Value,
}

/// All events, each made only when it is written: there may be hundreds of thousands.
struct Events<'a> {
    trace: &'a Trace,
    kernels: &'a [Option<&'a KernelInfo>],
    runs: &'a Runs<'a>,
}

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let work = self.trace.events.iter().map(|event| complete(event, self.kernels));
        serializer.collect_seq(self.names().chain(self.runs.events()).chain(work))
    }
}

impl Events<'_> {
    /// Names of the process and its threads.
    fn names(&self) -> impl Iterator<Item = Value> {
        let last = self.trace.events.iter().map(|event| event.thread).max();
        let name = |what: &str, thread: usize, name: String| json!({ "name": what, "ph": "M", "pid": 1, "tid": thread, "args": { "name": name } });
        let threads = (0..last.map_or(0, |last| last + 1)).map(move |thread| match thread {
            0 => name("thread_name", 0, "caller".into()),
            _ => name("thread_name", thread, format!("worker {thread}")),
        });
        std::iter::once(name("process_name", 0, "ansc".into())).chain(threads)
    }
}

impl Runs<'_> {
    /// A beginning and an end of each run, which are on a track of their own.
    fn events(&self) -> impl Iterator<Item = Value> {
        let Measured { times, begins, .. } = self.measured;
        times.iter().zip(begins).enumerate().flat_map(|(index, (time, begin))| {
            let start = begin.duration_since(self.origin).as_secs_f64() * 1e6;
            let event = |phase: &str, at: f64| json!({ "name": "run", "cat": "run", "ph": phase, "id": index, "ts": at, "pid": 1, "tid": 0 });
            [event("b", start), event("e", start + time * 1e3)]
        })
    }
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
