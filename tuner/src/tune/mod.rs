//! The loop of tuning: which task, which candidates, how fast, written down.
//!
//! Everything measured is in the records before the next round begins, so that a run may end at any
//! moment and a later one goes on where it was. Only failures wait until something ran in this run.
//! A fault of the machine is no outcome: it ends the run.

mod hints;
mod progress;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ansc_sketch::{Task, Trace};

use crate::candidate::Candidate;
use crate::measure::{MeasureError, Measurer, Phase, Phases};
use crate::model::{Quality, Sample, SharedModel, View};
use crate::outcome::{Failure, Outcome};
use crate::records::{Journal, ModelRecord, Occurrence, Records, RecordsError, TaskRecord};
use crate::refusal::Refusal;
use crate::scheduler::{self, Scheduler, TaskSpec, Use, trials_per_round};
use crate::strategy::SearchStrategy;
use crate::structure::structure;
use crate::title::title;
use progress::Progress;

/// A task, and how often each of the models executes it.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// The subgraph and its machine.
    pub task: Arc<Task>,
    /// Executions in one run of each model that has it.
    pub uses: Vec<Use>,
    /// Operations of one execution.
    pub flops: u64,
    /// Names of the models' nodes that are fused in it, for each place where it occurs.
    pub places: Vec<Vec<String>>,
    /// A schedule that is known from elsewhere, to be measured first.
    pub known: Option<Trace>,
}

impl Weighted {
    /// Executions in one run of each model.
    pub fn weight(&self) -> f64 {
        self.uses.iter().map(|each| each.weight).sum()
    }

    /// The tasks of several models together, each once. Their places among the models become their
    /// networks.
    pub fn together(models: Vec<Vec<Weighted>>) -> Vec<Weighted> {
        let mut all: Vec<Weighted> = vec![];
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (network, tasks) in models.into_iter().enumerate() {
            for weighted in tasks {
                let own = Use { network, weight: weighted.weight() };
                match places.get(&weighted.task.key()) {
                    Some(&place) => {
                        all[place].uses.push(own);
                        all[place].places.extend(weighted.places);
                    }
                    None => {
                        places.insert(weighted.task.key(), all.len());
                        all.push(Weighted { uses: vec![own], ..weighted });
                    }
                }
            }
        }
        all
    }

    /// The nodes of the first place where it occurs.
    pub fn nodes(&self) -> &[String] {
        self.places.first().map_or(&[], Vec::as_slice)
    }

    fn record(&self) -> TaskRecord {
        let name = title(self.nodes(), &self.task.name);
        TaskRecord { name, ..TaskRecord::from(self.task.as_ref()) }
    }
}

/// When to stop, and what records are told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Candidates to measure, all tasks together.
    pub trials: usize,
    /// Candidates of a task that are measured in one go.
    pub per_round: usize,
    /// How long tuning may take, as far as earlier rounds tell how long the end takes.
    pub time: Option<Duration>,
    /// How rounds are shared out among the tasks, and when that ends; `trials` are those above.
    pub scheduler: scheduler::Options,
    /// Names of the models, by the networks of tasks, for the records.
    pub models: Vec<String>,
    /// Name of the machine, for the records.
    pub target: String,
    /// The compiler's version, for the records.
    pub version: String,
    /// Threads that candidates run on.
    pub threads: usize,
}

/// Why tuning ended; as text, what to tell people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// As many candidates as were asked for were measured.
    Trials,
    /// The time that was given is over.
    Time,
    /// The caller asked for an end.
    Interrupted,
    /// No task has candidates left.
    Exhausted,
    /// Another round is expected to bring less than was asked for.
    LittleToGain,
    /// Nothing became better for as many trials as were asked for.
    NoImprovement,
    /// Every model is as fast as was asked for, or no kernel improves any more.
    Satisfied,
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StopReason::Trials => "all trials are made",
            StopReason::Time => "the time is up",
            StopReason::Interrupted => "interrupted",
            StopReason::Exhausted => "no kernel has candidates left",
            StopReason::LittleToGain => "another round would gain too little",
            StopReason::NoImprovement => "nothing became better for long enough",
            StopReason::Satisfied => "there is nothing more to gain by the objective",
        })
    }
}

/// The result of tuning one task.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TaskReport {
    /// The name of the kernel.
    pub name: String,
    /// The nodes of the model where the kernel occurs first.
    pub nodes: Vec<String>,
    /// [`ansc_sketch::Task::key`].
    pub key: String,
    /// Executions in one run of each model.
    pub weight: f64,
    /// Operations of one execution.
    pub flops: u64,
    /// Candidates that were measured for it.
    pub trials: usize,
    /// Seconds of the untuned schedule.
    pub untuned: Option<f64>,
    /// Seconds of the schedule that the kernel gets, if one ran.
    pub best: Option<f64>,
    /// How many candidates failed, by reason.
    pub failures: Vec<(Failure, usize)>,
    /// Traces that the strategy tried.
    pub tried: usize,
    /// How many of these make no program, by reason.
    pub refusals: Vec<(Refusal, usize)>,
}

/// The results of tuning, in the end or after a round.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Why it ended; in the report of a round it says nothing.
    pub stop: StopReason,
    /// Candidates that were measured, all tasks together.
    pub trials: usize,
    /// Seconds since tuning began.
    pub seconds: f64,
    /// Seconds in which candidates were proposed.
    pub seconds_searching: f64,
    /// Seconds in which candidates were built and run.
    pub seconds_measuring: f64,
    /// The phases of searching and of measuring, with their times.
    pub phases: Vec<Phase>,
    /// The share of the latency that another round is expected to take away.
    pub expected_gain: f64,
    /// How well the cost model told the last round beforehand.
    pub model: Option<Quality>,
    /// One for each task, in the order in which they were given.
    pub tasks: Vec<TaskReport>,
}

impl Report {
    /// Seconds of all tasks together, each as often as it occurs: untuned, and at best.
    pub fn latency(&self) -> (f64, f64) {
        let sum = |f: &dyn Fn(&TaskReport) -> Option<f64>| {
            self.tasks.iter().filter_map(|t| Some(f(t)? * t.weight)).sum::<f64>()
        };
        (sum(&|t| t.untuned), sum(&|t| t.best))
    }

    /// Seconds of a run that tuning took away so far, of the tasks whose both times are known: it
    /// does not fall when another task is measured for the first time.
    pub fn gained(&self) -> f64 {
        let both = |t: &TaskReport| Some((t.untuned? - t.best?).max(0.0) * t.weight);
        self.tasks.iter().filter_map(both).sum()
    }

    /// Tasks whose both times are known.
    pub fn measured(&self) -> usize {
        self.tasks.iter().filter(|t| t.untuned.is_some() && t.best.is_some()).count()
    }
}

/// Is told how tuning goes.
pub trait Watch {
    /// Everything is at hand: the first round comes now, of so many tasks.
    fn begins(&self, _tasks: usize) {}
    /// A round of one task has ended, which is a place in the report's tasks.
    fn round(&self, _report: &Report, _task: usize) {}
}

/// Watches nothing.
pub struct Silent;

impl Watch for Silent {}

/// Why tuning could not go on.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// No candidate can be measured.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// Records could not be read or written.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The machine or the target is at fault.
    #[error(
        "none of {failed} candidates ran, most of them because it {failure}; if another program on this machine is \
         to blame, run it again, with new records in another file (`--records`); else compile without tuning"
    )]
    NothingRan {
        /// Candidates that were measured.
        failed: usize,
        /// The most frequent failure.
        failure: Failure,
    },
}

/// Makes the strategy for one task.
pub type NewStrategy<'a> = dyn Fn(usize) -> Box<dyn SearchStrategy> + 'a;

/// Everything that tuning works with.
pub struct Tuner<'a> {
    /// Makes a strategy for each task.
    pub strategy: &'a NewStrategy<'a>,
    /// One model for all tasks, which strategies may ask and every round teaches.
    pub model: SharedModel,
    /// Builds and times candidates.
    pub measurer: &'a mut dyn Measurer,
    /// Where measurements go, and earlier ones are found.
    pub records: &'a mut dyn Records,
    /// Is told about each round.
    pub watch: &'a dyn Watch,
    /// When it becomes true, the round that runs is the last.
    pub interrupted: &'a AtomicBool,
}

impl<'a> Tuner<'a> {
    /// Measures round after round until a reason to stop comes.
    pub fn tune(self, tasks: &[Weighted], options: &'a Options) -> Result<Report, TuneError> {
        let mut run = Run::new(tasks, self, options)?;
        run.tuner.watch.begins(tasks.len());
        let stop = loop {
            if let Some(stop) = run.stop() {
                break stop;
            }
            let Some(task) = run.scheduler.next() else { break StopReason::Exhausted };
            run.round(task)?;
            run.tuner.watch.round(&run.report(StopReason::Trials), task);
        };
        run.settle()?;
        run.verdict()?;
        Ok(run.report(stop))
    }
}

/// Candidates of a round at least: the untuned schedule, and one to compare with it.
const LEAST_ROUND: usize = 2;
/// The model learns anew when so many times as many samples are known as it has learned from.
const GROWTH: f64 = 1.2;
/// Leaders that are measured again, side by side, before one of them is chosen.
const LEADERS: usize = 6;
const SETTLING_ROUNDS: usize = 3;

struct Run<'a> {
    tuner: Tuner<'a>,
    options: &'a Options,
    scheduler: Scheduler,
    per_round: usize,
    tasks: Vec<Progress>,
    start: Instant,
    trials: usize,
    /// The phases of searching: `propose`, `learn`, `records`.
    phases: Phases,
    measuring: Duration,
    /// Samples that the model has learned from.
    learned: usize,
    quality: Option<Quality>,
    journal: Journal,
}

impl<'a> Run<'a> {
    fn new(
        tasks: &[Weighted],
        tuner: Tuner<'a>,
        options: &'a Options,
    ) -> Result<Run<'a>, TuneError> {
        // Answers to an earlier run are known before anything is proposed.
        let mut journal = Journal::default();
        journal.merge(tuner.records, tuner.measurer.strays())?;
        for weighted in tasks {
            tuner.records.add_task(&weighted.record())?;
        }
        for (network, name) in options.models.iter().enumerate() {
            tuner.records.add_model(&model_record(name, network, tasks))?;
        }
        let tasks: Vec<Progress> = tasks
            .iter()
            .enumerate()
            .map(|(i, t)| Progress::new(t, (tuner.strategy)(i), tuner.records, options))
            .collect::<Result<_, RecordsError>>()?;
        let per_round = trials_per_round(options.trials, tasks.len(), options.per_round)
            .map_or(LEAST_ROUND, |n| n.max(LEAST_ROUND));
        let scheduler = scheduler(&tasks, per_round, options);
        let mut run = Run {
            tuner,
            options,
            scheduler,
            per_round,
            tasks,
            start: Instant::now(),
            trials: 0,
            phases: Phases::default(),
            measuring: Duration::ZERO,
            learned: 0,
            quality: None,
            journal,
        };
        let start = Instant::now();
        run.train();
        run.phases.since("learn", start);
        Ok(run)
    }

    fn stop(&self) -> Option<StopReason> {
        if self.tuner.interrupted.load(Ordering::Relaxed) {
            return Some(StopReason::Interrupted);
        }
        if self.options.time.is_some_and(|limit| self.start.elapsed() + self.ending() >= limit) {
            return Some(StopReason::Time);
        }
        self.scheduler.stop().map(|stop| match stop {
            scheduler::StopReason::Trials => StopReason::Trials,
            scheduler::StopReason::LittleToGain => StopReason::LittleToGain,
            scheduler::StopReason::NoImprovement => StopReason::NoImprovement,
            scheduler::StopReason::Satisfied => StopReason::Satisfied,
            scheduler::StopReason::NothingLeft => StopReason::Exhausted,
        })
    }

    /// The time that another round takes, and measuring the leaders again after it.
    fn ending(&self) -> Duration {
        let rounds: usize = self.tasks.iter().map(|t| t.rounds).sum();
        let again = |t: &Progress| t.trials.min(LEADERS + 1) * SETTLING_ROUNDS;
        let again: usize = self.tasks.iter().map(again).sum();
        let share = |all: Duration, n: usize| all.div_f64(n.max(1) as f64);
        let each = share(self.measuring, self.trials);
        share(self.start.elapsed(), rounds) + each.mul_f64(again as f64)
    }

    /// Teaches the model all that is known, if that grew enough to be worth it.
    fn train(&mut self) {
        let known: usize = self.tasks.iter().map(|t| t.search.measured.len()).sum();
        if (known as f64) < self.learned as f64 * GROWTH || known == 0 {
            return;
        }
        self.learned = known;
        let mut model = self.tuner.model.write().unwrap_or_else(PoisonError::into_inner);
        let needs = model.needs();
        let all = self.tasks.iter().enumerate();
        let samples: Vec<Sample> = all.flat_map(|(i, t)| t.search.samples(i, needs)).collect();
        model.train(&samples);
    }

    /// How well the model told the outcomes of this round beforehand.
    fn judge(
        &self,
        task: usize,
        candidates: &[Candidate],
        outcomes: &[Outcome],
    ) -> Option<Quality> {
        let model = self.tuner.model.read().unwrap_or_else(PoisonError::into_inner);
        let (search, needs) = (&self.tasks[task].search, model.needs());
        let both = candidates.iter().zip(outcomes);
        let samples: Vec<Sample> = both.map(|(c, o)| search.sample(0, c, o, needs)).collect();
        let views: Vec<View<'_>> = samples.iter().map(Sample::view).collect();
        Quality::of(&model.predict(&views), &samples)
    }

    fn round(&mut self, task: usize) -> Result<(), TuneError> {
        let left = self.options.trials - self.trials;
        let start = Instant::now();
        let progress = &mut self.tasks[task];
        let candidates = progress.candidates(self.per_round.min(left));
        self.phases.since("propose", start);
        progress.rounds += 1;
        if candidates.is_empty() {
            self.scheduler.told(task, self.tasks[task].best(), 0);
            return Ok(());
        }
        let outcomes = self.measure(task, &candidates)?;
        self.trials += candidates.len();
        self.tasks[task].trials += candidates.len();
        let start = Instant::now();
        self.quality = self.judge(task, &candidates, &outcomes);
        self.learn(task, &candidates, outcomes);
        self.scheduler.told(task, self.tasks[task].best(), candidates.len());
        self.train();
        self.phases.since("learn", start);
        Ok(())
    }

    /// That something of what is known ran.
    fn verdict(&self) -> Result<(), TuneError> {
        if self.tasks.iter().any(|task| task.best().is_some()) {
            return Ok(());
        }
        let mut failures: BTreeMap<Failure, usize> = BTreeMap::new();
        for (_, outcome) in self.tasks.iter().flat_map(|task| &task.search.measured) {
            outcome.failure().into_iter().for_each(|f| *failures.entry(f).or_default() += 1);
        }
        match failures.iter().max_by_key(|(_, count)| **count) {
            Some((&failure, _)) => {
                Err(TuneError::NothingRan { failed: failures.values().sum(), failure })
            }
            None => Ok(()),
        }
    }

    /// Measures, and writes down what came of it before anything else.
    fn measure(
        &mut self,
        task: usize,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, TuneError> {
        let start = Instant::now();
        let progress = &self.tasks[task];
        let outcomes = self.tuner.measurer.measure(&progress.weighted.task, candidates)?;
        self.measuring += start.elapsed();
        let start = Instant::now();
        let places = self.tuner.measurer.places();
        let new = progress.records(candidates, &outcomes, places, self.options);
        self.journal.add(self.tuner.records, new)?;
        self.write_strays()?;
        self.phases.since("records", start);
        Ok(outcomes)
    }

    /// Writes down what earlier runs asked for, and tells the measurer what is written.
    fn write_strays(&mut self) -> Result<(), TuneError> {
        let strays = self.tuner.measurer.strays();
        self.journal.merge(self.tuner.records, strays)?;
        if self.journal.is_written() {
            self.tuner.measurer.recorded()?;
        }
        Ok(())
    }

    fn learn(&mut self, task: usize, candidates: &[Candidate], outcomes: Vec<Outcome>) {
        for (candidate, outcome) in candidates.iter().zip(outcomes) {
            self.tasks[task].search.add(candidate, outcome);
        }
    }

    /// Measures the leaders of every task again: the least of many noisy times is luck.
    fn settle(&mut self) -> Result<(), TuneError> {
        for task in 0..self.tasks.len() {
            let leaders = self.tasks[task].leaders(LEADERS);
            if leaders.len() < 2 || self.tasks[task].trials == 0 {
                continue;
            }
            for _ in 0..SETTLING_ROUNDS {
                let outcomes = self.measure(task, &leaders)?;
                self.learn(task, &leaders, outcomes);
            }
        }
        Ok(())
    }

    fn report(&self, stop: StopReason) -> Report {
        Report {
            stop,
            trials: self.trials,
            seconds: self.start.elapsed().as_secs_f64(),
            seconds_searching: ["propose", "learn"]
                .map(|name| self.phases.total(name))
                .iter()
                .sum(),
            phases: self.phases.summary().into_iter().chain(self.tuner.measurer.phases()).collect(),
            seconds_measuring: self.measuring.as_secs_f64(),
            expected_gain: self.scheduler.expected_gain(),
            model: self.quality,
            tasks: self.tasks.iter().map(Progress::report).collect(),
        }
    }
}

/// A scheduler that knows what the records told.
fn scheduler(tasks: &[Progress], per_round: usize, options: &Options) -> Scheduler {
    let spec = |t: &Progress| TaskSpec {
        uses: t.weighted.uses.clone(),
        flops: t.weighted.flops,
        structure: structure(&t.weighted.task.compute),
    };
    let limits = scheduler::Options { trials: options.trials, ..options.scheduler.clone() };
    let mut scheduler = Scheduler::new(tasks.iter().map(spec).collect(), limits);
    for (i, task) in tasks.iter().enumerate() {
        let times: Vec<_> = task.search.measured.iter().map(|(_, o)| o.seconds()).collect();
        scheduler.resume(i, &times, per_round);
    }
    scheduler
}

fn model_record(name: &str, network: usize, tasks: &[Weighted]) -> ModelRecord {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for weighted in tasks {
        for own in weighted.uses.iter().filter(|each| each.network == network) {
            *counts.entry(weighted.task.key()).or_default() += own.weight.round() as u64;
        }
    }
    let tasks = counts.into_iter().map(|(task, count)| Occurrence { task, count }).collect();
    ModelRecord { name: name.into(), tasks }
}

#[cfg(test)]
mod tests;
