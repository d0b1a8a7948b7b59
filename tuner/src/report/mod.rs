//! A report on how tuning went, from records, as data and as a page.
//!
//! In: a store of records. Out: a [`Summary`], by machine and task, which [`html::page`] makes a
//! page of. The page of an artifact is [`artifact::page`].

pub mod artifact;
mod curve;
mod graph;
pub mod html;
mod models;
mod roofline;
pub(crate) mod svg;

use std::collections::BTreeMap;

use ansc_graph::{Compute, cost};
use ansc_sketch::Trace;
use serde::Serialize;

use crate::outcome::Failure;
use crate::records::{
    Key, Limits, Record, Records, RecordsError, TaskRecord, seconds_of, untuned_program,
};
use crate::roofline::{Roofline, roofline as under_roof};
pub use curve::{Point, curve};
pub use models::{Model, Part};

/// Everything that a file of records tells.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// All measurements.
    pub measurements: usize,
    /// How many failed, by reason.
    pub failures: BTreeMap<Failure, usize>,
    /// One for each target and number of threads.
    pub machines: Vec<Machine>,
}

/// The measurements on one machine with one number of threads.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Machine {
    /// Architecture, processor and its features.
    pub target: String,
    /// Threads that candidates ran on.
    pub threads: usize,
    /// The limits of the machine, if they were measured.
    pub limits: Option<Limits>,
    /// Models whose tasks were measured.
    pub models: Vec<Model>,
    /// Seconds of all tasks at best, each counted once.
    pub best_seconds: f64,
    /// Times of the tasks whose untuned schedule was measured: with it, and at best.
    pub compared: Option<Compared>,
    /// The slowest at best first.
    pub tasks: Vec<Task>,
}

/// Times of a subgraph without and with tuning.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Seconds of the untuned schedule.
    pub untuned_seconds: f64,
    /// Seconds of the best one.
    pub best_seconds: f64,
}

/// A subgraph, and what was measured of it on one machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Task {
    /// [`ansc_sketch::Task::key`].
    pub key: String,
    /// Where it was found first, if that is known.
    pub name: Option<String>,
    /// The subgraph as text, if it is known.
    pub compute: Option<String>,
    /// Operations of one execution, if the subgraph is known.
    pub flops: Option<u64>,
    /// Operations of the algorithm that the best computes it with, if that is known.
    pub work: Option<u64>,
    /// That one execution must move at least.
    pub bytes: Option<u64>,
    /// Measurements of it.
    pub measurements: usize,
    /// How many failed, by reason.
    pub failures: BTreeMap<Failure, usize>,
    /// Median times.
    pub untuned_seconds: Option<f64>,
    /// The median time of the best schedule.
    pub best_seconds: Option<f64>,
    /// The trace of the best, in words and as text.
    pub best_steps: Vec<String>,
    /// The trace of the best as lines of text.
    pub best_trace: Option<String>,
    /// The best time after each measurement that changed it.
    pub curve: Vec<Point>,
}

impl Task {
    /// The name, or the beginning of the key.
    pub fn title(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.key.get(..12).unwrap_or(&self.key))
    }

    /// At best, in 10^9 operations a second.
    pub fn gflops(&self) -> Option<f64> {
        Some(self.flops? as f64 / self.best_seconds? / 1e9)
    }

    /// At best, under the roof of its machine.
    pub fn roofline(&self, limits: &Limits) -> Option<Roofline> {
        under_roof(limits, &[], self.work?, self.bytes?, self.best_seconds?)
    }

    /// The best time as a share of the untuned one.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.best_seconds? / self.untuned_seconds?)
    }
}

/// Reads all records, and puts them in order.
pub fn summarise(records: &dyn Records) -> Result<Summary, RecordsError> {
    let known: BTreeMap<String, TaskRecord> =
        records.tasks()?.into_iter().map(|t| (t.key.clone(), t)).collect();
    let mut machines: BTreeMap<(String, usize), Vec<Task>> = BTreeMap::new();
    for key in records.keys()? {
        let task = task(records, &key, known.get(&key.task))?;
        machines.entry((key.target, key.threads)).or_default().push(task);
    }
    let models = records.models()?;
    let machines: Vec<Machine> = machines
        .into_iter()
        .map(|((target, threads), tasks)| {
            let limits = records.limits(&target, threads)?;
            let models = models::of(&models, &tasks);
            Ok(Machine { limits, models, ..machine(target, threads, tasks) })
        })
        .collect::<Result<_, RecordsError>>()?;
    let tasks = || machines.iter().flat_map(|m| &m.tasks);
    let mut failures = BTreeMap::new();
    tasks().flat_map(|t| &t.failures).for_each(|(f, n)| *failures.entry(*f).or_insert(0) += n);
    let measurements = tasks().map(|t| t.measurements).sum();
    Ok(Summary { measurements, failures, machines })
}

fn machine(target: String, threads: usize, mut tasks: Vec<Task>) -> Machine {
    let best = |t: &Task| t.best_seconds.unwrap_or(0.0);
    tasks.sort_by(|a, b| best(b).total_cmp(&best(a)));
    let best_seconds = tasks.iter().map(best).sum();
    let both = tasks.iter().filter_map(|t| Some((t.untuned_seconds?, t.best_seconds?)));
    let compared = both
        .reduce(|a, b| (a.0 + b.0, a.1 + b.1))
        .map(|(untuned_seconds, best_seconds)| Compared { untuned_seconds, best_seconds });
    Machine { target, threads, limits: None, models: vec![], best_seconds, compared, tasks }
}

fn task(
    records: &dyn Records,
    key: &Key,
    known: Option<&TaskRecord>,
) -> Result<Task, RecordsError> {
    let all = records.of(key)?;
    let untuned = untuned_program(&all);
    let best = records.best(key, untuned)?;
    let compute = known.and_then(|t| Compute::parse(&t.compute).ok());
    Ok(Task {
        key: key.task.clone(),
        name: known.map(|t| t.name.clone()),
        compute: known.map(|t| t.compute.clone()),
        flops: known.map(|t| t.flops),
        work: compute.as_ref().zip(best.as_ref()).and_then(|(c, (trace, _))| work(c, trace)),
        bytes: compute.as_ref().map(cost::bytes),
        measurements: all.len(),
        failures: failures(&all),
        untuned_seconds: untuned.and_then(|program| seconds_of(&all, program)),
        best_seconds: best.as_ref().map(|(_, seconds)| *seconds),
        best_steps: best.as_ref().map_or(vec![], |(trace, _)| trace.in_words()),
        best_trace: best.map(|(trace, _)| trace.to_string()),
        curve: curve(&all),
    })
}

/// Operations of a subgraph as a trace computes it. Which operands are constant the records do not
/// say; an algorithm that transforms them beforehand was only possible if they are.
fn work(compute: &Compute, trace: &Trace) -> Option<u64> {
    let Some(algorithm) = trace.algorithm() else { return Some(cost::flops(compute)) };
    let machine = ansc_sketch::Machine::new(32, 16);
    let constant = vec![true; compute.inputs.len()];
    let task = ansc_sketch::Task::on_cpu("subgraph", compute, &constant, &machine);
    let rewritten = algorithm.rewrite(&task)?.task;
    Some(ansc_sketch::work(&rewritten.naive()))
}

fn failures(records: &[Record]) -> BTreeMap<Failure, usize> {
    let mut counts = BTreeMap::new();
    let failed = records.iter().filter_map(|r| r.outcome.failure());
    failed.for_each(|failure| *counts.entry(failure).or_insert(0) += 1);
    counts
}

#[cfg(test)]
mod tests;
