//! Messages of a worker: answers, and copies of candidates that ended what ran them.
//!
//! A job is acknowledged when its answer is kept. So a worker that ends between the two has the job
//! done again, and the second answer is dropped, by the server or by the tuner.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_nats::jetstream::AckKind;
use serde::Serialize;
use tokio::task::JoinHandle;

use super::FleetError;
use super::admit::Admitted;
use super::held::Hold;
use super::measurer::Tell;
use super::road::{Road, answers_of};
use super::serve::Station;
use super::tried;
use super::wire::{Answer, Job, What};
use crate::measure::Place;
use crate::outcome::{Failure, Outcome};
use crate::records::Key;

/// Bytes of the reason of a refusal.
const LONGEST_REASON: usize = 2000;

pub(super) struct Post {
    road: Road,
    kind: String,
    version: String,
    threads: usize,
    machine: String,
    worker: String,
    log: Option<PathBuf>,
    tell: Tell,
    sending: Mutex<Vec<JoinHandle<Result<(), FleetError>>>>,
}

/// A dead letter: everything that is needed to see what happened.
#[derive(Serialize)]
struct Dead<'a> {
    reason: String,
    place: Place,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a Job>,
}

impl Post {
    pub(super) fn new(road: &Road, station: &Station, worker: &str) -> Post {
        Post {
            road: road.clone(),
            kind: station.kind.digest(),
            version: station.kind.version.clone(),
            threads: station.kind.threads,
            machine: station.name.clone(),
            worker: worker.into(),
            log: station.log.clone(),
            tell: station.tell.clone(),
            sending: Mutex::new(vec![]),
        }
    }

    /// Says that a candidate begins.
    pub(super) fn begins(&self, job: &str) {
        self.road.runtime.wait(tried::begin(&self.road, &self.worker, job));
    }

    /// Says that a candidate was begun and had no outcome.
    pub(super) fn spoilt(&self, job: &str) {
        self.road.runtime.wait(tried::spoilt(&self.road, &self.worker, job));
    }

    /// Answers, and lets go of the job.
    pub(super) fn answer(&self, admitted: &Admitted, outcome: Outcome, hold: Hold) {
        let harm = outcome.failure().filter(|failure| is_harm(*failure));
        let dead = harm.map(|failure| self.dead(Some(&admitted.job), failure.to_string()));
        let answer = self.about(&admitted.job, What::Outcome(outcome));
        self.send(Some((&admitted.job.tuner, answer)), dead, hold, AckKind::Ack);
    }

    /// Refuses a job, which nobody gets again. One that cannot be read is nobody's.
    pub(super) fn refuse(&self, job: Option<Job>, bytes: usize, mut reason: String, hold: Hold) {
        (self.tell)(&format!("a job is refused: {reason}"));
        if reason.len() > LONGEST_REASON {
            reason = reason.chars().take(LONGEST_REASON / 4).collect();
        }
        let dead = self.dead(None, format!("{reason}; {bytes} bytes"));
        let answer = job.map(|job| {
            let answer = self.about(&job, What::Refused(reason));
            (job.tuner, answer)
        });
        let answer = answer.as_ref().map(|(tuner, answer)| (tuner.as_str(), answer.clone()));
        self.send(answer, Some(dead), hold, AckKind::Term);
    }

    fn about(&self, job: &Job, what: What) -> Answer {
        let (task, target, threads) = (job.key.clone(), job.target.clone(), self.threads);
        Answer {
            id: job.id.clone(),
            salt: job.salt.clone(),
            kind: self.kind.clone(),
            key: Key { task, target, threads },
            trace: job.trace.clone(),
            program: job.program.clone(),
            version: self.version.clone(),
            place: Place::now(&self.machine),
            what,
        }
    }

    fn dead(&self, job: Option<&Job>, reason: String) -> Vec<u8> {
        let dead = Dead { reason, place: Place::now(&self.machine), job };
        serde_json::to_vec(&dead).expect("plain data")
    }

    fn send(
        &self,
        answer: Option<(&str, Answer)>,
        dead: Option<Vec<u8>>,
        hold: Hold,
        how: AckKind,
    ) {
        let (road, kind, log) = (self.road.clone(), self.kind.clone(), self.log.clone());
        let answer = answer.map(|(tuner, answer)| {
            let message = serde_json::to_vec(&answer).expect("plain data");
            (answers_of(tuner), answer.id, message)
        });
        let sending = self.road.runtime.spawn(async move {
            // Refusals have no name: somebody may send many bad jobs under one.
            let name = match (&answer, how) {
                (Some((_, id, _)), AckKind::Ack) => format!("dead-{id}"),
                _ => String::new(),
            };
            if let Some((subject, id, message)) = &answer {
                road.hand_over(subject, id, message).await?;
                log.iter().try_for_each(|path| note(path, message))?;
            }
            if let Some(dead) = dead {
                road.hand_over(&format!("ansc.dead.{kind}"), &name, &dead).await?;
            }
            hold.end(how).await;
            Ok(())
        });
        self.sending.lock().unwrap_or_else(PoisonError::into_inner).push(sending);
    }

    /// Waits until everything is kept.
    pub(super) async fn settle(&self) -> Result<(), FleetError> {
        let all = std::mem::take(&mut *self.sending.lock().unwrap_or_else(PoisonError::into_inner));
        for sending in all {
            if let Ok(sent) = sending.await {
                sent?;
            }
        }
        Ok(())
    }
}

/// Adds a line to the log, in one piece.
fn note(path: &Path, message: &[u8]) -> Result<(), FleetError> {
    let line = [message, b"\n"].concat();
    let open = OpenOptions::new().create(true).append(true).open(path);
    open.and_then(|mut file| file.write_all(&line)).map_err(|e| FleetError::File {
        path: path.to_path_buf(),
        reason: format!("the log cannot be written: {e}"),
    })
}

/// Failures that end the process that runs the candidate.
fn is_harm(failure: Failure) -> bool {
    match failure {
        Failure::Crash | Failure::Timeout | Failure::Memory | Failure::Poison => true,
        Failure::Build | Failure::BuildTimeout | Failure::WrongResult => false,
    }
}
