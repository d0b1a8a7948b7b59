//! The loop of tuning: which task, which candidates, how fast, written down.
//!
//! Everything measured is in the records before the next round begins, so that a run may end at any moment
//! and a later one goes on where it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ansc_sketch::Task;
use ansc_sketch::trace::Unfit;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::candidate::{Candidate, Search};
use crate::measure::{MeasureError, Measurer};
use crate::outcome::{Failure, Outcome};
use crate::records::{Key, Record, Records, RecordsError};
use crate::strategy::SearchStrategy;

/// A task, and how often a run of the model executes it.
#[derive(Clone, Debug)]
pub struct Weighted {
    pub task: Arc<Task>,
    pub weight: f64,
    pub flops: u64,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Candidates to measure, all tasks together.
    pub trials: usize,
    pub per_round: usize,
    pub time: Option<Duration>,
    pub seed: u64,
    /// Name of the machine, for the records.
    pub target: String,
    pub version: String,
    pub threads: usize,
}

/// Why tuning ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    Trials,
    Time,
    Interrupted,
    /// No task has candidates left.
    Exhausted,
}

/// What one task came to.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TaskReport {
    pub name: String,
    pub key: String,
    pub weight: f64,
    pub flops: u64,
    pub trials: usize,
    /// Seconds of the default schedule.
    pub untuned: Option<f64>,
    pub best: Option<f64>,
    pub failures: Vec<(Failure, usize)>,
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    pub stop: StopReason,
    pub trials: usize,
    pub seconds: f64,
    pub seconds_searching: f64,
    pub seconds_measuring: f64,
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
}

/// Is told how tuning goes.
pub trait Watch {
    fn round(&self, _report: &Report, _task: usize) {}
}

/// Watches nothing.
pub struct Silent;

impl Watch for Silent {}

#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error(transparent)]
    Records(#[from] RecordsError),
}

/// Makes the strategy for one task.
pub type NewStrategy<'a> = dyn Fn(usize) -> Box<dyn SearchStrategy> + 'a;

pub fn tune(
    tasks: &[Weighted],
    strategy: &NewStrategy<'_>,
    measurer: &mut dyn Measurer,
    records: &mut dyn Records,
    options: &Options,
    watch: &dyn Watch,
    interrupted: &AtomicBool,
) -> Result<Report, TuneError> {
    let mut run = Run::new(tasks, strategy, records, options)?;
    let stop = loop {
        if let Some(stop) = run.stop(interrupted) {
            break stop;
        }
        let Some(task) = run.next_task() else { break StopReason::Exhausted };
        run.round(task, measurer, records)?;
        watch.round(&run.report(StopReason::Trials), task);
    };
    run.settle(measurer, records)?;
    Ok(run.report(stop))
}

/// Leaders that are measured again, side by side, before one of them is chosen.
const LEADERS: usize = 6;
const SETTLING_ROUNDS: usize = 3;

struct Run<'a> {
    options: &'a Options,
    tasks: Vec<Progress>,
    start: Instant,
    trials: usize,
    searching: Duration,
    measuring: Duration,
}

/// What is known of one task.
struct Progress {
    weighted: Weighted,
    key: Key,
    search: Search,
    strategy: Box<dyn SearchStrategy>,
    untuned: Option<f64>,
    rounds: usize,
    /// Measured in this run.
    trials: usize,
    exhausted: bool,
}

impl<'a> Run<'a> {
    fn new(
        tasks: &[Weighted],
        strategy: &NewStrategy<'_>,
        records: &dyn Records,
        options: &'a Options,
    ) -> Result<Run<'a>, RecordsError> {
        let tasks = tasks
            .iter()
            .enumerate()
            .map(|(i, t)| Progress::new(t, strategy(i), records, options))
            .collect::<Result<_, _>>()?;
        let zero = Duration::ZERO;
        let start = Instant::now();
        Ok(Run { options, tasks, start, trials: 0, searching: zero, measuring: zero })
    }

    fn stop(&self, interrupted: &AtomicBool) -> Option<StopReason> {
        let late = self.options.time.is_some_and(|limit| self.start.elapsed() >= limit);
        if interrupted.load(Ordering::Relaxed) {
            Some(StopReason::Interrupted)
        } else if self.trials >= self.options.trials {
            Some(StopReason::Trials)
        } else if late {
            Some(StopReason::Time)
        } else {
            None
        }
    }

    /// Every task once; then the one whose share of the latency is largest for the rounds it had.
    fn next_task(&self) -> Option<usize> {
        let open = || self.tasks.iter().enumerate().filter(|(_, t)| !t.exhausted);
        if let Some((first, _)) = open().find(|(_, t)| t.rounds == 0) {
            return Some(first);
        }
        let gain = |t: &Progress| t.best().unwrap_or(1e-9) * t.weighted.weight / t.rounds as f64;
        open().max_by(|a, b| gain(a.1).total_cmp(&gain(b.1))).map(|(i, _)| i)
    }

    fn round(
        &mut self,
        task: usize,
        measurer: &mut dyn Measurer,
        records: &mut dyn Records,
    ) -> Result<(), TuneError> {
        let left = self.options.trials - self.trials;
        let start = Instant::now();
        let progress = &mut self.tasks[task];
        let candidates = progress.candidates(self.options.per_round.min(left));
        self.searching += start.elapsed();
        progress.rounds += 1;
        if candidates.is_empty() {
            progress.exhausted = true;
            return Ok(());
        }
        let start = Instant::now();
        let outcomes = measurer.measure(&progress.weighted.task, &candidates)?;
        self.measuring += start.elapsed();
        self.trials += candidates.len();
        records.add(&progress.records(&candidates, &outcomes, self.options))?;
        progress.learn(candidates, outcomes);
        Ok(())
    }

    /// Measures the leaders of every task again: the least of many noisy times is luck.
    fn settle(
        &mut self,
        measurer: &mut dyn Measurer,
        records: &mut dyn Records,
    ) -> Result<(), TuneError> {
        let start = Instant::now();
        for progress in &mut self.tasks {
            let leaders = progress.leaders(LEADERS);
            if leaders.len() < 2 || progress.trials == 0 {
                continue;
            }
            for _ in 0..SETTLING_ROUNDS {
                let outcomes = measurer.measure(&progress.weighted.task, &leaders)?;
                records.add(&progress.records(&leaders, &outcomes, self.options))?;
                for (leader, outcome) in leaders.iter().zip(outcomes) {
                    progress.search.add(leader, outcome);
                }
            }
        }
        self.measuring += start.elapsed();
        Ok(())
    }

    fn report(&self, stop: StopReason) -> Report {
        Report {
            stop,
            trials: self.trials,
            seconds: self.start.elapsed().as_secs_f64(),
            seconds_searching: self.searching.as_secs_f64(),
            seconds_measuring: self.measuring.as_secs_f64(),
            tasks: self.tasks.iter().map(Progress::report).collect(),
        }
    }
}

impl Progress {
    /// Takes up what the records know.
    fn new(
        weighted: &Weighted,
        strategy: Box<dyn SearchStrategy>,
        records: &dyn Records,
        options: &Options,
    ) -> Result<Progress, RecordsError> {
        let key = Key {
            task: weighted.task.key(),
            target: options.target.clone(),
            threads: options.threads,
        };
        let mut search = Search::new(weighted.task.clone());
        for record in records.of(&key)? {
            let random = &mut StdRng::seed_from_u64(0);
            // A record of another version of the rules may not replay any more.
            if let Ok(sample) = weighted.task.sample(&record.trace, Unfit::Refuse, random) {
                search.add(&Candidate::from(sample), record.outcome);
            }
        }
        Ok(Progress {
            weighted: weighted.clone(),
            key,
            search,
            strategy,
            untuned: None,
            rounds: 0,
            trials: 0,
            exhausted: false,
        })
    }

    fn best(&self) -> Option<f64> {
        self.search.best().map(|(_, seconds)| seconds)
    }

    /// The first candidate of a run is the default schedule, which all others are compared with.
    fn candidates(&mut self, n: usize) -> Vec<Candidate> {
        let random = &mut StdRng::seed_from_u64(0);
        let task = &self.weighted.task;
        let untuned = (self.rounds == 0)
            .then(|| Candidate::of(task, &task.untuned(), random))
            .flatten()
            .filter(|_| n > 0);
        let rest = n - usize::from(untuned.is_some());
        let mut all: Vec<Candidate> = untuned.into_iter().collect();
        let known: Vec<u64> = all.iter().map(|c| c.program).collect();
        let proposed = self.strategy.propose(&self.search, rest);
        all.extend(proposed.into_iter().filter(|c| !known.contains(&c.program)));
        all
    }

    fn learn(&mut self, candidates: Vec<Candidate>, outcomes: Vec<Outcome>) {
        if self.rounds == 1 {
            self.untuned = outcomes.first().and_then(Outcome::seconds);
        }
        self.trials += candidates.len();
        for (candidate, outcome) in candidates.into_iter().zip(outcomes) {
            self.search.add(&candidate, outcome);
        }
    }

    fn leaders(&self, n: usize) -> Vec<Candidate> {
        let mut timed: Vec<(f64, &Candidate)> =
            self.search.measured.iter().filter_map(|(c, o)| Some((o.seconds()?, c))).collect();
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        timed.into_iter().take(n).map(|(_, c)| c.clone()).collect()
    }

    fn records(
        &self,
        candidates: &[Candidate],
        outcomes: &[Outcome],
        options: &Options,
    ) -> Vec<Record> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let record = |(candidate, outcome): (&Candidate, &Outcome)| Record {
            key: self.key.clone(),
            trace: candidate.trace.clone(),
            outcome: outcome.clone(),
            program: candidate.program,
            version: options.version.clone(),
            time,
        };
        candidates.iter().zip(outcomes).map(record).collect()
    }

    fn report(&self) -> TaskReport {
        let failures = Failure::ALL.map(|failure| {
            let of = |o: &&(Candidate, Outcome)| o.1.failure() == Some(failure);
            (failure, self.search.measured.iter().filter(of).count())
        });
        TaskReport {
            name: self.weighted.task.name.clone(),
            key: self.key.task.clone(),
            weight: self.weighted.weight,
            flops: self.weighted.flops,
            trials: self.trials,
            untuned: self.untuned,
            best: self.best(),
            failures: failures.into_iter().filter(|(_, n)| *n > 0).collect(),
        }
    }
}
