//! Candidates are made and built by several threads with a process each, which take the next one:
//!
//! ```text
//! make 0, build 0, make 2, build 2, ..
//! make 1, build 1, make 3, (it is built already), ..
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::super::process::{Lost, Worker};
use super::super::protocol::{Reply, Request};
use super::super::{Batch, MeasureError};
use crate::candidate::Candidate;
use crate::outcome::Failure;

/// Where the artifact of a candidate is, or goes.
pub(super) struct Job {
    pub(super) artifact: PathBuf,
    pub(super) is_built: bool,
}

/// Seconds of one build.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct BuildTimes {
    pub(super) parse: f64,
    pub(super) codegen: f64,
    pub(super) link: f64,
    /// All of it, as who waits for it sees it.
    pub(super) build: f64,
}

/// Why there is no artifact.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unbuilt {
    /// There is no such candidate.
    Missing,
    Failed(Failure),
}

/// Without times if it was built before.
pub(super) type Built = Result<Option<BuildTimes>, Unbuilt>;

/// Which job comes next. Shared by the builders and by who may call them off.
#[derive(Default)]
pub(super) struct Next(AtomicUsize);

impl Next {
    fn take(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// Nothing more is begun.
    pub(super) fn stop(&self) {
        self.0.store(usize::MAX / 2, Ordering::Relaxed);
    }
}

/// Results of builds as they come, asked for in any order.
pub(super) struct Results {
    receiver: Receiver<(usize, Result<Built, MeasureError>)>,
    early: BTreeMap<usize, Built>,
}

impl Results {
    /// Waits for one job. Who waits may do something useful `meanwhile`, a little at a time, until
    /// that says that there is nothing left.
    pub(super) fn of(
        &mut self,
        job: usize,
        mut meanwhile: impl FnMut() -> bool,
    ) -> Result<Built, MeasureError> {
        let mut is_idle = false;
        loop {
            if let Some(result) = self.early.remove(&job) {
                return Ok(result);
            }
            let received = match self.receiver.try_recv() {
                Err(TryRecvError::Empty) if !is_idle => {
                    is_idle = !meanwhile();
                    continue;
                }
                Err(TryRecvError::Empty) => self.receiver.recv().map_err(|_| no_builder()),
                other => other.map_err(|_| no_builder()),
            };
            let (done, result) = received?;
            // The machine's error is not about one job.
            self.early.insert(done, result?);
        }
    }

    /// Waits until all of `jobs` are done, or until one of them tells that the machine is unfit.
    pub(super) fn wait(&mut self, jobs: usize) -> Result<(), MeasureError> {
        while self.early.len() < jobs {
            let (done, result) = self.receiver.recv().map_err(|_| no_builder())?;
            self.early.insert(done, result?);
        }
        Ok(())
    }
}

/// All threads that wait for builders have ended.
fn no_builder() -> MeasureError {
    MeasureError::Worker(std::io::Error::other("no thread can be started that waits for one"))
}

/// Starts building a batch on as many of the `builders` as there is work, and threads, for. There
/// is a job for each of its places.
pub(super) fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    builders: &'env mut [Worker],
    (batch, jobs): (&'env dyn Batch, &'env [Job]),
    next: &'env Next,
    limit: Duration,
) -> Results {
    let (sender, receiver) = channel();
    for worker in builders.iter_mut().take(jobs.len()) {
        let sender: Sender<_> = sender.clone();
        let serve = move || {
            loop {
                let at = next.take();
                let Some(job) = jobs.get(at) else { return };
                let built = make(worker, batch.candidate(at), job, limit);
                if built.is_err() {
                    next.stop();
                }
                // Nobody waits for it any more if that fails.
                let _ = sender.send((at, built));
            }
        };
        // Where there are no more threads, the builders that there are do it.
        if std::thread::Builder::new().spawn_scoped(scope, serve).is_err() {
            break;
        }
    }
    Results { receiver, early: BTreeMap::new() }
}

/// Builds one place of a batch, or tells why it has none. An error of the outer result is the
/// machine's.
fn make(
    worker: &mut Worker,
    candidate: Option<&Candidate>,
    job: &Job,
    limit: Duration,
) -> Result<Built, MeasureError> {
    match candidate {
        None => Ok(Err(Unbuilt::Missing)),
        Some(_) if job.is_built => Ok(Ok(None)),
        Some(candidate) => {
            let built = build(worker, candidate, &job.artifact, limit)?;
            Ok(built.map(Some).map_err(Unbuilt::Failed))
        }
    }
}

/// One build. An error of the outer result is the machine's.
pub(super) fn build(
    worker: &mut Worker,
    candidate: &Candidate,
    output: &Path,
    limit: Duration,
) -> Result<Result<BuildTimes, Failure>, MeasureError> {
    let start = Instant::now();
    let program = candidate.scheduled.program.to_string();
    let request = Request::Build { program, output: PathBuf::from(output) };
    Ok(match worker.ask(&request, limit)? {
        Ok(Reply::Built { parse, codegen, link }) => {
            Ok(BuildTimes { parse, codegen, link, build: start.elapsed().as_secs_f64() })
        }
        Ok(_) | Err(Lost::Died) => Err(Failure::Build),
        Err(Lost::Timeout) => Err(Failure::BuildTimeout),
    })
}
