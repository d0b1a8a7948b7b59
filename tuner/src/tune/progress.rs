//! The knowledge that a run has of one task, and the candidates that it measures next.

use std::collections::{HashSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use rayon::prelude::*;

use super::{Options, TaskReport, Weighted, hints};
use crate::candidate::{Candidate, Search};
use crate::measure::Place;
use crate::outcome::{Failure, Outcome};
use crate::records::{Key, Record, Records, RecordsError, choose};
use crate::strategy::SearchStrategy;

/// The search of one task, and its state.
pub(super) struct Progress {
    pub(super) weighted: Weighted,
    pub(super) key: Key,
    pub(super) search: Search,
    pub(super) strategy: Box<dyn SearchStrategy>,
    /// The candidate that nobody tuned.
    pub(super) default: Option<Candidate>,
    /// Candidates to be measured before any that the strategy proposes: those that were good
    /// elsewhere or for similar tasks, then those that the untuned schedule was chosen among.
    pub(super) first: VecDeque<Candidate>,
    pub(super) rounds: usize,
    /// Measured in this run.
    pub(super) trials: usize,
}

impl Progress {
    /// Takes up what the records know.
    pub(super) fn new(
        weighted: &Weighted,
        strategy: Box<dyn SearchStrategy>,
        records: &dyn Records,
        options: &Options,
    ) -> Result<Progress, RecordsError> {
        let key = Key {
            task: weighted.task.key(),
            target: options.target.clone(),
            threads: options.threads,
        };
        let mut search = Search::new(weighted.task.clone());
        let known = records.of(&key)?.into_par_iter().filter_map(|record| {
            // A record of another version of the rules may not replay any more.
            Some((Candidate::exactly(&weighted.task, &record.trace)?, record.outcome))
        });
        for (candidate, outcome) in known.collect::<Vec<_>>() {
            search.add(&candidate, outcome);
        }
        let untuned = Candidate::exactly(&weighted.task, &weighted.task.untuned());
        let exactly = |trace| Candidate::exactly(&weighted.task, trace);
        let mut first: VecDeque<Candidate> = weighted.known.iter().filter_map(exactly).collect();
        first.extend(hints::hints(weighted, &key, records)?);
        Ok(Progress {
            weighted: weighted.clone(),
            key,
            search,
            strategy,
            default: untuned,
            first,
            rounds: 0,
            trials: 0,
        })
    }

    pub(super) fn best(&self) -> Option<f64> {
        self.search.best().map(|(_, seconds)| seconds)
    }

    /// The time of what a kernel gets.
    pub(super) fn chosen(&self) -> Option<f64> {
        let measured = self.search.measured.iter().map(|(c, o)| (c.program, o.clone()));
        choose(measured, self.default.as_ref().map(|c| c.program)).map(|(_, seconds)| seconds)
    }

    /// The first candidate of a run is the untuned schedule, which all others are compared with;
    /// then come those that need no search.
    pub(super) fn candidates(&mut self, n: usize) -> Vec<Candidate> {
        let mut all: Vec<Candidate> = vec![];
        if self.rounds == 0 {
            let task = &self.weighted.task;
            let rivals = task.rivals().into_iter();
            self.first.extend(rivals.map(|rival| Candidate::of_choice(task, rival)));
            all.extend(self.default.clone());
        }
        let mut known: HashSet<u64> = all.iter().map(|c| c.program).collect();
        while all.len() < n
            && let Some(candidate) = self.first.pop_front()
        {
            if !self.search.is_seen(&candidate) && known.insert(candidate.program) {
                all.push(candidate);
            }
        }
        let proposed = self.strategy.propose(&self.search, n - all.len());
        all.extend(proposed.into_iter().filter(|c| known.insert(c.program)));
        all
    }

    /// The fastest, and the untuned schedule, whose time the choice is compared with.
    pub(super) fn leaders(&self, n: usize) -> Vec<Candidate> {
        let mut timed: Vec<(f64, &Candidate)> =
            self.search.measured.iter().filter_map(|(c, o)| Some((o.seconds()?, c))).collect();
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let default = self.default.as_ref().map(|c| c.program);
        let rank = |i: usize, program: u64| i < n || Some(program) == default;
        let kept = timed.into_iter().enumerate().filter(|(i, (_, c))| rank(*i, c.program));
        kept.map(|(_, (_, c))| c.clone()).collect()
    }

    pub(super) fn records(
        &self,
        candidates: &[Candidate],
        outcomes: &[Outcome],
        places: &[Place],
        options: &Options,
    ) -> Vec<Record> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let record = |(i, (candidate, outcome)): (usize, (&Candidate, &Outcome))| Record {
            key: self.key.clone(),
            trace: candidate.trace.clone(),
            outcome: outcome.clone(),
            program: candidate.program,
            version: options.version.clone(),
            time: places.get(i).map_or(now, |place| place.time),
            machine: places.get(i).map(|place| place.machine.clone()),
        };
        candidates.iter().zip(outcomes).enumerate().map(record).collect()
    }

    pub(super) fn report(&self) -> TaskReport {
        let failures = Failure::ALL.map(|failure| {
            let of = |o: &&(Candidate, Outcome)| o.1.failure() == Some(failure);
            (failure, self.search.measured.iter().filter(of).count())
        });
        TaskReport {
            name: self.weighted.task.name.clone(),
            nodes: self.weighted.nodes().to_vec(),
            key: self.key.task.clone(),
            weight: self.weighted.weight(),
            flops: self.weighted.flops,
            trials: self.trials,
            untuned: self.default.as_ref().and_then(|d| self.search.outcome(d)?.seconds()),
            best: self.chosen(),
            failures: failures.into_iter().filter(|(_, n)| *n > 0).collect(),
            tried: self.search.refusals.tried(),
            refusals: self.search.refusals.by_reason(),
        }
    }
}
