//! Measuring on this machine: candidates are built side by side and run one after another, each in a worker
//! process that it may take down with it.
//!
//! - A candidate that becomes the best of its task is timed again, and compared with the subgraph computed
//!   by definition; what differs is no candidate.
//! - Times are relative to a fixed one: the first candidate of a task is timed again in every batch, and what
//!   it became slower or faster is taken out of the others' times.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ansc_runtime::DType;
use ansc_sketch::Task;
use tempfile::TempDir;

use super::process::{Lost, Worker, WorkerCommand};
use super::protocol::{Packed, Reply, Request, Subgraph, Timing};
use super::{MeasureError, Measurer};
use crate::candidate::Candidate;
use crate::outcome::{Failure, Outcome, median};

#[derive(Clone, Debug)]
pub struct LocalOptions {
    pub worker: WorkerCommand,
    /// Processes that build.
    pub builders: usize,
    /// Threads that run a candidate.
    pub threads: usize,
    pub build_limit: Duration,
    pub run_limit: Duration,
    /// For timing one candidate.
    pub seconds: f64,
    pub flush: bool,
    /// Subgraphs of more operations are compared with their first candidate instead of the definition, which
    /// takes the interpreter too long.
    pub interpret_flops: u64,
}

impl LocalOptions {
    pub fn new(worker: WorkerCommand, threads: usize) -> LocalOptions {
        LocalOptions {
            worker,
            builders: threads,
            threads,
            build_limit: Duration::from_secs(15),
            run_limit: Duration::from_secs(10),
            seconds: 0.05,
            flush: false,
            interpret_flops: 20_000_000_000,
        }
    }
}

/// After so many candidates in a row without a time, the fault is not theirs.
const MOST_FAILURES_IN_A_ROW: usize = 150;
/// A candidate this much slower than the best is timed once only.
const GIVE_UP: f64 = 3.0;
/// Changes of the machine's speed beyond this are not believed to be the machine's.
const MOST_DRIFT: f64 = 2.0;
/// The reference may take the interpreter this long.
const REFERENCE_LIMIT: Duration = Duration::from_secs(600);

pub struct LocalMeasurer {
    options: LocalOptions,
    builders: Vec<Worker>,
    runner: Worker,
    dir: TempDir,
    tasks: HashMap<String, Known>,
    files: AtomicUsize,
    failures: usize,
}

/// What is known of one task.
struct Known {
    /// The first candidate that ran, and its time then.
    baseline: (PathBuf, f64),
    best: f64,
    /// Results of the definition.
    reference: PathBuf,
}

impl LocalMeasurer {
    /// From here on, writing to a process that is gone is an error of this process, and not its end.
    pub fn new(options: LocalOptions) -> Result<LocalMeasurer, MeasureError> {
        super::process::ignore_broken_pipes();
        let worker = || Worker::new(options.worker.clone());
        Ok(LocalMeasurer {
            builders: (0..options.builders.max(1)).map(|_| worker()).collect(),
            runner: worker(),
            dir: tempfile::Builder::new().prefix("ansc-tune-").tempdir()?,
            tasks: HashMap::new(),
            files: AtomicUsize::new(0),
            failures: 0,
            options,
        })
    }

    fn new_file(&self) -> PathBuf {
        self.dir.path().join(format!("{}.ansc", self.files.fetch_add(1, Ordering::Relaxed)))
    }

    /// Builds all candidates, each builder taking the next one.
    fn build(
        &mut self,
        candidates: &[Candidate],
    ) -> Result<Vec<Result<PathBuf, Failure>>, MeasureError> {
        let paths: Vec<PathBuf> = candidates.iter().map(|_| self.new_file()).collect();
        let next = AtomicUsize::new(0);
        let limit = self.options.build_limit;
        let run = |worker: &mut Worker| {
            let mut built = vec![];
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(candidate) = candidates.get(i) else { return Ok(built) };
                built.push((i, build_one(worker, candidate, &paths[i], limit)?));
            }
        };
        let run = &run;
        let parts: Vec<Result<Vec<_>, MeasureError>> = std::thread::scope(|scope| {
            let handles: Vec<_> =
                self.builders.iter_mut().map(|worker| scope.spawn(move || run(worker))).collect();
            handles.into_iter().map(|h| h.join().expect("builders do not panic")).collect()
        });
        let mut all = vec![Err(Failure::Build); candidates.len()];
        for (i, result) in parts.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            all[i] = result.map(|()| paths[i].clone());
        }
        Ok(all)
    }

    /// The median and all samples.
    fn time(
        &mut self,
        artifact: &Path,
        seconds: f64,
        give_up: Option<f64>,
    ) -> Result<Result<Vec<f64>, Failure>, MeasureError> {
        let timing = Timing {
            threads: self.options.threads,
            seconds,
            sample_seconds: 0.001,
            min_samples: 3,
            max_samples: 25,
            give_up,
            flush: self.options.flush,
        };
        let request = Request::Time { artifact: artifact.to_path_buf(), timing };
        let reply = self.ask(&request, self.options.run_limit)?;
        Ok(reply.and_then(|reply| match reply {
            Reply::Timed { seconds } if is_sound(&seconds) => Ok(seconds),
            _ => Err(Failure::Crash),
        }))
    }

    fn ask(
        &mut self,
        request: &Request,
        limit: Duration,
    ) -> Result<Result<Reply, Failure>, MeasureError> {
        let reply = self.runner.ask(request, limit).map_err(MeasureError::Worker)?;
        Ok(reply.map_err(|lost| match lost {
            Lost::Timeout => Failure::Timeout,
            Lost::Died => Failure::Crash,
        }))
    }

    /// How much faster the machine was when the task's first candidate was timed.
    fn drift(&mut self, key: &str) -> Result<f64, MeasureError> {
        let Some((path, then)) = self.tasks.get(key).map(|known| known.baseline.clone()) else {
            return Ok(1.0);
        };
        let now = self.time(&path, self.options.seconds, None)?;
        let ratio = now.map_or(1.0, |times| then / median(&times));
        let believed = (1.0 / MOST_DRIFT..MOST_DRIFT).contains(&ratio);
        Ok(if believed { ratio } else { 1.0 })
    }

    /// Whether the candidate computes what the task says.
    fn check(
        &mut self,
        task: &Task,
        candidate: &Candidate,
        artifact: &Path,
        reference: &Path,
    ) -> Result<Result<(), Failure>, MeasureError> {
        let packings = candidate
            .scheduled
            .packings
            .iter()
            .map(|p| Packed { param: p.param, compute: p.compute.to_string() })
            .collect();
        let request = Request::Check {
            artifact: artifact.to_path_buf(),
            subgraph: subgraph(task),
            packings,
            reference: reference.to_path_buf(),
        };
        let reply = self.ask(&request, REFERENCE_LIMIT)?;
        Ok(reply.and_then(|reply| match reply {
            Reply::Compared { difference } if difference <= tolerance(task) => Ok(()),
            _ => Err(Failure::WrongResult),
        }))
    }

    /// The results of the task's definition, as a file.
    fn reference(&mut self, task: &Task) -> Result<PathBuf, MeasureError> {
        let output = self.new_file().with_extension("reference");
        let request = Request::Reference { subgraph: subgraph(task), output: output.clone() };
        match self.ask(&request, REFERENCE_LIMIT)? {
            Ok(Reply::Computed) => Ok(output),
            Ok(Reply::Refused { message }) => Err(MeasureError::Reference(message)),
            Ok(_) | Err(_) => Err(MeasureError::Reference("the interpreter gave no result".into())),
        }
    }

    /// One built candidate: timed, and if it is the best one, timed again and checked.
    fn run(
        &mut self,
        task: &Task,
        key: &str,
        candidate: &Candidate,
        artifact: &Path,
        drift: f64,
    ) -> Result<Outcome, MeasureError> {
        let best = self.tasks.get(key).map_or(f64::INFINITY, |known| known.best);
        let give_up = best.is_finite().then_some(best / drift * GIVE_UP);
        let mut times = match self.time(artifact, self.options.seconds, give_up)? {
            Ok(times) => times,
            Err(failure) => return Ok(Outcome::Failed(failure)),
        };
        if median(&times) * drift < best {
            if let Ok(again) = self.time(artifact, self.options.seconds, None)? {
                times.extend(again);
            }
            let reference = match self.tasks.get(key) {
                Some(known) => known.reference.clone(),
                None => self.reference(task)?,
            };
            if let Err(failure) = self.check(task, candidate, artifact, &reference)? {
                return Ok(Outcome::Failed(failure));
            }
            let seconds = median(&times) * drift;
            let known = self.tasks.entry(key.to_owned()).or_insert_with(|| Known {
                baseline: (artifact.to_path_buf(), seconds),
                best,
                reference,
            });
            known.best = known.best.min(seconds);
        }
        Ok(Outcome::Seconds(times.into_iter().map(|t| t * drift).collect()))
    }

    fn is_baseline(&self, key: &str, path: &Path) -> bool {
        self.tasks.get(key).is_some_and(|known| known.baseline.0 == path)
    }

    /// Counts failures in a row.
    fn count(&mut self, outcome: &Outcome) -> Result<(), MeasureError> {
        let Some(last) = outcome.failure() else {
            self.failures = 0;
            return Ok(());
        };
        self.failures += 1;
        if self.failures >= MOST_FAILURES_IN_A_ROW {
            return Err(MeasureError::AllFail { count: self.failures, last });
        }
        Ok(())
    }
}

impl Measurer for LocalMeasurer {
    fn measure(
        &mut self,
        task: &Arc<Task>,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, MeasureError> {
        let key = task.key();
        let built = self.build(candidates)?;
        let drift = self.drift(&key)?;
        let mut outcomes = Vec::with_capacity(candidates.len());
        for (candidate, built) in candidates.iter().zip(built) {
            let outcome = match built {
                Err(failure) => Outcome::Failed(failure),
                Ok(path) => {
                    let outcome = self.run(task, &key, candidate, &path, drift)?;
                    if !self.is_baseline(&key, &path) {
                        // What is left is removed with the folder.
                        let _ = std::fs::remove_file(&path);
                    }
                    outcome
                }
            };
            self.count(&outcome)?;
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }
}

fn build_one(
    worker: &mut Worker,
    candidate: &Candidate,
    output: &Path,
    limit: Duration,
) -> Result<Result<(), Failure>, MeasureError> {
    let program = candidate.scheduled.program.to_string();
    let request = Request::Build { program, output: output.to_path_buf() };
    Ok(match worker.ask(&request, limit).map_err(MeasureError::Worker)? {
        Ok(Reply::Built { .. }) => Ok(()),
        Ok(_) | Err(Lost::Died) => Err(Failure::Build),
        Err(Lost::Timeout) => Err(Failure::BuildTimeout),
    })
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
