//! Candidates are built by several processes, each taking the next one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::super::MeasureError;
use super::super::process::{Lost, Worker};
use super::super::protocol::{Reply, Request};
use crate::candidate::Candidate;
use crate::outcome::Failure;

/// One candidate, and where its artifact goes.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) output: &'a Path,
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

pub(super) type Built = Result<BuildTimes, Failure>;

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
    /// Waits for one job.
    pub(super) fn of(&mut self, job: usize) -> Result<Built, MeasureError> {
        loop {
            if let Some(result) = self.early.remove(&job) {
                return Ok(result);
            }
            let (done, result) = self.receiver.recv().map_err(|_| no_builder())?;
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

/// Starts building on as many of the `builders` as there is work, and threads, for.
pub(super) fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    builders: &'env mut [Worker],
    jobs: &'env [Job<'env>],
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
                let built = build(worker, job.candidate, job.output, limit);
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

/// One build. An error of the outer result is the machine's.
pub(super) fn build(
    worker: &mut Worker,
    candidate: &Candidate,
    output: &Path,
    limit: Duration,
) -> Result<Built, MeasureError> {
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
