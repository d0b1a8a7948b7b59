//! Makes the traces of tasks, and measures those that this machine has no label for.
//!
//! Tasks take turns, a round of traces each, so that a collection that ends early knows something
//! of all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ansc_sketch::Machine;
use ansc_sketch::{Task, Trace};
use rayon::prelude::*;
use serde::Serialize;

use super::generate::{self, traces};
use super::{Dataset, DatasetError, Entry, Header, Label, LabelFile, Platform, TaskFile, trace_id};
use crate::candidate::Candidate;
use crate::measure::Measurer;
use crate::outcome::Outcome;
use crate::records::Record;

/// How far a collection is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Progress {
    /// The task at hand.
    pub name: String,
    /// Tasks that are done.
    pub tasks: usize,
    /// The number of all tasks.
    pub of_tasks: usize,
    /// Traces that have labels.
    pub traces: usize,
    /// The number of all traces.
    pub of_traces: usize,
    /// Traces that were labelled by this run.
    pub measured: usize,
    /// Traces among these that have no time.
    pub failed: usize,
    /// Since the run began.
    pub seconds: f64,
}

/// Is told how it goes.
pub trait Watch {
    /// Traces of one more task are there.
    fn generated(&self, _tasks: usize, _of: usize) {}
    /// Some more labels were written down.
    fn round(&self, _progress: &Progress) {}
}

/// The results of a collection.
#[derive(Clone, Debug, Serialize)]
pub struct Collected {
    /// How far it came.
    #[serde(flatten)]
    pub progress: Progress,
    /// Whether somebody asked for its end.
    pub interrupted: bool,
}

/// The parts that a collection works with.
pub struct Collector<'a> {
    /// Where it goes.
    pub dataset: &'a Dataset,
    /// The machine that measures.
    pub platform: &'a Platform,
    /// The machine as schedules see it, with the resources that they may use.
    pub machine: Machine,
    /// Builds and times candidates.
    pub measurer: &'a mut dyn Measurer,
    /// Is told how it goes.
    pub watch: &'a dyn Watch,
    /// When it becomes true, the round that runs is the last.
    pub interrupted: &'a AtomicBool,
    /// Traces that are measured before their labels are written down.
    pub per_round: usize,
    /// When to end, the round that runs being the last.
    pub until: Option<Instant>,
}

/// Tasks whose traces are made at a time.
const SIDE_BY_SIDE: usize = 16;

fn new_task(header: &Header, entry: &Entry) -> TaskFile {
    let options = generate::Options { seed: header.seed, per_task: header.per_task };
    let task = entry.reference(&header.reference);
    let traces = task.map(|task| traces(&task, &options)).unwrap_or_default();
    TaskFile { entry: entry.clone(), traces }
}

impl Collector<'_> {
    /// All traces of these tasks.
    pub fn collect(mut self, entries: &[Entry]) -> Result<Collected, DatasetError> {
        let start = Instant::now();
        let of_traces = self.generate(entries)?;
        self.write_strays()?;
        let of_tasks = entries.len();
        let mut progress = Progress { of_tasks, of_traces, ..Progress::default() };
        let mut open = self.in_turn(entries)?;
        let mut is_first = true;
        while !open.is_empty() && !self.is_interrupted() {
            let mut left = vec![];
            for entry in open {
                progress.name.clone_from(&entry.name);
                if self.turn(&entry.key, &mut progress, is_first, start)? {
                    progress.tasks += 1;
                } else {
                    left.push(entry);
                }
            }
            open = left;
            is_first = false;
        }
        Ok(Collected { interrupted: !open.is_empty(), progress })
    }

    /// Tasks of the fewest labels first: those that an earlier run came to last do not come last
    /// again.
    fn in_turn<'e>(&self, entries: &'e [Entry]) -> Result<Vec<&'e Entry>, DatasetError> {
        let known = |entry: &'e Entry| Ok((self.label_file(&entry.key)?.labels.len(), entry));
        let mut all: Vec<_> = entries.iter().map(known).collect::<Result<_, DatasetError>>()?;
        all.sort_by_key(|(labels, _)| *labels);
        Ok(all.into_iter().map(|(_, entry)| entry).collect())
    }

    fn is_interrupted(&self) -> bool {
        let late = self.until.is_some_and(|until| Instant::now() >= until);
        late || self.interrupted.load(Ordering::Relaxed)
    }

    /// The traces of tasks that have none yet; how many there are in all.
    fn generate(&self, entries: &[Entry]) -> Result<usize, DatasetError> {
        let (mut count, mut done) = (0, 0);
        for part in entries.chunks(SIDE_BY_SIDE) {
            let is_new = |entry: &&Entry| !self.dataset.has_task(&entry.key);
            let new: Vec<&Entry> = part.iter().filter(is_new).collect();
            if !self.interrupted.load(Ordering::Relaxed) {
                let header = self.dataset.header();
                let made = new.into_par_iter().map(|entry| new_task(header, entry));
                let made: Vec<TaskFile> = made.collect();
                made.iter().try_for_each(|task| self.dataset.add_task(task))?;
            }
            for entry in part.iter().filter(|entry| self.dataset.has_task(&entry.key)) {
                self.dataset.know_networks(entry)?;
                count += self.dataset.task(&entry.key)?.traces.len();
            }
            done += part.len();
            self.watch.generated(done, entries.len());
        }
        Ok(count)
    }

    /// One round of a task; whether all its traces have labels then.
    fn turn(
        &mut self,
        key: &str,
        progress: &mut Progress,
        is_first: bool,
        start: Instant,
    ) -> Result<bool, DatasetError> {
        if !self.dataset.has_task(key) {
            return Ok(false);
        }
        let TaskFile { entry, traces } = self.dataset.task(key)?;
        let mut file = self.label_file(key)?;
        let is_open = |t: &&Trace| !file.labels.contains_key(&trace_id(t));
        let open: Vec<&Trace> = traces.iter().filter(is_open).collect();
        if is_first {
            progress.traces += traces.len() - open.len();
        }
        let part = &open[..open.len().min(self.per_round.max(1))];
        let Some(task) = entry.task(self.machine.clone(), self.platform.threads) else {
            return Ok(true);
        };
        if part.is_empty() {
            return Ok(true);
        }
        if self.is_interrupted() {
            return Ok(false);
        }
        self.round(&task, &traces[0], part, &mut file)?;
        self.dataset.set_labels(&file)?;
        self.write_strays()?;
        let new = part.iter().map(|t| &file.labels[&trace_id(t)]);
        progress.failed += new.filter(|label| label.seconds().is_none()).count();
        progress.traces += part.len();
        progress.measured += part.len();
        progress.seconds = start.elapsed().as_secs_f64();
        self.watch.round(progress);
        Ok(part.len() == open.len())
    }

    fn label_file(&self, key: &str) -> Result<LabelFile, DatasetError> {
        let known = self.dataset.labels(self.platform, key)?;
        Ok(known.unwrap_or_else(|| LabelFile {
            platform: self.platform.clone(),
            task: key.into(),
            spent: 0.0,
            labels: Default::default(),
        }))
    }

    /// Writes down what an earlier run asked for, if it is of this machine and of tasks that are
    /// known, and tells the measurer that everything is written.
    fn write_strays(&mut self) -> Result<(), DatasetError> {
        for Record { key, trace, outcome, .. } in self.measurer.strays() {
            let is_alike =
                key.target == self.platform.target && key.threads == self.platform.threads;
            if is_alike && self.dataset.has_task(&key.task) {
                let mut file = self.label_file(&key.task)?;
                file.labels.entry(trace_id(&trace)).or_insert(Label::Measured(outcome));
                self.dataset.set_labels(&file)?;
            }
        }
        Ok(self.measurer.recorded()?)
    }

    /// The measurer holds all candidates of a task against its first one, which is that of the
    /// untuned schedule in every run.
    fn round(
        &mut self,
        task: &Arc<Task>,
        untuned: &Trace,
        part: &[&Trace],
        file: &mut LabelFile,
    ) -> Result<(), DatasetError> {
        let start = Instant::now();
        let exactly = |trace: &&Trace| Candidate::exactly(task, trace);
        let made: Vec<Option<Candidate>> = part.par_iter().map(exactly).collect();
        let mut candidates: Vec<Candidate> = made.iter().flatten().cloned().collect();
        let first = Candidate::exactly(task, untuned);
        let is_extra = first.as_ref().is_some_and(|f| {
            file.labels.contains_key(&trace_id(untuned))
                && candidates.iter().all(|c| c.program != f.program)
        });
        if is_extra {
            candidates.splice(0..0, first);
        }
        let outcomes: Vec<Outcome> = match candidates.is_empty() {
            true => vec![],
            false => self.measurer.measure(task, &candidates)?,
        };
        let mut outcomes = outcomes.into_iter().skip(usize::from(is_extra));
        for (trace, made) in part.iter().zip(&made) {
            let outcome = made.as_ref().and_then(|_| outcomes.next());
            let label = outcome.map_or(Label::NoProgram, Label::Measured);
            file.labels.insert(trace_id(trace), label);
        }
        file.spent += start.elapsed().as_secs_f64();
        Ok(())
    }
}
