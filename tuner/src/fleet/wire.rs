//! Messages: a job to a worker, an answer to a tuner. JSON, one message each.
//!
//! ```text
//! job     {"kind":{..},"tuner":"..","id":"..","task":{"compute":"compute(..)",..},"trace":[..]}
//! answer  {"id":"..","key":{..},"trace":[..],"place":{..},"what":{"outcome":{"seconds":[..]}}}
//! ```
//!
//! Both are bytes from the network. Their size is bounded before anything is parsed, and what they
//! say is checked before anything is done: by `admit` for jobs, by [`Answer::parse`] for answers.

use ansc_sketch::gpu::GpuLimits;
use ansc_sketch::machine::{Machine, Units};
use ansc_sketch::task::Sums;
use ansc_sketch::{Task, Trace};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use crate::measure::{Caches, Place};
use crate::outcome::Outcome;
use crate::records::{Key, Record};

/// No message is longer: what a server takes by default, less the headers.
pub const MOST_BYTES: usize = (1 << 20) - 4096;
/// Times of a candidate at most.
const MOST_TIMES: usize = 1000;
/// Bytes of a machine's name.
const LONGEST_NAME: usize = 128;
/// No kernel runs longer, in seconds.
const LONGEST_RUN: f64 = 3600.0;

/// A candidate to be measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The kind of machine that it is for.
    pub kind: Kind,
    /// Who gets the answer.
    pub tuner: String,
    /// The tuner's seal on what it asks for, see `Identity`. Also the message's name.
    pub id: String,
    /// Makes seals of the same candidate different.
    pub salt: String,
    /// The target that records are filed under.
    pub target: String,
    /// The subgraph.
    pub task: TaskText,
    /// The tuner's name of it: [`Task::key`].
    pub key: String,
    /// The schedule, with all its decisions.
    pub trace: Trace,
    /// [`Candidate::program`](crate::Candidate) of what the tuner made of it, 16 digits.
    pub program: String,
    /// All times are relative to this candidate, unless this is the first of its task.
    pub baseline: Option<Baseline>,
    /// How it is measured.
    pub how: How,
    /// How many workers share the candidates that wait, as far as the tuner knows.
    pub workers: usize,
}

/// A candidate that sets the pace: its time tells how fast a machine is at the moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Baseline {
    /// The schedule.
    pub trace: Trace,
    /// [`Candidate::program`](crate::Candidate) of it, 16 digits.
    pub program: String,
    /// The time that it took where it was measured first.
    pub seconds: f64,
}

/// How candidates are measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct How {
    /// The state in which runs find the caches.
    pub caches: Caches,
    /// A candidate that takes longer to build has failed.
    pub build_seconds: f64,
    /// A candidate that takes longer to load and time has failed.
    pub run_seconds: f64,
    /// For timing one candidate.
    pub seconds: f64,
}

impl How {
    /// A word that differs where anything differs.
    pub fn word(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }
}

/// A subgraph and what its schedules are for, as text and numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskText {
    /// For people.
    pub name: String,
    /// The subgraph as text, which parses back.
    pub compute: String,
    /// Which inputs are constants.
    pub constant: Vec<bool>,
    /// Bytes of a vector register.
    pub vector_bytes: usize,
    /// Vector registers.
    pub registers: usize,
    /// Units for matrices: AMX for `bf16` and for bytes, and those of a GPU.
    pub units: [bool; 3],
    /// Vectors for bytes, four at a time.
    #[serde(default)]
    pub bytes: bool,
    /// Vectors for pairs of words, and none for bytes.
    #[serde(default)]
    pub pairs: bool,
    /// Vectors for pairs of `bf16`.
    #[serde(default)]
    pub bf16: bool,
    /// Threads that schedules are for.
    pub cores: usize,
    /// Shared memory of a block of threads, if they are for a GPU.
    pub gpu: Option<usize>,
    /// Multiprocessors of that GPU.
    #[serde(default)]
    pub processors: Option<usize>,
    /// Shared memory and threads of each of them.
    #[serde(default)]
    pub of_processor: Option<[usize; 2]>,
    /// Whether sums are only direct ones.
    pub accurate: bool,
}

impl From<&Task> for TaskText {
    fn from(task: &Task) -> TaskText {
        let Machine { vector_bytes, registers, units, correction: _ } = task.machine;
        TaskText {
            name: task.name.clone(),
            compute: task.compute.to_string(),
            constant: task.constant.clone(),
            vector_bytes,
            registers,
            units: [units.amx_bf16, units.amx_int8, units.mma],
            bytes: units.bytes,
            pairs: units.pairs,
            bf16: units.bf16,
            cores: task.cores,
            gpu: task.gpu.as_ref().map(|limits| limits.shared_bytes),
            processors: task.gpu.as_ref().map(|limits| limits.processors),
            of_processor: task
                .gpu
                .as_ref()
                .map(|limits| [limits.shared_of_processor, limits.threads_of_processor]),
            accurate: task.sums == Sums::Direct,
        }
    }
}

impl TaskText {
    /// The machine that schedules are for.
    pub fn machine(&self) -> Machine {
        let [amx_bf16, amx_int8, mma] = self.units;
        let TaskText { bytes, pairs, bf16, .. } = *self;
        let units = Units { amx_bf16, amx_int8, mma, bytes, pairs, bf16 };
        Machine { units, ..Machine::new(self.vector_bytes, self.registers) }
    }

    /// The limits of a kernel, if it is for a GPU.
    pub fn limits(&self) -> Option<GpuLimits> {
        let defaults = GpuLimits::default();
        let processors = self.processors.unwrap_or(defaults.processors);
        let [shared_of_processor, threads_of_processor] = self
            .of_processor
            .unwrap_or([defaults.shared_of_processor, defaults.threads_of_processor]);
        self.gpu.map(|shared_bytes| GpuLimits {
            shared_bytes,
            processors,
            shared_of_processor,
            threads_of_processor,
            ..defaults
        })
    }
}

/// A worker's answer to a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The job's.
    pub id: String,
    /// The job's.
    pub salt: String,
    /// Digest of the kind that measured.
    pub kind: String,
    /// The subgraph, and what records are filed under.
    pub key: Key,
    /// The job's.
    pub trace: Trace,
    /// The job's, 16 digits.
    pub program: String,
    /// The compiler that measured.
    pub version: String,
    /// Which machine, and when.
    pub place: Place,
    /// How the job ended.
    pub what: What,
}

/// The end of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// It was measured.
    Outcome(Outcome),
    /// It is no job for this worker, for this reason.
    Refused(String),
}

impl Answer {
    /// An answer whose parts are sane by themselves.
    pub fn parse(bytes: &[u8]) -> Result<Answer, String> {
        let answer: Answer = parse(bytes)?;
        let (name, what) = (&answer.place.machine, &answer.what);
        if name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err("the name of the machine is too long, or no text".into());
        }
        let is_sane = |t: &f64| t.is_finite() && *t > 0.0 && *t <= LONGEST_RUN;
        if let What::Outcome(Outcome::Seconds(times)) = what
            && (times.is_empty() || times.len() > MOST_TIMES || !times.iter().all(is_sane))
        {
            return Err(format!("{} times, not all of them between 0 and an hour", times.len()));
        }
        digits(&answer.program)?;
        Ok(answer)
    }

    /// As it is written down.
    pub fn record(&self) -> Option<Record> {
        let What::Outcome(outcome) = &self.what else { return None };
        Some(Record {
            key: self.key.clone(),
            trace: self.trace.clone(),
            outcome: outcome.clone(),
            program: digits(&self.program).ok()?,
            version: self.version.clone(),
            time: self.place.time,
            machine: Some(self.place.machine.clone()),
        })
    }
}

/// A message of bounded size.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    if bytes.len() > MOST_BYTES {
        return Err(format!("{} bytes, and {MOST_BYTES} is the most", bytes.len()));
    }
    serde_json::from_slice(bytes).map_err(|e| format!("not a message of a fleet: {e}"))
}

/// A hash as text.
pub(super) fn hex(program: u64) -> String {
    format!("{program:016x}")
}

/// And back.
pub(super) fn digits(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{}` is no hash of a program", text.escape_debug());
    if text.len() != 16 {
        return Err(wrong());
    }
    u64::from_str_radix(text, 16).map_err(|_| wrong())
}
