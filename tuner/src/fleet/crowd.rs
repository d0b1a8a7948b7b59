//! How many share a fleet, as a tuner sees it from time to time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::census::{self, Member, Role};
use super::kind::Kind;
use super::road::{MOST_WAITING, Road};

/// Between two calls, in a small fleet.
const PERIOD: Duration = Duration::from_secs(5);
/// More of it for each that answers, so that calls stay a small part of the traffic.
const FOR_EACH: Duration = Duration::from_millis(10);
/// Answers of those that are near come within this time.
const ANSWERS: Duration = Duration::from_millis(400);
/// Candidates that a tuner keeps waiting for each worker of its share.
const AHEAD: usize = 8;
/// And at least, for workers that build several at a time.
const LEAST_WAITING: usize = 64;

#[derive(Default)]
struct Seen {
    workers: usize,
    tuners: usize,
    /// Other kinds, each once, with a machine of it.
    others: Vec<(String, Kind)>,
    last: Option<Instant>,
}

/// Who shares the fleet. It is asked in the background as long as this lives.
pub(super) struct Crowd {
    kind: Kind,
    seen: Arc<Mutex<Seen>>,
    asking: tokio::task::JoinHandle<()>,
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

impl Crowd {
    pub(super) fn new(road: &Road, kind: &Kind) -> Crowd {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (own, asked, wanted) = (seen.clone(), road.clone(), kind.clone());
        let asking = road.runtime.spawn(async move {
            loop {
                // The last list stands until the server is back.
                let members = census::call(&asked, ANSWERS).await.unwrap_or_default();
                let pause = PERIOD + FOR_EACH * members.len() as u32;
                own.lock().unwrap_or_else(PoisonError::into_inner).see(&wanted, &members);
                tokio::time::sleep(pause).await;
            }
        });
        Crowd { kind: kind.clone(), seen, asking }
    }

    fn with<T>(&self, f: impl FnOnce(&Seen) -> T) -> T {
        f(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Workers of the kind, at least one.
    pub(super) fn workers(&self) -> usize {
        self.with(|seen| seen.workers.max(1))
    }

    /// When a worker of the kind answered last.
    pub(super) fn last(&self) -> Option<Instant> {
        self.with(|seen| seen.last)
    }

    /// Candidates that a tuner may have waiting, so that all get the same.
    pub(super) fn window(&self) -> usize {
        let share = self.with(|seen| seen.workers * AHEAD / seen.tuners.max(1));
        share.clamp(LEAST_WAITING, MOST_WAITING)
    }

    /// In what the kinds that are there differ from the one that is wanted.
    pub(super) fn others(&self) -> String {
        let differ = |(machine, kind): &(String, Kind)| {
            format!("worker {machine}: {}", self.kind.differences(kind).join(", "))
        };
        let all: Vec<String> = self.with(|seen| seen.others.iter().map(differ).collect());
        if all.is_empty() { "no worker is there".into() } else { all.join("; ") }
    }
}

impl Seen {
    fn see(&mut self, wanted: &Kind, members: &[Member]) {
        let alike = |role| members.iter().filter(|m| m.role == role && m.kind == *wanted).count();
        (self.workers, self.tuners) = (alike(Role::Worker), alike(Role::Tuner));
        if self.workers > 0 {
            self.last = Some(Instant::now());
        }
        self.others.clear();
        for member in members.iter().filter(|m| m.role == Role::Worker && m.kind != *wanted) {
            if self.others.len() < 8 && self.others.iter().all(|(_, kind)| *kind != member.kind) {
                self.others.push((member.machine.clone(), member.kind.clone()));
            }
        }
    }
}
