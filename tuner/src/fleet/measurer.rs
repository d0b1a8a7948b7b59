//! Measuring on the workers of a fleet.
//!
//! ```text
//! candidates --jobs--> server --> workers of the kind --answers--> server --> outcomes, in order
//! ```
//!
//! - The first candidate of a task is measured alone. Every other job has its time, by
//!   which each worker scales what it measures: so machines of one kind that differ a little give
//!   times of one machine.
//! - An answer is acknowledged when its record is written ([`Measurer::recorded`]). Answers that an
//!   earlier life of the tuner asked for are given by [`Measurer::strays`].
//! - A tuner has only so many candidates waiting, its share of the workers. The server holds it to
//!   a bound.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ansc_sketch::Task;
use async_nats::jetstream::AckKind;
use async_nats::jetstream::message::Acker;
use futures_util::StreamExt;
use xxhash_rust::xxh3::xxh3_128;

use super::FleetError;
use super::census::{Entry, Member, Role};
use super::crowd::Crowd;
use super::identity::{Identity, Note, random_word};
use super::inbox::Inbox;
use super::kind::Kind;
use super::road::{JOBS, Road, jobs_of};
use super::round::Round;
use super::seen::Seen;
use super::wire::{Answer, Baseline, How, Job, MOST_BYTES, What, hex};
use crate::candidate::Candidate;
use crate::measure::{Failures, MeasureError, Measurer, Phase, Phases, Place};
use crate::outcome::Outcome;
use crate::records::Record;

/// Is told what people should know, a line at a time.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// The wishes of a tuner.
#[derive(Clone)]
pub struct Wanted {
    /// The kind of machine that measures.
    pub kind: Kind,
    /// Records are filed under this: the kind's target, and what is special about the measurements.
    pub target: String,
    /// How candidates are measured.
    pub how: How,
    /// The machine that the tuner runs on, for `ansc fleet status`.
    pub machine: String,
    /// How long workers are waited for.
    pub patience: Duration,
    /// Is told what people should know.
    pub tell: Tell,
}

/// Between two looks at whether all is well.
const TICK: Duration = Duration::from_millis(500);
/// Without an answer for so long, it is looked whether jobs were lost.
const SILENCE: Duration = Duration::from_secs(30);
/// Workers are asked for aloud after this time.
const ALOUD: Duration = Duration::from_secs(10);
/// Candidates that are tried as the first of a task, one after another.
const FIRSTS: usize = 3;
/// For an answer of an earlier life that the server has.
const EARLIER: Duration = Duration::from_secs(5);

/// Measures on the workers of a fleet.
pub struct FleetMeasurer {
    road: Road,
    identity: Identity,
    wanted: Wanted,
    inbox: Inbox,
    crowd: Crowd,
    entry: Entry,
    session: String,
    jobs: u64,
    seen: Seen,
    /// Answers that are not written down yet, and those that came again.
    unwritten: Vec<Acker>,
    /// Answers that were taken since the last note, and names of those that are not written down
    /// yet.
    taken: Vec<Note>,
    noted: Vec<u128>,
    strays: Vec<Record>,
    baselines: HashMap<String, Baseline>,
    places: Vec<Place>,
    failures: Failures,
    heard: Instant,
    told: Option<Instant>,
    looked: Instant,
    phases: Phases,
}

impl FleetMeasurer {
    /// Takes part in the fleet, and takes what an earlier life left.
    pub fn new(
        road: &Road,
        identity: Identity,
        wanted: Wanted,
    ) -> Result<FleetMeasurer, FleetError> {
        let member = Member {
            role: Role::Tuner,
            id: identity.name.clone(),
            machine: wanted.machine.clone(),
            kind: wanted.kind.clone(),
            jobs: 0,
            failed: 0,
            seconds: 0.0,
            busy: false,
        };
        let inbox = road.runtime.wait(Inbox::open(road, &identity.name))?;
        let mut seen = Seen::default();
        identity.earlier.iter().for_each(|&note| seen.restore(note));
        let now = Instant::now();
        let mut measurer = FleetMeasurer {
            crowd: Crowd::new(road, &wanted.kind),
            entry: Entry::announce(road, member)?,
            session: random_word(),
            road: road.clone(),
            identity,
            wanted,
            inbox,
            jobs: 0,
            seen,
            unwritten: vec![],
            taken: vec![],
            noted: vec![],
            strays: vec![],
            baselines: HashMap::new(),
            places: vec![],
            failures: Failures::default(),
            heard: now,
            told: None,
            looked: now,
            phases: Phases::default(),
        };
        let runtime = road.runtime.clone();
        runtime.wait(measurer.take_up())?;
        Ok(measurer)
    }

    fn subject(&self) -> String {
        jobs_of(&self.wanted.kind.digest(), &self.identity.name)
    }

    /// Jobs of an earlier life that nobody began are not wanted any more. Answers are.
    async fn take_up(&mut self) -> Result<(), FleetError> {
        self.purge().await?;
        let mut left = self.inbox.waiting;
        while left > 0 {
            let Some((bytes, acker)) = self.inbox.next(EARLIER).await? else { break };
            self.take(&bytes, acker, None).await?;
            left -= 1;
        }
        self.note()
    }

    /// Notes what was taken, before anybody writes it down.
    fn note(&mut self) -> Result<(), FleetError> {
        let taken = std::mem::take(&mut self.taken);
        self.identity.note(&taken)?;
        self.noted.extend(taken.iter().map(Note::name));
        Ok(())
    }

    async fn purge(&self) -> Result<(), FleetError> {
        let purge = || async {
            let stream = self.road.context.get_stream_no_info(JOBS).await;
            let stream = stream.map_err(|e| e.to_string())?;
            let purge = stream.purge().filter(self.subject());
            purge.await.map_err(|e| e.to_string())
        };
        self.road.again("taking back candidates", purge).await.map(drop)
    }

    /// Measures candidates of one task, and waits for all of them.
    async fn round(
        &mut self,
        task: &Arc<Task>,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, MeasureError> {
        let mut round = Round::new(task, candidates);
        self.heard = Instant::now();
        self.looked = self.heard;
        while let Some(first) = round.first(FIRSTS)
            && !self.baselines.contains_key(&round.key)
        {
            round.open(first..first + 1);
            self.finish(&mut round).await?;
            if let Some(seconds) = round.seconds(first) {
                let (trace, program) =
                    (candidates[first].trace.clone(), hex(candidates[first].program));
                self.baselines.insert(round.key.clone(), Baseline { trace, program, seconds });
            }
        }
        round.open(0..candidates.len());
        self.finish(&mut round).await?;
        let (outcomes, places) = round.into_parts();
        self.places = places;
        Ok(outcomes)
    }

    /// Until everything that is open has an outcome.
    async fn finish(&mut self, round: &mut Round<'_>) -> Result<(), MeasureError> {
        loop {
            self.ask(round).await?;
            if round.is_done() {
                return Ok(());
            }
            match self.inbox.next(TICK).await? {
                Some((bytes, acker)) => self.take(&bytes, acker, Some(round)).await?,
                None => self.look_around(round).await?,
            }
        }
    }

    /// Hands over what is open, as much as the tuner may have waiting.
    async fn ask(&mut self, round: &mut Round<'_>) -> Result<(), MeasureError> {
        let room = self.crowd.window().saturating_sub(round.waiting());
        let mut sent = vec![];
        for place in round.next(room) {
            let job = self.job(round, place);
            let message = serde_json::to_vec(&job).expect("plain data");
            if message.len() > MOST_BYTES {
                let bytes = message.len();
                return Err(FleetError::TooLarge { bytes, most: MOST_BYTES }.into());
            }
            round.sent(&job.id, place);
            let (road, subject) = (self.road.clone(), self.subject());
            sent.push(async move { (road.hand_over(&subject, &job.id, &message).await, job.id) });
        }
        // All are on their way before the first is waited for.
        let taken: Vec<_> = futures_util::stream::iter(sent).buffered(room.max(1)).collect().await;
        for (taken, id) in taken {
            if !taken? {
                round.again(&id);
            }
        }
        Ok(())
    }

    fn job(&mut self, round: &Round<'_>, place: usize) -> Job {
        self.jobs += 1;
        let candidate = &round.candidates[place];
        let mut job = Job {
            kind: self.wanted.kind.clone(),
            tuner: self.identity.name.clone(),
            id: String::new(),
            salt: format!("{}-{}", self.session, self.jobs),
            target: self.wanted.target.clone(),
            task: round.task.clone(),
            key: round.key.clone(),
            trace: candidate.trace.clone(),
            program: hex(candidate.program),
            baseline: self.baselines.get(&round.key).cloned(),
            how: self.wanted.how.clone(),
            workers: self.crowd.workers(),
        };
        job.id = seal(&self.identity, &job);
        job
    }

    /// An answer to what this tuner asked, whoever sent it. The tuner may have asked in an earlier
    /// life, and for another kind.
    fn check(&self, bytes: &[u8]) -> Result<Answer, String> {
        let answer = Answer::parse(bytes)?;
        if is_sealed(&self.identity, &answer) {
            return Ok(answer);
        }
        let (kind, own) = (self.wanted.kind.digest(), &self.wanted.kind);
        let Answer { place, version, key, .. } = &answer;
        if answer.kind == kind && *version == own.version && key.threads == own.threads {
            return Err("this tuner never asked for that".into());
        }
        Err(format!(
            "it was measured by {} with ansc {} and {} threads on the kind {}, and this tuner asks \
             for ansc {} and {} threads on the kind {kind}",
            place.machine,
            version.escape_debug(),
            key.threads,
            answer.kind.escape_debug(),
            own.version,
            own.threads
        ))
    }

    async fn take(
        &mut self,
        bytes: &[u8],
        acker: Acker,
        round: Option<&mut Round<'_>>,
    ) -> Result<(), FleetError> {
        self.heard = Instant::now();
        let answer = match self.check(bytes) {
            Ok(answer) => answer,
            Err(reason) => {
                (self.wanted.tell)(&format!("an answer is refused: {reason}"));
                // An answer that cannot be taken once cannot be taken again.
                let _ = acker.ack_with(AckKind::Term).await;
                return Ok(());
            }
        };
        // Until the first of two equal ones is written down, none may be lost.
        let name = u128::from_str_radix(&answer.id, 16).unwrap_or_default();
        self.unwritten.push(acker);
        let print = xxh3_128(bytes);
        if !self.seen.insert(name, print) {
            return Ok(());
        }
        self.taken.push(Note::Taken { name, print });
        let place = round.and_then(|round| Some((round.answered(&answer.id)?, round)));
        match (&answer.what, place) {
            (What::Outcome(outcome), Some((place, round))) => {
                let failed = u64::from(outcome.failure().is_some());
                self.entry.change(|member| {
                    member.jobs += 1;
                    member.failed += failed;
                });
                round.set(place, outcome.clone(), answer.place.clone());
            }
            (What::Outcome(_), None) => self.strays.extend(answer.record()),
            (What::Refused(reason), Some((place, round))) => {
                (self.wanted.tell)(&format!("worker {} refuses: {reason}", answer.place.machine));
                if !round.failed(place) {
                    let (machine, reason) = (answer.place.machine.clone(), reason.clone());
                    return Err(FleetError::Refused { machine, reason });
                }
            }
            (What::Refused(_), None) => {}
        }
        Ok(())
    }

    /// Nothing came for a moment: whether workers are there, and whether jobs were lost.
    async fn look_around(&mut self, round: &mut Round<'_>) -> Result<(), FleetError> {
        let alive = self.crowd.last().map_or(self.heard, |last| last.max(self.heard));
        let quiet = alive.elapsed();
        if quiet >= self.wanted.patience {
            return Err(FleetError::NoWorker {
                kind: self.wanted.kind.to_string(),
                seconds: quiet.as_secs(),
                others: self.crowd.others(),
            });
        }
        let is_told = self.told.is_some_and(|told| told > alive);
        if quiet >= ALOUD && !is_told {
            self.told = Some(Instant::now());
            let (kind, others) = (&self.wanted.kind, self.crowd.others());
            let line = format!("waiting for a worker that measures for {kind}; {others}");
            (self.wanted.tell)(&line);
        }
        if self.heard.max(self.looked).elapsed() >= SILENCE {
            self.looked = Instant::now();
            if self.are_lost().await? {
                self.purge().await?;
                round.lost();
            }
        }
        Ok(())
    }

    /// Whether the server has none of what is waited for, or gives it to nobody any more.
    async fn are_lost(&self) -> Result<bool, FleetError> {
        let (subject, kind) = (self.subject(), self.wanted.kind.digest());
        let look = || async {
            let stream = self.road.context.get_stream(JOBS).await.map_err(|e| e.to_string())?;
            let mut all = stream.info_with_subjects(&subject).await.map_err(|e| e.to_string())?;
            let mut there = 0;
            while let Some(entry) = all.next().await {
                there += entry.map_err(|e| e.to_string())?.1;
            }
            // Without workers there may be no consumer; then nothing was given to anybody.
            let idle = match stream.consumer_info(&kind).await {
                Ok(info) => info.num_pending == 0 && info.num_ack_pending == 0,
                Err(_) => false,
            };
            Ok::<_, String>(there == 0 || idle)
        };
        self.road.again("looking for candidates", look).await
    }
}

/// The seal on a job.
fn seal(identity: &Identity, job: &Job) -> String {
    let Kind { version, threads, .. } = &job.kind;
    let (kind, threads) = (job.kind.digest(), threads.to_string());
    let trace = serde_json::to_string(&job.trace).expect("plain data");
    let Job { salt, key, target, program, .. } = job;
    let parts = [salt, &kind, version, &threads, key, target, program, &trace];
    identity.seal(&parts.map(String::as_str))
}

/// Whether an answer repeats what was asked.
fn is_sealed(identity: &Identity, answer: &Answer) -> bool {
    let threads = answer.key.threads.to_string();
    let trace = serde_json::to_string(&answer.trace).expect("plain data");
    let Answer { salt, kind, version, program, key, .. } = answer;
    let parts = [salt, kind, version, &threads, &key.task, &key.target, program, &trace];
    identity.is_sealed(&parts.map(String::as_str), &answer.id)
}

impl Measurer for FleetMeasurer {
    fn measure(
        &mut self,
        task: &Arc<Task>,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, MeasureError> {
        let start = Instant::now();
        self.entry.change(|member| member.busy = true);
        let runtime = self.road.runtime.clone();
        let outcomes = runtime.wait(self.round(task, candidates));
        self.entry.change(|member| member.busy = false);
        self.phases.since("fleet", start);
        // Answers of a round that failed may be written down, too.
        self.note()?;
        let outcomes = outcomes?;
        outcomes.iter().try_for_each(|outcome| self.failures.count(outcome))?;
        Ok(outcomes)
    }

    fn places(&self) -> &[Place] {
        &self.places
    }

    fn strays(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.strays)
    }

    fn recorded(&mut self) -> Result<(), MeasureError> {
        let notes: Vec<Note> = self.noted.drain(..).map(Note::Written).collect();
        self.identity.note(&notes)?;
        let written = std::mem::take(&mut self.unwritten);
        let runtime = self.road.runtime.clone();
        runtime.wait(async {
            for acker in written {
                // If that is lost, the answer comes again, and is known then.
                let _ = acker.ack().await;
            }
        });
        Ok(())
    }

    fn phases(&self) -> Vec<Phase> {
        self.phases.summary()
    }
}
