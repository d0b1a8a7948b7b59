//! Measuring the jobs of a worker, on the scale of the tuner that asks.
//!
//! ```text
//! here the baseline takes 1.1 ms, where it was measured first 1.0 ms: 2.2 ms here are 2.0 ms
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::admit::Admitted;
use super::census::Entry;
use super::held::Hold;
use super::post::Post;
use super::promise::Promises;
use super::serve::{NewMeasurer, Served};
use crate::measure::{Each, MeasureError, Measurer};
use crate::outcome::Outcome;

/// Tasks that measurers know before they are made anew, each with its artifacts.
const MOST_TASKS: usize = 256;
/// Ways of measuring that are kept.
const MOST_WAYS: usize = 8;

impl Admitted {
    /// Whether both are measured in one go. A candidate that was begun before may have ended its
    /// worker, or was beside one that did: it runs alone, so that it shows which of the two it is.
    pub(super) fn goes_with(&self, other: &Admitted) -> bool {
        (self.tries, other.tries) == (0, 0)
            && self.job.tuner == other.job.tuner
            && self.job.how == other.job.how
            && self.job.baseline == other.job.baseline
            && self.job.task == other.job.task
    }
}

/// The measurer, and how fast the machine is.
pub(super) struct Bench<'a> {
    make: &'a NewMeasurer<'a>,
    /// By the way of measuring.
    measurers: HashMap<String, Box<dyn Measurer>>,
    /// Seconds of baselines here, by way, task and program.
    paces: HashMap<(String, String, u64), Option<f64>>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(make: &'a NewMeasurer<'a>) -> Bench<'a> {
        Bench { make, measurers: HashMap::new(), paces: HashMap::new() }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.measurers.clear();
        self.paces.clear();
    }

    /// Measures jobs that go together.
    pub(super) fn measure(&mut self, watching: &mut Watching<'_>) -> Result<(), MeasureError> {
        if self.measurers.len() > MOST_WAYS || self.paces.len() > MOST_TASKS {
            self.clear();
        }
        let jobs: Vec<&Admitted> = watching.jobs.iter().flatten().map(|(job, _)| job).collect();
        let Some(first) = jobs.first() else { return Ok(()) };
        let (way, task) = (first.job.how.word(), first.candidate.task.clone());
        let batch = Promises(jobs.iter().map(|job| job.candidate.clone()).collect());
        let baseline = first.baseline.as_ref().and_then(|promise| promise.candidate().ok());
        let baseline = baseline.zip(first.job.baseline.as_ref().map(|b| b.seconds));
        let measurer = match self.measurers.entry(way.clone()) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert((self.make)(&first.job.how)?)
            }
        };
        watching.scale = 1.0;
        if let Some((baseline, there)) = baseline {
            let place = (way, task.key(), baseline.program);
            let here = match self.paces.get(&place) {
                Some(here) => *here,
                None => {
                    let outcomes = measurer.measure(&task, std::slice::from_ref(baseline))?;
                    let here = outcomes.first().and_then(Outcome::seconds);
                    self.paces.insert(place, here);
                    here
                }
            };
            // A baseline that does not run here tells nothing.
            watching.scale = here.map_or(1.0, |here| there / here);
        }
        measurer.measure_each(&task, &batch, watching)
    }
}

/// Answers after each candidate.
pub(super) struct Watching<'a> {
    pub(super) post: &'a Post,
    pub(super) served: &'a mut Served,
    pub(super) entry: &'a Entry,
    pub(super) interrupted: &'a AtomicBool,
    /// Those that have no answer yet.
    pub(super) jobs: Vec<Option<(Admitted, Hold)>>,
    pub(super) running: Option<usize>,
    /// Seconds of the tuner in one of this machine's.
    pub(super) scale: f64,
}

impl Each for Watching<'_> {
    fn begins(&mut self, place: usize) -> bool {
        if self.interrupted.load(Ordering::Relaxed) {
            return false;
        }
        if let Some(Some((job, _))) = self.jobs.get(place) {
            self.post.begins(&job.job.id);
            self.running = Some(place);
        }
        true
    }

    fn is_missing(&mut self, place: usize) {
        self.running = None;
        let Some((job, hold)) = self.jobs.get_mut(place).and_then(Option::take) else { return };
        let reason = job.candidate.candidate().err().unwrap_or("there is no candidate").to_owned();
        self.served.refused += 1;
        self.post.refuse(Some(job.job), job.bytes, reason, hold);
    }

    fn ends(&mut self, place: usize, outcome: Outcome) {
        self.running = None;
        let Some((job, hold)) = self.jobs.get_mut(place).and_then(Option::take) else { return };
        let outcome = match outcome {
            Outcome::Seconds(all) => Outcome::Seconds(all.iter().map(|s| s * self.scale).collect()),
            failed => failed,
        };
        let failed = u64::from(outcome.failure().is_some());
        self.served.jobs += 1;
        self.served.failed += failed;
        self.entry.change(|member| {
            member.jobs += 1;
            member.failed += failed;
        });
        self.post.answer(&job, outcome, hold);
    }
}
