//! A worker of a fleet: takes jobs, measures them in processes of their own, and answers.
//!
//! ```text
//! wait for a job -> lease the device -> take more, admit -> pace -> measure, answer -> let go
//! ```
//!
//! Ctrl-C ends it after the candidate that runs. What it has in its hands goes back at once; what a
//! worker that was killed had in its hands goes to others when the server hears nothing of it for a
//! while.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ansc_sketch::Machine;
use async_nats::jetstream::AckKind;
use serde::Serialize;

use super::FleetError;
use super::admit::{Admitted, Gate, Refusal};
use super::census::{Entry, Member, Role};
use super::held::{Held, Hold};
use super::identity::random_word;
use super::kind::Kind;
use super::lease::Lease;
use super::measurer::Tell;
use super::post::Post;
use super::queue::{Queue, Taken};
use super::road::Road;
use super::tried::{self, MOST_TRIES};
use super::wire::{How, Job};
use super::work::Bench;
use crate::measure::{MeasureError, Measurer};
use crate::outcome::{Failure, Outcome};

/// The worker as it presents itself.
#[derive(Clone)]
pub struct Station {
    /// The kind that it measures.
    pub kind: Kind,
    /// Units that schedules may use.
    pub machine: Machine,
    /// The name of the machine, which records get.
    pub name: String,
    /// The file that stands for the device. One worker has it at a time.
    pub lease: Option<PathBuf>,
    /// If the server hears nothing of a job for so long, it gives it to another worker.
    pub patience: Duration,
    /// Jobs in its hands at most.
    pub most: usize,
    /// A file that gets a line of JSON for each answer that the server has kept.
    pub log: Option<PathBuf>,
    /// Is told what people should know.
    pub tell: Tell,
}

/// Makes what measures as a job says.
pub type NewMeasurer<'a> = dyn Fn(&How) -> Result<Box<dyn Measurer>, MeasureError> + 'a;

/// The work that a worker did.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Served {
    /// Candidates that were measured.
    pub jobs: u64,
    /// Candidates of them that have no time.
    pub failed: u64,
    /// Jobs that were refused.
    pub refused: u64,
    /// Candidates that ended what ran them too often.
    pub poisoned: u64,
    /// Jobs that went back to the server.
    pub returned: u64,
    /// Seconds of measuring, by tuner.
    pub seconds: BTreeMap<String, f64>,
}

/// After so many rounds that the machine spoilt, one after another, the worker ends.
const MOST_TROUBLES: u32 = 3;

/// Measures until it is interrupted.
pub fn serve(
    road: &Road,
    station: &Station,
    make: &NewMeasurer<'_>,
    interrupted: &AtomicBool,
) -> Result<Served, MeasureError> {
    let id = random_word();
    let member = Member {
        role: Role::Worker,
        id: id.clone(),
        machine: station.name.clone(),
        kind: station.kind.clone(),
        jobs: 0,
        failed: 0,
        seconds: 0.0,
        busy: false,
    };
    let mut serving = Serving {
        queue: Queue::open(road, &station.kind.digest(), station.patience)?,
        entry: Entry::announce(road, member)?,
        held: Held::new(&road.runtime, station.patience),
        gate: Gate::new(station.kind.clone(), station.machine.clone()),
        bench: Bench::new(make),
        post: Post::new(road, station, &id),
        served: Served::default(),
        troubles: 0,
        road,
        station,
        interrupted,
    };
    serving.run()?;
    Ok(serving.served)
}

pub(super) struct Serving<'a> {
    road: &'a Road,
    station: &'a Station,
    interrupted: &'a AtomicBool,
    queue: Queue,
    entry: Entry,
    held: Held,
    gate: Gate,
    bench: Bench<'a>,
    post: Post,
    served: Served,
    troubles: u32,
}

impl Serving<'_> {
    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn run(&mut self) -> Result<(), MeasureError> {
        while !self.is_interrupted() {
            let runtime = self.road.runtime.clone();
            let Some(first) = runtime.wait(self.queue.first(self.interrupted))? else { break };
            let mut jobs = self.admit(vec![first])?;
            let lease = match &self.station.lease {
                Some(path) => Lease::take(path, || self.is_interrupted())?,
                None => None,
            };
            let more = self.more(jobs.first().map(|(job, _)| job));
            jobs.extend(self.admit(more)?);
            self.entry.change(|member| member.busy = true);
            let measured = self.measure(jobs);
            self.entry.change(|member| member.busy = false);
            drop(lease);
            measured?;
            runtime.wait(self.post.settle())?;
        }
        Ok(())
    }

    /// More jobs; while they come, the candidate of the first one is made.
    fn more(&mut self, first: Option<&Admitted>) -> Vec<Taken> {
        let share = first.map_or(1, |job| job.job.workers);
        std::thread::scope(|scope| {
            let make = || first.is_some_and(|job| job.candidate.candidate().is_ok());
            // Where no thread can be started, it is made just before it is built.
            let _ = std::thread::Builder::new().spawn_scoped(scope, make);
            self.road.runtime.wait(self.queue.more(self.station.most, share))
        })
    }

    /// The jobs that may run; others are answered.
    fn admit(&mut self, taken: Vec<Taken>) -> Result<Vec<(Admitted, Hold)>, FleetError> {
        let hold = |Taken { bytes, acker, sequence, is_first }| {
            (bytes, self.held.take(sequence, acker), is_first)
        };
        let taken: Vec<(Vec<u8>, Hold, bool)> = taken.into_iter().map(hold).collect();
        let mut jobs = vec![];
        for (bytes, hold, is_first) in taken {
            match self.gate.admit(&bytes) {
                Ok(job) if is_first => jobs.push((job, hold)),
                Ok(job) => jobs.extend(self.again(job, hold)?),
                Err(Refusal { job, reason }) => {
                    self.refuse(job.map(|job| *job), bytes.len(), reason, hold);
                }
            }
        }
        Ok(jobs)
    }

    fn refuse(&mut self, job: Option<Job>, bytes: usize, reason: String, hold: Hold) {
        self.served.refused += 1;
        self.post.refuse(job, bytes, reason, hold);
    }

    /// A job that another worker had in its hands, if it was not tried too often; the answer to
    /// one that was is that it is poison. A replay may be what ended the other worker: it happens
    /// now, while no other candidate runs that would count as tried.
    fn again(
        &mut self,
        mut job: Admitted,
        hold: Hold,
    ) -> Result<Option<(Admitted, Hold)>, FleetError> {
        job.tries = self.road.runtime.wait(tried::tries(self.road, &job.job.id))?;
        if job.tries >= MOST_TRIES {
            self.served.poisoned += 1;
            self.post.answer(&job, Outcome::Failed(Failure::Poison), hold);
            return Ok(None);
        }
        let refused = job.candidate.candidate().err().map(str::to_owned);
        match refused {
            None => Ok(Some((job, hold))),
            Some(reason) => {
                self.refuse(Some(job.job), job.bytes, reason, hold);
                Ok(None)
            }
        }
    }

    /// Group after group of what can be measured side by side.
    fn measure(&mut self, jobs: Vec<(Admitted, Hold)>) -> Result<(), MeasureError> {
        let mut groups: Vec<Vec<(Admitted, Hold)>> = vec![];
        for job in jobs {
            match groups.iter_mut().find(|group| group[0].0.goes_with(&job.0)) {
                Some(group) => group.push(job),
                None => groups.push(vec![job]),
            }
        }
        let mut error = None;
        for group in groups {
            if self.is_interrupted() || error.is_some() {
                self.give_back(group);
                continue;
            }
            error = self.measure_group(group).err();
        }
        error.map_or(Ok(()), Err)
    }

    /// Again and again until all have an outcome: what a candidate does to its process or to the
    /// measurer is no reason to lose the others.
    fn measure_group(&mut self, group: Vec<(Admitted, Hold)>) -> Result<(), MeasureError> {
        let mut left = group;
        while !left.is_empty() {
            let start = Instant::now();
            let tuner = left[0].0.job.tuner.clone();
            let mut watch = super::work::Watching {
                post: &self.post,
                served: &mut self.served,
                entry: &self.entry,
                interrupted: self.interrupted,
                jobs: left.into_iter().map(Some).collect(),
                running: None,
                scale: 1.0,
            };
            let done = self.bench.measure(&mut watch);
            let (running, jobs) = (watch.running.take(), std::mem::take(&mut watch.jobs));
            let spoilt = running.and_then(|place| jobs[place].as_ref().map(|_| place));
            left = vec![];
            let mut others = jobs.into_iter().enumerate();
            let mut ran = None;
            others.by_ref().for_each(|(place, job)| match job {
                Some(job) if Some(place) == spoilt => ran = Some(job),
                Some(job) => left.push(job),
                None => {}
            });
            *self.served.seconds.entry(tuner).or_default() += start.elapsed().as_secs_f64();
            match done {
                Ok(()) => {
                    self.troubles = 0;
                    left.extend(ran);
                    self.give_back(std::mem::take(&mut left));
                }
                Err(error) => self.after(error, ran, &mut left)?,
            }
        }
        Ok(())
    }

    /// After an error of the measurer, in the middle of a candidate or between two.
    fn after(
        &mut self,
        error: MeasureError,
        ran: Option<(Admitted, Hold)>,
        left: &mut Vec<(Admitted, Hold)>,
    ) -> Result<(), MeasureError> {
        self.bench.clear();
        match (error, ran) {
            (MeasureError::AllFail { last, .. }, Some((job, hold))) => {
                self.served.jobs += 1;
                self.served.failed += 1;
                self.post.answer(&job, Outcome::Failed(last), hold);
                Ok(())
            }
            (MeasureError::Reference(reason), ran) => {
                for (Admitted { job, bytes, .. }, hold) in ran.into_iter().chain(left.drain(..)) {
                    let reason = format!("its subgraph cannot be computed by definition: {reason}");
                    self.refuse(Some(job), bytes, reason, hold);
                }
                Ok(())
            }
            (error, ran) => {
                (self.station.tell)(&format!("a round is spoilt: {error}"));
                self.troubles += 1;
                if let Some((job, hold)) = ran {
                    self.post.spoilt(&job.job.id);
                    self.give_back(vec![(job, hold)]);
                }
                if self.troubles >= MOST_TROUBLES {
                    self.give_back(std::mem::take(left));
                    return Err(error);
                }
                Ok(())
            }
        }
    }

    /// To other workers, or to this one later.
    fn give_back(&mut self, jobs: Vec<(Admitted, Hold)>) {
        self.served.returned += jobs.len() as u64;
        let runtime = self.road.runtime.clone();
        for (_, hold) in jobs {
            runtime.wait(hold.end(AckKind::Nak(None)));
        }
    }
}
