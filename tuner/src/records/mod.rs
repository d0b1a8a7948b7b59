//! Records of every measurement that was ever made.
//!
//! A record is durable as soon as [`Records::add`] returns. Records are never changed.

mod choice;
mod error;
mod journal;
pub mod jsonl;
mod machine;
mod near;
pub mod sqlite;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use ansc_sketch::trace::{Decision, Instruction};
use ansc_sketch::{Task, Trace};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::outcome::Outcome;

pub use choice::{best_allowed, choose, chosen};
pub use error::RecordsError;
pub use journal::Journal;
pub use machine::{machine_name, processor};
pub use near::near;
pub use sqlite::Sqlite;

/// Which schedules can stand for one another: those of the same subgraph on the same machine and
/// threads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Key {
    /// [`ansc_sketch::Task::key`].
    pub task: String,
    /// Architecture, processor and its features.
    pub target: String,
    /// Threads that ran the candidates.
    pub threads: usize,
}

/// One measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The subgraph and the machine.
    #[serde(flatten)]
    pub key: Key,
    /// The schedule, with all its decisions.
    pub trace: Trace,
    /// The times, or why there are none.
    pub outcome: Outcome,
    /// [`code_hash`](ansc_sketch::Program::code_hash) of the program that the trace made.
    #[serde(with = "hex")]
    pub program: u64,
    /// The compiler that measured.
    pub version: String,
    /// Seconds since 1970.
    pub time: u64,
    /// The machine of a fleet that measured; none is where the record was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

/// A description of a task, so that records explain themselves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskRecord {
    /// [`ansc_sketch::Task::key`].
    pub key: String,
    /// Where the subgraph was found first.
    pub name: String,
    /// The subgraph as text, which parses back.
    pub compute: String,
    /// Operations of one execution.
    pub flops: u64,
}

/// Which tasks a model consists of, as it was compiled: the same model with other shapes is
/// another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ModelRecord {
    /// The name of the model's file.
    pub name: String,
    /// Each once.
    pub tasks: Vec<Occurrence>,
}

/// How often a run of a model executes a task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Occurrence {
    /// [`ansc_sketch::Task::key`].
    pub task: String,
    /// Executions in one run of the model.
    pub count: u64,
}

impl ModelRecord {
    /// The same for the same name and tasks.
    pub fn digest(&self) -> String {
        let text = serde_json::to_string(self).expect("records are data");
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }
}

/// The limits of a machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MachineRecord {
    /// As in [`Key`].
    pub target: String,
    /// Threads that the limits were measured with.
    pub threads: usize,
    /// The highest rates that were measured.
    #[serde(flatten)]
    pub limits: Limits,
}

/// As measured, with all of the threads.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Operations of 32-bit floats in a second, a fused product and sum counted as two.
    pub flops_per_second: f64,
    /// From and to memory.
    pub bytes_per_second: f64,
}

impl From<&Task> for TaskRecord {
    fn from(task: &Task) -> TaskRecord {
        TaskRecord {
            key: task.key(),
            name: task.name.clone(),
            compute: task.compute.to_string(),
            flops: ansc_graph::cost::flops(&task.compute),
        }
    }
}

impl Record {
    /// Whether this is the schedule that nobody tuned, of some algorithm: a complete one, with the
    /// first candidate of every choice. Of several such programs the first to be measured is what
    /// nobody tuned gets.
    pub fn is_untuned(&self) -> bool {
        let steps = &self.trace.steps;
        let completes = |i: &Instruction| matches!(i, Instruction::Complete { .. });
        steps.iter().any(completes)
            && steps.iter().filter_map(Instruction::decision).all(|d| *d == Decision::Choice(0))
    }

    /// The same for a record that was written out and read back. The name of the machine, which
    /// older files do not have, is no part of it.
    ///
    /// Times count with ten digits: reading them as JSON may change the last one.
    pub fn digest(&self) -> String {
        let outcome = match &self.outcome {
            Outcome::Seconds(all) => all.iter().map(|s| format!("{s:.9e} ")).collect(),
            Outcome::Failed(failure) => format!("{failure:?}"),
        };
        let Key { task, target, threads } = &self.key;
        let (program, version, time) = (self.program, &self.version, self.time);
        let trace = serde_json::to_string(&self.trace).expect("traces are data");
        let text =
            format!("{task}|{target}|{threads}|{program}|{version}|{time}|{outcome}|{trace}");
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }
}

/// A store of records.
pub trait Records {
    /// Adds measurements, which are never changed afterwards.
    fn add(&mut self, records: &[Record]) -> Result<(), RecordsError>;
    /// Adds those that are not there yet; how many that were.
    fn merge(&mut self, records: &[Record]) -> Result<usize, RecordsError>;
    /// A task that is known already stays as it is.
    fn add_task(&mut self, task: &TaskRecord) -> Result<(), RecordsError>;
    /// One that is known already is not added again.
    fn add_model(&mut self, model: &ModelRecord) -> Result<(), RecordsError>;
    /// By name.
    fn models(&self) -> Result<Vec<ModelRecord>, RecordsError>;
    /// Replaces what was known of that machine and number of threads.
    fn set_machine(&mut self, machine: &MachineRecord) -> Result<(), RecordsError>;
    /// By target and threads.
    fn machines(&self) -> Result<Vec<MachineRecord>, RecordsError>;
    /// The rates of a machine with so many threads, if they were measured.
    fn limits(&self, target: &str, threads: usize) -> Result<Option<Limits>, RecordsError> {
        let found =
            self.machines()?.into_iter().find(|m| m.target == target && m.threads == threads);
        Ok(found.map(|m| m.limits))
    }
    /// By key.
    fn tasks(&self) -> Result<Vec<TaskRecord>, RecordsError>;
    /// Those that have records, in their order.
    fn keys(&self) -> Result<Vec<Key>, RecordsError>;
    /// Those of one key, in the order in which they were added.
    fn of(&self, key: &Key) -> Result<Vec<Record>, RecordsError>;
    /// The trace and the median time of the program that a kernel gets in place of this one, see
    /// [`choose`].
    fn best(&self, key: &Key, untuned: Option<u64>) -> Result<Option<(Trace, f64)>, RecordsError> {
        let records = self.of(key)?;
        let best = choose(choice::outcomes(&records), untuned);
        Ok(best.and_then(|(program, seconds)| {
            let first = records.iter().find(|r| r.program == program)?;
            Some((first.trace.clone(), seconds))
        }))
    }
}

/// The numbers of records that a merge added, and that were there before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Merged {
    /// Records that were not there before.
    pub records: usize,
    /// Records that were there already.
    pub duplicates: usize,
}

/// Adds everything of one store to another.
pub fn merge(from: &dyn Records, into: &mut dyn Records) -> Result<Merged, RecordsError> {
    for task in from.tasks()? {
        into.add_task(&task)?;
    }
    for model in from.models()? {
        into.add_model(&model)?;
    }
    for machine in from.machines()? {
        if into.limits(&machine.target, machine.threads)?.is_none() {
            into.set_machine(&machine)?;
        }
    }
    let mut merged = Merged::default();
    for key in from.keys()? {
        let records = from.of(&key)?;
        let new = into.merge(&records)?;
        merged.records += new;
        merged.duplicates += records.len() - new;
    }
    Ok(merged)
}

/// The schedule that nobody tuned when the first record of it was made.
pub fn untuned_program(records: &[Record]) -> Option<u64> {
    records.iter().find(|r| r.is_untuned()).map(|r| r.program)
}

/// The median time of a program, if it is among the records.
pub fn seconds_of(records: &[Record], program: u64) -> Option<f64> {
    let outcomes = records.iter().filter(|r| r.program == program).map(|r| r.outcome.clone());
    let pooled = outcomes.reduce(|mut a, b| {
        a.pool(b);
        a
    });
    pooled.as_ref().and_then(Outcome::seconds)
}

/// The `n` fastest programs and their median times, all measurements of a program taken together.
/// One that failed once is none of them.
pub(crate) fn fastest(measured: impl Iterator<Item = (u64, Outcome)>, n: usize) -> Vec<(u64, f64)> {
    let timed =
        pooled(measured).into_iter().filter_map(|(program, o)| Some((program, o.seconds()?)));
    let mut timed: Vec<(u64, f64)> = timed.collect();
    timed.sort_by(|a, b| a.1.total_cmp(&b.1));
    timed.truncate(n);
    timed
}

/// All measurements of each program taken together.
fn pooled(measured: impl Iterator<Item = (u64, Outcome)>) -> BTreeMap<u64, Outcome> {
    let mut programs: BTreeMap<u64, Outcome> = BTreeMap::new();
    for (program, outcome) in measured {
        match programs.entry(program) {
            Entry::Occupied(mut known) => known.get_mut().pool(outcome),
            Entry::Vacant(new) => drop(new.insert(outcome)),
        }
    }
    programs
}

/// Records that live as long as the process.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    records: Vec<Record>,
    digests: HashSet<String>,
    tasks: BTreeMap<String, TaskRecord>,
    models: BTreeMap<(String, String), ModelRecord>,
    machines: BTreeMap<(String, usize), MachineRecord>,
}

impl Records for InMemory {
    fn add(&mut self, records: &[Record]) -> Result<(), RecordsError> {
        self.digests.extend(records.iter().map(Record::digest));
        self.records.extend_from_slice(records);
        Ok(())
    }

    fn merge(&mut self, records: &[Record]) -> Result<usize, RecordsError> {
        let known = self.records.len();
        for record in records {
            if self.digests.insert(record.digest()) {
                self.records.push(record.clone());
            }
        }
        Ok(self.records.len() - known)
    }

    fn add_task(&mut self, task: &TaskRecord) -> Result<(), RecordsError> {
        self.tasks.entry(task.key.clone()).or_insert_with(|| task.clone());
        Ok(())
    }

    fn add_model(&mut self, model: &ModelRecord) -> Result<(), RecordsError> {
        self.models.insert((model.name.clone(), model.digest()), model.clone());
        Ok(())
    }

    fn models(&self) -> Result<Vec<ModelRecord>, RecordsError> {
        Ok(self.models.values().cloned().collect())
    }

    fn set_machine(&mut self, machine: &MachineRecord) -> Result<(), RecordsError> {
        self.machines.insert((machine.target.clone(), machine.threads), machine.clone());
        Ok(())
    }

    fn machines(&self) -> Result<Vec<MachineRecord>, RecordsError> {
        Ok(self.machines.values().cloned().collect())
    }

    fn tasks(&self) -> Result<Vec<TaskRecord>, RecordsError> {
        Ok(self.tasks.values().cloned().collect())
    }

    fn keys(&self) -> Result<Vec<Key>, RecordsError> {
        let keys: BTreeSet<&Key> = self.records.iter().map(|r| &r.key).collect();
        Ok(keys.into_iter().cloned().collect())
    }

    fn of(&self, key: &Key) -> Result<Vec<Record>, RecordsError> {
        Ok(self.records.iter().filter(|r| r.key == *key).cloned().collect())
    }
}

/// Hashes in JSON, whose numbers are too short for them in many languages.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(hash: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{hash:016x}"))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map_err(|_| D::Error::custom(format!("`{text}` is no hash")))
    }
}
