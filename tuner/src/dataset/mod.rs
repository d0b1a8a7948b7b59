//! A data set of measured traces, as TenSet is one: what learned models of costs are trained on.
//!
//! ```text
//! DATASET/dataset.json                  the seed, traces of a task, the machine that traces are made for
//! DATASET/tasks/KEY.json.gz             a subgraph, how often networks have it, its traces
//! DATASET/labels/PLATFORM/KEY.json.gz   what became of each trace on one machine
//! DATASET/split.json                    which tasks are held out
//! ```
//!
//! Traces are made once, for a machine that does not exist ([`Reference`]), from a seed and the key
//! of the task: they are the same on every machine and with any number of threads, so that labels
//! of different machines are about the same traces. A machine adds labels in a folder of its own;
//! data sets of one seed are merged by joining their folders. Everything is divided by task, never
//! by trace: a model that saw one trace of a task knows too much of the others.

pub mod choice;
mod collect;
mod generate;
mod samples;
mod split;
mod stats;
mod store;
pub mod top;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ansc_graph::Compute;
use ansc_sketch::Machine;
use ansc_sketch::{Task, Trace};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::measure::MeasureError;
use crate::outcome::Outcome;

pub use collect::{Collected, Collector, Progress, Watch};
pub use generate::{Options as GenerateOptions, traces};
pub use samples::{TaskSamples, samples};
pub use split::Split;
pub use stats::{PlatformStats, Stats};
pub use store::{Dataset, Merged};

/// How the traces of a data set are made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// The version of the files.
    pub format: u32,
    /// The seed of all traces.
    pub seed: u64,
    /// Traces of a task at most.
    pub per_task: usize,
    /// The machine that they are made for.
    pub reference: Reference,
}

/// The machine that traces are made for, wherever they are measured. What of them does not fit
/// another machine is a label that says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reference {
    /// Bytes of a vector.
    pub vector_bytes: usize,
    /// Vector registers.
    pub registers: usize,
    /// Cores.
    pub cores: usize,
}

impl Default for Reference {
    fn default() -> Reference {
        Reference { vector_bytes: 64, registers: 32, cores: 2 }
    }
}

/// A subgraph of a data set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// [`Task::key`].
    pub key: String,
    /// Where it was found first.
    pub name: String,
    /// As text, which parses back.
    pub compute: String,
    /// Which inputs are known when compiling.
    pub constant: Vec<bool>,
    /// How often a run of each network executes it.
    pub networks: BTreeMap<String, u64>,
}

impl Entry {
    /// The task as one machine has it; none if the text is no subgraph.
    pub fn task(&self, machine: Machine, cores: usize) -> Option<Arc<Task>> {
        let compute = Compute::parse(&self.compute).ok()?;
        if compute.inputs.len() != self.constant.len() {
            return None;
        }
        Some(Arc::new(Task {
            cores,
            ..Task::on_cpu(&self.name, &compute, &self.constant, &machine)
        }))
    }

    /// The task as its traces are made for.
    pub fn reference(&self, machine: &Reference) -> Option<Arc<Task>> {
        self.task(Machine::new(machine.vector_bytes, machine.registers), machine.cores)
    }
}

/// A subgraph and its traces.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaskFile {
    /// The subgraph.
    pub entry: Entry,
    /// All different, that of the untuned schedule first. Those with steps that this version does
    /// not know are left out.
    #[serde(deserialize_with = "known")]
    pub traces: Vec<Trace>,
}

fn known<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<Trace>, D::Error> {
    let all = Vec::<Box<RawValue>>::deserialize(from)?;
    let trace = |text: Box<RawValue>| match serde_json::from_str(text.get()) {
        Err(e) if e.is_data() => None,
        read => Some(read.map_err(D::Error::custom)),
    };
    all.into_iter().filter_map(trace).collect()
}

/// How targets end whose kernels had to fetch their constants from memory.
pub const COLD: &str = " with cold constants";

/// A kind of machine that measured, and with how many threads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Platform {
    /// Architecture, processor and its features.
    pub target: String,
    /// Threads that ran a trace.
    pub threads: usize,
    /// Bytes of its vectors.
    pub vector_bytes: usize,
    /// Its vector registers.
    pub registers: usize,
}

impl Platform {
    /// A name for a folder: the processor, the threads, what is special about the measurements, and
    /// a hash of the whole.
    pub fn id(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = crate::records::processor(&self.target).chars().map(plain).collect();
        let hash = xxh3_64(format!("{self:?}").as_bytes()) as u32;
        let cold = if self.target.ends_with(COLD) { "-cold" } else { "" };
        format!("{name}-{}t{cold}-{hash:08x}", self.threads)
    }

    /// The machine that its schedules are for, without units for matrices.
    pub fn machine(&self) -> Machine {
        Machine::new(self.vector_bytes, self.registers)
    }
}

/// The labels that one machine measured for one task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LabelFile {
    /// The machine.
    pub platform: Platform,
    /// [`Task::key`].
    pub task: String,
    /// Seconds that it took, building and all.
    pub spent: f64,
    /// By [`trace_id`].
    pub labels: BTreeMap<String, Label>,
}

/// The result of a trace on one machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// It was built, and it ran or did not.
    Measured(Outcome),
    /// The trace makes no program on this machine.
    NoProgram,
}

impl Label {
    /// The median of the times.
    pub fn seconds(&self) -> Option<f64> {
        match self {
            Label::Measured(outcome) => outcome.seconds(),
            Label::NoProgram => None,
        }
    }
}

/// The name of a trace in labels. It is the same on every machine.
pub fn trace_id(trace: &Trace) -> String {
    let text = serde_json::to_vec(trace).expect("a trace is plain data");
    format!("{:032x}", xxh3_128(&text))
}

/// Why a data set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// A file cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A file holds something else.
    #[error("{}: not a file of a data set: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Why the file is refused.
        reason: String,
    },
    /// A collection goes on with the traces that it began with, and traces are made for a machine.
    #[error(
        "{}: its traces are made with {found}, and those of {} with {wanted}; collect in another folder, and merge only what is for \
         the same vectors and cores",
        path.display(), into.display()
    )]
    Different {
        /// The other data set.
        path: PathBuf,
        /// The one that it was to become part of.
        into: PathBuf,
        /// How the traces of the other data set are made.
        found: String,
        /// How the traces of `into` are made.
        wanted: String,
    },
    /// Nothing can be measured.
    #[error(transparent)]
    Measure(#[from] MeasureError),
}
