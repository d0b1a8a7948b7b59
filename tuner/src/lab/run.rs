//! One strategy with one seed.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use ansc_sketch::Task;

use super::tag::{Tag, When, rounded};
use super::{Contender, LabError, Options};
use crate::candidate::{Candidate, Search};
use crate::model::{self, CostModel, Known, Sample, SharedModel};
use crate::outcome::Outcome;
use crate::records::Record;
use crate::strategy::SearchStrategy;

/// The model learns anew when so many times as many samples are known as it has learned from.
const GROWTH: f64 = 1.2;

/// One measurement of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trial {
    /// None of a candidate that failed.
    pub seconds: Option<f64>,
    /// Seconds since the run began, other runs' turns not counted.
    pub at: f64,
}

/// The model that a run begins with.
fn model(
    contender: &Contender,
    options: &Options,
    seed: u64,
) -> Result<Box<dyn CostModel>, LabError> {
    if let (Some(path), None) = (&options.plan.trained, &contender.cost_model) {
        let failed = |cause| LabError::Trained { path: path.clone(), cause };
        let (model, _) = model::file::load(path).map_err(failed)?;
        return Ok(Box::new(Known(model)));
    }
    Ok(contender.cost_model.unwrap_or(options.plan.cost_model).create(seed))
}

/// One search by one strategy with one seed.
pub struct Run {
    pub(super) tag: Tag,
    pub(super) search: Search,
    strategy: Box<dyn SearchStrategy>,
    model: SharedModel,
    learned: usize,
    /// The outcomes of this run that are in records already, by program, with the seconds since it
    /// began.
    recorded: BTreeMap<u64, (Outcome, f64)>,
    settled: BTreeMap<u64, Outcome>,
    pub(super) trials: Vec<Trial>,
    /// Seconds since the run began.
    pub(super) clock: f64,
    pub(super) searching: f64,
    exhausted: bool,
}

impl Run {
    pub(super) fn new(
        task: &Arc<Task>,
        contender: &Contender,
        seed: u64,
        options: &Options,
        known: &[Record],
    ) -> Result<Run, LabError> {
        let model: SharedModel = Arc::new(RwLock::new(model(contender, options, seed)?));
        let strategy = contender.strategy.create(&model, seed);
        let mut search = Search::new(task.clone());
        search.sketches = contender.space.as_ref().unwrap_or(&options.plan.space).sketches(task)?;
        let tag =
            Tag { space: options.plan.space.to_string(), strategy: contender.to_string(), seed };
        let mut run = Run {
            tag,
            search,
            strategy,
            model,
            learned: 0,
            recorded: BTreeMap::new(),
            settled: BTreeMap::new(),
            trials: vec![],
            clock: 0.0,
            searching: 0.0,
            exhausted: false,
        };
        known.iter().for_each(|record| run.recall(record));
        Ok(run)
    }

    fn recall(&mut self, record: &Record) {
        let outcome = rounded(record.outcome.clone());
        match self.tag.when(&record.version) {
            Some(When::Settled) => self.settle(record.program, outcome),
            Some(When::Seconds(at)) => drop(self.recorded.insert(record.program, (outcome, at))),
            None => {}
        }
    }

    /// The name of the strategy, with what it has of its own.
    pub fn strategy(&self) -> &str {
        &self.tag.strategy
    }

    /// The seed of its random choices.
    pub fn seed(&self) -> u64 {
        self.tag.seed
    }

    /// Its measurements so far, in order.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// The least time that was measured.
    pub fn best(&self) -> Option<f64> {
        self.trials.iter().filter_map(|t| t.seconds).min_by(f64::total_cmp)
    }

    /// The result of the run: the best time of the programs that were measured again. If there are
    /// none, it is the best time of all.
    pub fn result(&self) -> Option<f64> {
        let again = self.settled.values().filter_map(Outcome::seconds).min_by(f64::total_cmp);
        again.or(self.best())
    }

    pub(super) fn is_done(&self, trials: usize) -> bool {
        self.exhausted || self.trials.len() >= trials
    }

    pub(super) fn is_recorded(&self, candidate: &Candidate) -> bool {
        self.recorded.contains_key(&candidate.program)
    }

    pub(super) fn is_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    pub(super) fn propose(&mut self, options: &Options) -> Vec<Candidate> {
        let start = Instant::now();
        let n = options.plan.per_round.max(1).min(options.plan.trials - self.trials.len());
        let proposed = self.strategy.propose(&self.search, n);
        self.exhausted = proposed.is_empty();
        self.add_search_time(start);
        proposed
    }

    fn add_search_time(&mut self, start: Instant) {
        let seconds = start.elapsed().as_secs_f64();
        self.searching += seconds;
        self.clock += seconds;
    }

    /// Takes up the outcomes of a round, those of `new` as they were measured.
    pub(super) fn learn(&mut self, round: &[Candidate], new: &[Candidate], outcomes: &[Outcome]) {
        let measured = new.iter().zip(outcomes);
        let mut measured: BTreeMap<u64, Outcome> =
            measured.map(|(c, o)| (c.program, o.clone())).collect();
        let mut clock = self.clock;
        for candidate in round {
            let recorded = || self.recorded.get(&candidate.program).cloned();
            let (outcome, at) = match measured.remove(&candidate.program) {
                Some(outcome) => (outcome, self.clock),
                None => recorded().expect("what was not measured was recorded"),
            };
            clock = clock.max(at);
            self.trials.push(Trial { seconds: outcome.seconds(), at: clock });
            self.search.add(candidate, outcome);
        }
        self.clock = clock;
        let start = Instant::now();
        self.train();
        self.add_search_time(start);
    }

    fn train(&mut self) {
        let known = self.search.measured.len();
        if (known as f64) < self.learned as f64 * GROWTH || known == 0 {
            return;
        }
        self.learned = known;
        let mut model = self.model.write().unwrap_or_else(PoisonError::into_inner);
        let samples: Vec<Sample> = self.search.samples(0, model.needs()).collect();
        model.train(&samples);
    }

    pub(super) fn leaders(&self, n: usize) -> Vec<Candidate> {
        let timed = self.search.measured.iter().filter_map(|(c, o)| Some((o.seconds()?, c)));
        let mut timed: Vec<(f64, &Candidate)> = timed.collect();
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        timed.into_iter().take(n).map(|(_, c)| c.clone()).collect()
    }

    pub(super) fn settle(&mut self, program: u64, outcome: Outcome) {
        match self.settled.get_mut(&program) {
            Some(known) => known.pool(outcome),
            None => drop(self.settled.insert(program, outcome)),
        }
    }
}
