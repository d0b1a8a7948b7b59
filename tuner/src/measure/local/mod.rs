//! Measuring on this machine: candidates are built side by side and run one after another, each in
//! a worker process that it may take down with it.
//!
//! - Where there are more cores than a candidate uses, building goes on while others are timed;
//!   else all are built first, so that nothing disturbs the timing.
//! - A candidate that becomes the best of its task is timed again, and compared with the subgraph
//!   computed by definition; what differs is no candidate.
//! - A subgraph of very many operations is not interpreted as a whole: the reference is what the
//!   kernel of the untuned schedule computes, after elements of its results were compared with the
//!   definition. A candidate that differs from the untuned schedule anywhere is refused; to pass,
//!   both would have to be wrong in the same places, by the same amounts, and nowhere where was
//!   looked.
//! - In a large network constants come from memory in every run, and not from the caches in which
//!   the run before left them: they can be taken out of there before each run.
//! - Times are relative to a fixed one: the first candidate of a task is run in turns with every
//!   other one, and what it became slower or faster is taken out of the other's times.

mod build;
mod kept;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ansc_graph::cost;
use ansc_runtime::DType;
use ansc_sketch::Task;
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::process::{Lost, Worker, WorkerCommand};
use super::protocol::{Beside, Cold, Packed, Reply, Request, Subgraph, Timing, Trusted};
use super::{Batch, Each, Failures, MeasureError, Measurer, Phase, Phases};
use crate::candidate::Candidate;
use crate::outcome::{Failure, Outcome, median};
use build::{Built, Job, Next, Results, Unbuilt};
use kept::Kept;

/// In which state a candidate finds the caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caches {
    /// As the run before left them.
    Warm,
    /// Constants come from memory, as in a network whose weights do not fit the caches.
    ColdConstants,
    /// Everything comes from memory.
    Cold,
}

impl Caches {
    fn cold(self, task: &Task) -> Cold {
        match self {
            Caches::Warm => Cold::Nothing,
            Caches::Cold => Cold::Everything,
            Caches::ColdConstants => {
                let constants = task.constant.iter().enumerate().filter(|(_, is)| **is);
                Cold::Inputs(constants.map(|(input, _)| input).collect())
            }
        }
    }
}

/// How candidates are built and timed on this machine.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// The command that starts a worker process.
    pub worker: WorkerCommand,
    /// Processes that build.
    pub builders: usize,
    /// Build while others are timed.
    pub overlap: bool,
    /// Threads that run a candidate.
    pub threads: usize,
    /// A candidate that takes longer to build has failed.
    pub build_limit: Duration,
    /// A candidate that takes longer to load and time has failed.
    pub run_limit: Duration,
    /// For timing one candidate.
    pub seconds: f64,
    /// The data that runs find in the caches.
    pub caches: Caches,
    /// Subgraphs of more operations are compared with their untuned schedule, see above.
    pub interpret_flops: u64,
}

impl LocalOptions {
    /// The defaults: builders on the cores that candidates do not use, and 50 ms of timing for
    /// each.
    pub fn new(worker: WorkerCommand, threads: usize) -> LocalOptions {
        let cores = ansc_runtime::pool::cores();
        let free = cores.saturating_sub(threads);
        LocalOptions {
            worker,
            builders: if free > 0 { free } else { cores },
            overlap: free > 0,
            threads,
            build_limit: Duration::from_secs(15),
            run_limit: Duration::from_secs(10),
            seconds: 0.05,
            caches: Caches::Warm,
            interpret_flops: 100_000_000,
        }
    }
}

/// A candidate this much slower than the best is timed once only.
const GIVE_UP: f64 = 3.0;
/// One this much slower is timed a few times only.
const NOT_CLOSE: f64 = 1.3;
/// The reference may take the interpreter this long.
const REFERENCE_LIMIT: Duration = Duration::from_secs(600);

/// Measures in worker processes on this machine.
pub struct LocalMeasurer {
    options: LocalOptions,
    builders: Vec<Worker>,
    runner: Worker,
    folder: Folder,
    tasks: HashMap<String, Known>,
    files: usize,
    failures: Failures,
    phases: Phases,
}

/// The data that the measurer keeps of one task.
struct Known {
    baseline: Baseline,
    best: f64,
    /// Results of the definition.
    reference: PathBuf,
    kept: Kept,
}

/// The first candidate that ran, and its time then.
#[derive(Clone)]
struct Baseline {
    program: u64,
    artifact: PathBuf,
    seconds: f64,
}

impl Baseline {
    fn beside(&self) -> Beside {
        Beside { artifact: self.artifact.clone(), seconds: self.seconds }
    }
}

impl Known {
    fn artifact(&self, program: u64) -> Option<&Path> {
        let baseline = Some(self.baseline.artifact.as_path());
        if self.baseline.program == program { baseline } else { self.kept.of(program) }
    }
}

impl LocalMeasurer {
    /// From here on, writing to a process that is gone is an error of this process, and not its
    /// end.
    pub fn new(options: LocalOptions) -> Result<LocalMeasurer, MeasureError> {
        super::process::ignore_broken_pipes();
        let worker = || Worker::new(options.worker.clone());
        Ok(LocalMeasurer {
            builders: (0..options.builders.max(1)).map(|_| worker()).collect(),
            runner: worker(),
            folder: Folder::new()?,
            tasks: HashMap::new(),
            files: 0,
            failures: Failures::default(),
            phases: Phases::default(),
            options,
        })
    }

    fn new_file(&mut self) -> PathBuf {
        self.files += 1;
        self.folder.path().join(format!("{}.ansc", self.files - 1))
    }

    /// All samples, relative to the baseline of the task where there is one.
    fn time(
        &mut self,
        artifact: &Path,
        beside: Option<&Baseline>,
        best: Option<f64>,
        cold: &Cold,
    ) -> Result<Result<Vec<f64>, Failure>, MeasureError> {
        let timing = Timing {
            threads: self.options.threads,
            seconds: self.options.seconds,
            sample_seconds: 0.001,
            min_samples: 3,
            max_samples: 25,
            give_up: best.map(|best| best * GIVE_UP),
            not_close: best.map(|best| best * NOT_CLOSE),
            cold: cold.clone(),
            beside: beside.map(Baseline::beside),
        };
        let request = Request::Time { artifact: artifact.to_path_buf(), timing };
        let start = Instant::now();
        let reply = self.ask(&request, self.options.run_limit)?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(match reply {
            Ok(Reply::Timed { seconds: times, load }) if is_sound(&times) => {
                self.phases.add("load", load);
                self.phases.add("time", (seconds - load).max(0.0));
                Ok(times)
            }
            Ok(_) => Err(Failure::Crash),
            Err(failure) => Err(failure),
        })
    }

    fn ask(
        &mut self,
        request: &Request,
        limit: Duration,
    ) -> Result<Result<Reply, Failure>, MeasureError> {
        let reply = self.runner.ask(request, limit)?;
        Ok(reply.map_err(|lost| match lost {
            Lost::Timeout => Failure::Timeout,
            Lost::Died => Failure::Crash,
        }))
    }

    /// Whether the candidate computes what the task says.
    fn check(
        &mut self,
        task: &Task,
        candidate: &Candidate,
        artifact: &Path,
        reference: &Path,
    ) -> Result<Result<(), Failure>, MeasureError> {
        let request = Request::Check {
            artifact: artifact.to_path_buf(),
            subgraph: subgraph(task),
            packings: packings(candidate),
            reference: reference.to_path_buf(),
        };
        let start = Instant::now();
        let reply = self.ask(&request, REFERENCE_LIMIT)?;
        self.phases.since("check", start);
        Ok(reply.and_then(|reply| match reply {
            Reply::Compared { difference } if difference <= tolerance(task) => Ok(()),
            _ => Err(Failure::WrongResult),
        }))
    }

    /// Writes the results of the task's definition to a file.
    fn reference(&mut self, task: &Arc<Task>) -> Result<PathBuf, MeasureError> {
        let start = Instant::now();
        let output = self.new_file().with_extension("reference");
        let is_large = cost::flops(&task.compute) > self.options.interpret_flops;
        if !(is_large && self.reference_by_default_schedule(task, &output)?) {
            self.interpret(task, &output)?;
        }
        self.phases.since("reference", start);
        Ok(output)
    }

    fn interpret(&mut self, task: &Task, output: &Path) -> Result<(), MeasureError> {
        let output = output.to_path_buf();
        let request = Request::Reference { subgraph: subgraph(task), output, trusted: None };
        match self.ask(&request, REFERENCE_LIMIT)? {
            Ok(Reply::Computed) => Ok(()),
            Ok(Reply::Refused { message }) => Err(MeasureError::Reference(message)),
            Ok(_) | Err(_) => Err(MeasureError::Reference("the interpreter gave no result".into())),
        }
    }

    /// False if the untuned schedule does not pass, and the interpreter must do it.
    fn reference_by_default_schedule(
        &mut self,
        task: &Arc<Task>,
        output: &Path,
    ) -> Result<bool, MeasureError> {
        let Some(default) = Candidate::exactly(task, &task.untuned()) else { return Ok(false) };
        let artifact = self.new_file();
        let limit = self.options.build_limit;
        if build::build(&mut self.builders[0], &default, &artifact, limit)?.is_err() {
            return Ok(false);
        }
        let trusted = Trusted {
            artifact: artifact.clone(),
            packings: packings(&default),
            tolerance: tolerance(task),
        };
        let request = Request::Reference {
            subgraph: subgraph(task),
            output: output.to_path_buf(),
            trusted: Some(trusted),
        };
        let reply = self.ask(&request, REFERENCE_LIMIT)?;
        kept::remove(&artifact);
        Ok(matches!(reply, Ok(Reply::Computed)))
    }

    /// One built candidate: timed, and if it is the best one, timed again and checked.
    fn run(
        &mut self,
        task: &Arc<Task>,
        key: &str,
        candidate: &Candidate,
        artifact: &Path,
    ) -> Result<Outcome, MeasureError> {
        let Some(known) = self.tasks.get(key) else {
            return self.run_first(task, key, candidate, artifact);
        };
        let (baseline, best) = (known.baseline.clone(), known.best);
        let reference = known.reference.clone();
        let cold = self.options.caches.cold(task);
        let mut times = match self.time(artifact, Some(&baseline), Some(best), &cold)? {
            Ok(times) => times,
            Err(failure) => return Ok(Outcome::Failed(failure)),
        };
        if median(&times) < best {
            if let Ok(again) = self.time(artifact, Some(&baseline), Some(best), &cold)? {
                times.extend(again);
            }
            if let Err(failure) = self.check(task, candidate, artifact, &reference)? {
                return Ok(Outcome::Failed(failure));
            }
            let seconds = median(&times);
            self.tasks.entry(key.into()).and_modify(|known| known.best = known.best.min(seconds));
        }
        Ok(Outcome::Seconds(times))
    }

    /// The first candidate of a task that runs: all others are timed beside it. If constants are to
    /// be cold, what runs beside is warm, and so the first one is timed beside itself, too: its own
    /// time is of the same moments as theirs.
    fn run_first(
        &mut self,
        task: &Arc<Task>,
        key: &str,
        candidate: &Candidate,
        artifact: &Path,
    ) -> Result<Outcome, MeasureError> {
        let cold = self.options.caches.cold(task);
        let of_pace = if let Cold::Inputs(_) = cold { &Cold::Nothing } else { &cold };
        let mut times = match self.time(artifact, None, None, of_pace)? {
            Ok(times) => times,
            Err(failure) => return Ok(Outcome::Failed(failure)),
        };
        if let Ok(again) = self.time(artifact, None, None, of_pace)? {
            times.extend(again);
        }
        let reference = self.reference(task)?;
        if let Err(failure) = self.check(task, candidate, artifact, &reference)? {
            return Ok(Outcome::Failed(failure));
        }
        let (program, artifact) = (candidate.program, artifact.to_path_buf());
        let baseline = Baseline { program, artifact, seconds: median(&times) };
        if *of_pace != cold {
            times = match self.time(&baseline.artifact, Some(&baseline), None, &cold)? {
                Ok(times) => times,
                Err(failure) => return Ok(Outcome::Failed(failure)),
            };
        }
        let known = Known { baseline, best: median(&times), reference, kept: Kept::default() };
        self.tasks.insert(key.into(), known);
        Ok(Outcome::Seconds(times))
    }

    /// Keeps or removes the artifact of a candidate that was measured.
    fn put_away(&mut self, key: &str, candidate: &Candidate, outcome: &Outcome, path: PathBuf) {
        match (self.tasks.get_mut(key), outcome.seconds()) {
            (Some(known), _) if known.baseline.artifact == path => {}
            (Some(known), Some(seconds)) => known.kept.offer(candidate.program, seconds, path),
            _ => kept::remove(&path),
        }
    }

    /// The artifact of each place, which is there already or has a name of its own.
    fn jobs(&mut self, key: &str, batch: &dyn Batch) -> Vec<Job> {
        let known = self.tasks.get(key);
        let of = |place| Some(known?.artifact(batch.program(place))?.to_path_buf());
        let known: Vec<Option<PathBuf>> = (0..batch.len()).map(of).collect();
        let job = |known: Option<PathBuf>| Job {
            is_built: known.is_some(),
            artifact: known.unwrap_or_else(|| self.new_file()),
        };
        known.into_iter().map(job).collect()
    }

    /// Times candidates in their order, waiting for the builds that are still to come.
    fn run_all(
        &mut self,
        task: &Arc<Task>,
        (batch, jobs): (&dyn Batch, &[Job]),
        results: &mut Results,
        each: &mut dyn Each,
    ) -> Result<(), MeasureError> {
        let key = task.key();
        let mut ahead = 0;
        for (place, job) in jobs.iter().enumerate() {
            if !each.begins(place) {
                break;
            }
            // While nothing is timed, those that are built next can be made here.
            let built = results.of(place, || {
                ahead = ahead.max(place) + 1;
                let is_there = ahead < jobs.len();
                if is_there {
                    batch.candidate(ahead);
                }
                is_there
            })?;
            self.note(&built);
            let outcome = match (built, batch.candidate(place)) {
                (Err(Unbuilt::Missing), _) | (_, None) => {
                    each.is_missing(place);
                    continue;
                }
                (Err(Unbuilt::Failed(failure)), _) => Outcome::Failed(failure),
                (Ok(_), Some(candidate)) => self.run_built(task, &key, candidate, job)?,
            };
            self.failures.count(&outcome)?;
            each.ends(place, outcome);
        }
        Ok(())
    }

    fn run_built(
        &mut self,
        task: &Arc<Task>,
        key: &str,
        candidate: &Candidate,
        job: &Job,
    ) -> Result<Outcome, MeasureError> {
        let outcome = self.run(task, key, candidate, &job.artifact)?;
        if !job.is_built {
            self.put_away(key, candidate, &outcome, job.artifact.clone());
        }
        Ok(outcome)
    }

    fn note(&mut self, built: &Built) {
        if let Ok(Some(times)) = built {
            self.phases.add("parse", times.parse);
            self.phases.add("codegen", times.codegen);
            self.phases.add("link", times.link);
            self.phases.add("build", times.build);
        }
    }
}

impl Measurer for LocalMeasurer {
    fn measure(
        &mut self,
        task: &Arc<Task>,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, MeasureError> {
        let mut outcomes = Vec::with_capacity(candidates.len());
        self.measure_each(task, &candidates, &mut outcomes)?;
        Ok(outcomes)
    }

    fn measure_each(
        &mut self,
        task: &Arc<Task>,
        batch: &dyn Batch,
        each: &mut dyn Each,
    ) -> Result<(), MeasureError> {
        let jobs = self.jobs(&task.key(), batch);
        // Large subgraphs need a builder for their reference.
        let mut builders = std::mem::take(&mut self.builders);
        self.builders.push(Worker::new(self.options.worker.clone()));
        let (next, limit) = (Next::default(), self.options.build_limit);
        let measured = std::thread::scope(|scope| {
            let mut results = build::start(scope, &mut builders, (batch, &jobs), &next, limit);
            if !self.options.overlap {
                let start = Instant::now();
                results.wait(jobs.len())?;
                self.phases.since("wait for builds", start);
            }
            let measured = self.run_all(task, (batch, &jobs), &mut results, each);
            next.stop();
            measured
        });
        self.builders = builders;
        if let Some(known) = self.tasks.get_mut(&task.key()) {
            known.kept.sweep();
        }
        measured
    }

    fn phases(&self) -> Vec<Phase> {
        self.phases.summary()
    }
}

fn packings(candidate: &Candidate) -> Vec<Packed> {
    let packed = |p: &ansc_sketch::packed::Packing| Packed {
        param: p.param,
        compute: p.compute.to_string(),
    };
    candidate.scheduled.packings.iter().map(packed).collect()
}

fn subgraph(task: &Task) -> Subgraph {
    Subgraph { compute: task.compute.to_string() }
}

/// Sums in another order differ by this much of the largest element.
fn tolerance(task: &Task) -> f64 {
    let of = |dtype: DType| match dtype {
        DType::F16 => 1e-2,
        DType::BF16 => 5e-2,
        DType::F32 => 1e-4,
        DType::F64 => 1e-9,
        _ => 0.0,
    };
    let types = task.compute.stages.iter().map(|s| s.ty.dtype);
    types.chain(task.compute.inputs.iter().map(|i| i.dtype)).map(of).fold(0.0, f64::max)
}

fn is_sound(times: &[f64]) -> bool {
    !times.is_empty() && times.iter().all(|t| t.is_finite() && *t > 0.0)
}
