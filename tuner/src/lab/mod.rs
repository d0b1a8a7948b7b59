//! Search strategies side by side: the same space, the same number of measurements, the same
//! measurer, several seeds.
//!
//! ```text
//! for each seed: every strategy in turn proposes a round, which is measured, until all have had their trials
//! ```
//!
//! Strategies take turns so that a machine that becomes slower does so for all. Each run of a
//! strategy knows only what it measured itself. Every measurement is a record whose version tells
//! the run; what is recorded is not measured again, so that a comparison that was interrupted goes
//! on where it stood.

pub mod chart;
mod contender;
pub mod html;
mod run;
pub mod space;
mod summary;
mod tag;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ansc_sketch::Task;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::candidate::Candidate;
use crate::measure::{MeasureError, Measurer};
use crate::model::{self, ModelFileError};
use crate::outcome::Outcome;
use crate::records::{Journal, Key, Record, Records, RecordsError, TaskRecord};
pub use contender::{Contender, ContenderError};
use run::Run;
pub use run::{Run as LabRun, Trial};
pub use space::{Space, SpaceError};
pub use summary::{Comparison, RunSummary, StrategySummary};
use tag::Tag;

/// The strategies that are compared, and what each of their runs may do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Each with what it does not share with the others.
    pub strategies: Vec<Contender>,
    /// As many runs of each strategy, with the seeds 0, 1, ..
    pub seeds: u64,
    /// Measurements of one run.
    pub trials: usize,
    /// Candidates that are measured in one go.
    pub per_round: usize,
    /// The cost model, for strategies that ask one and name none.
    pub cost_model: model::Kind,
    /// A file with a trained model, with which runs begin in place of an untrained one.
    pub trained: Option<PathBuf>,
    /// The schedules that those search who name no others.
    pub space: Space,
    /// Candidates of each run that are measured again at its end, the best of which is the run's
    /// result. None on a machine that is exact.
    pub settle: usize,
}

/// A plan, and the machine that it is for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The strategies, and what each of their runs may do.
    pub plan: Plan,
    /// Name of the machine, for the records.
    pub target: String,
    /// The compiler's version, for the records.
    pub version: String,
    /// Threads that candidates run on.
    pub threads: usize,
}

/// Why strategies could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No candidate can be measured.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// Records could not be read or written.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// There is no such space, or there is nothing in it.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The trained model cannot be used.
    #[error("{}: {cause}", path.display())]
    Trained {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: ModelFileError,
    },
    /// The machine or the target is at fault.
    #[error("none of {trials} candidates ran; `ansc tune` on the same model says why")]
    NothingRan {
        /// Candidates that were measured.
        trials: usize,
    },
}

/// Is told how the runs of a seed go.
pub trait Watch {
    /// Some of the runs have measured more.
    fn progress(&self, _runs: &[Run]) {}
}

/// Watches nothing.
pub struct Silent;

impl Watch for Silent {}

/// The parts that a comparison works with.
pub struct Lab<'a> {
    /// Builds and times candidates.
    pub measurer: &'a mut dyn Measurer,
    /// Where measurements are kept.
    pub records: &'a mut dyn Records,
    /// Is told about progress.
    pub watch: &'a dyn Watch,
    /// When it becomes true, the round that runs is the last.
    pub interrupted: &'a AtomicBool,
    /// Measurements that are not in the records yet.
    pub journal: Journal,
}

/// How often the candidates that are left at the end are measured.
const SETTLING_ROUNDS: usize = 3;

impl Lab<'_> {
    /// Runs all strategies with all seeds, and measures their leaders again.
    pub fn compare(mut self, task: &Arc<Task>, options: &Options) -> Result<Comparison, LabError> {
        let size = space::size(task, &options.plan.space.sketches(task)?);
        self.records.add_task(&TaskRecord::from(task.as_ref()))?;
        let key =
            Key { task: task.key(), target: options.target.clone(), threads: options.threads };
        let untuned = self.untuned(task, &key, options)?;
        let known = self.records.of(&key)?;
        let mut done: Vec<Run> = vec![];
        for seed in 0..options.plan.seeds {
            let mut runs = options
                .plan
                .strategies
                .iter()
                .map(|contender| Run::new(task, contender, seed, options, &known))
                .collect::<Result<Vec<Run>, LabError>>()?;
            self.take_turns(&mut runs, &key, options)?;
            if !self.interrupted.load(Ordering::Relaxed) {
                self.settle(&mut runs, &key, options)?;
            }
            done.extend(runs);
            if self.interrupted.load(Ordering::Relaxed) {
                break;
            }
        }
        let trials = done.iter().map(|run| run.trials.len()).sum();
        if trials > 0 && untuned.is_none() && done.iter().all(|run| run.best().is_none()) {
            return Err(LabError::NothingRan { trials });
        }
        Ok(Comparison::new(task, options, size, untuned, done))
    }

    /// The untuned schedule, which is measured first whatever the space is: the measurer holds all
    /// others against it.
    fn untuned(
        &mut self,
        task: &Arc<Task>,
        key: &Key,
        options: &Options,
    ) -> Result<Option<f64>, LabError> {
        let random = &mut StdRng::seed_from_u64(0);
        let Some(untuned) = Candidate::of(task, &task.untuned(), random) else { return Ok(None) };
        let outcomes = self.measure(task, std::slice::from_ref(&untuned))?;
        let tag =
            Tag { space: options.plan.space.to_string(), strategy: "untuned".into(), seed: 0 };
        let new = vec![record(key, &untuned, &outcomes[0], tag.text(options, "0"))];
        self.journal.add(self.records, new)?;
        Ok(outcomes[0].seconds())
    }

    fn take_turns(
        &mut self,
        runs: &mut [Run],
        key: &Key,
        options: &Options,
    ) -> Result<(), LabError> {
        while runs.iter().any(|run| !run.is_done(options.plan.trials)) {
            for at in 0..runs.len() {
                if self.interrupted.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if !runs[at].is_done(options.plan.trials) {
                    self.round(&mut runs[at], key, options)?;
                    self.watch.progress(runs);
                }
            }
        }
        Ok(())
    }

    /// Measures what the run proposes and no record tells, and writes it down before anything else.
    fn round(&mut self, run: &mut Run, key: &Key, options: &Options) -> Result<(), LabError> {
        let proposed = run.propose(options);
        let new: Vec<Candidate> =
            proposed.iter().filter(|c| !run.is_recorded(c)).cloned().collect();
        let start = Instant::now();
        let outcomes = self.measure(&run.search.task, &new)?;
        run.clock += start.elapsed().as_secs_f64();
        let time = format!("{}", (run.clock * 1e3) as u64);
        let tag = run.tag.text(options, &time);
        let records = new.iter().zip(&outcomes).map(|(c, o)| record(key, c, o, tag.clone()));
        self.journal.add(self.records, records.collect())?;
        run.learn(&proposed, &new, &outcomes);
        Ok(())
    }

    /// Measures the leaders of all runs again, side by side: the least of many noisy times is luck.
    fn settle(&mut self, runs: &mut [Run], key: &Key, options: &Options) -> Result<(), LabError> {
        if options.plan.settle == 0 {
            return Ok(());
        }
        let leaders: Vec<Vec<Candidate>> = runs
            .iter()
            .map(|run| if run.is_settled() { vec![] } else { run.leaders(options.plan.settle) })
            .collect();
        for _ in 0..SETTLING_ROUNDS {
            for (run, leaders) in runs.iter_mut().zip(&leaders) {
                let outcomes = self.measure(&run.search.task, leaders)?;
                let tag = run.tag.text(options, tag::SETTLED);
                let records =
                    leaders.iter().zip(&outcomes).map(|(c, o)| record(key, c, o, tag.clone()));
                self.journal.add(self.records, records.collect())?;
                leaders.iter().zip(outcomes).for_each(|(c, o)| run.settle(c.program, o));
            }
        }
        Ok(())
    }

    /// Times have as many digits as records keep, so that a run that goes on decides as it would
    /// have.
    fn measure(
        &mut self,
        task: &Arc<Task>,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, LabError> {
        if candidates.is_empty() {
            return Ok(vec![]);
        }
        let outcomes = self.measurer.measure(task, candidates)?;
        Ok(outcomes.into_iter().map(tag::rounded).collect())
    }
}

fn record(key: &Key, candidate: &Candidate, outcome: &Outcome, version: String) -> Record {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    Record {
        key: key.clone(),
        trace: candidate.trace.clone(),
        outcome: outcome.clone(),
        program: candidate.program,
        version,
        time,
        machine: None,
    }
}

#[cfg(test)]
mod tests;
