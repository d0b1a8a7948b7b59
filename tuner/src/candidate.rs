//! Candidates, and what a search of one task knows.

use std::collections::HashMap;
use std::sync::Arc;

use ansc_sketch::default::Scheduled;
use ansc_sketch::features::{Features, features};
use ansc_sketch::rules::Sketch;
use ansc_sketch::task::Sample;
use ansc_sketch::trace::Unfit;
use ansc_sketch::{Task, Trace};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::outcome::Outcome;

/// A schedule that might be measured.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// With all its decisions.
    pub trace: Trace,
    /// The program that the trace makes.
    pub scheduled: Scheduled,
    /// The program as cost models see it.
    pub features: Arc<Features>,
    /// Structural hash of the program: traces that make the same program are one candidate.
    pub program: u64,
}

impl Candidate {
    /// Replays a trace; what is undecided or does not fit is drawn. None if the trace is invalid.
    pub fn of(task: &Arc<Task>, trace: &Trace, random: &mut dyn Rng) -> Option<Candidate> {
        task.sample(trace, Unfit::Resample, random).ok().map(Candidate::from)
    }

    /// Replays a trace of a task of the same structure and another shape. What does not fit is made to.
    pub fn adapted(task: &Arc<Task>, trace: &Trace) -> Option<Candidate> {
        let random = &mut StdRng::seed_from_u64(0);
        task.sample(trace, Unfit::Adapt, random).ok().map(Candidate::from)
    }

    /// Replays a trace with exactly the decisions that it has.
    pub fn exactly(task: &Arc<Task>, trace: &Trace) -> Option<Candidate> {
        let random = &mut StdRng::seed_from_u64(0);
        task.sample(trace, Unfit::Refuse, random).ok().map(Candidate::from)
    }
}

impl From<Sample> for Candidate {
    fn from(sample: Sample) -> Candidate {
        let program = sample.scheduled.program.structural_hash();
        let features = Arc::new(features(&sample.scheduled.program));
        Candidate { trace: sample.trace, scheduled: sample.scheduled, features, program }
    }
}

/// The search of one task: its space, and what was measured.
pub struct Search {
    /// The task that is searched.
    pub task: Arc<Task>,
    /// The first is the default schedule's.
    pub sketches: Vec<Sketch>,
    /// In the order of measurement.
    pub measured: Vec<(Candidate, Outcome)>,
    /// Where in `measured` a program is.
    index: HashMap<u64, usize>,
}

impl Search {
    /// A search that has measured nothing.
    pub fn new(task: Arc<Task>) -> Search {
        let sketches = task.sketches();
        Search { task, sketches, measured: vec![], index: HashMap::new() }
    }

    /// Whether the candidate's program was measured.
    pub fn is_seen(&self, candidate: &Candidate) -> bool {
        self.is_program_seen(candidate.program)
    }

    /// As [`Candidate::program`].
    pub fn is_program_seen(&self, program: u64) -> bool {
        self.index.contains_key(&program)
    }

    /// The pooled outcome of the candidate's program, if it was measured.
    pub fn outcome(&self, candidate: &Candidate) -> Option<&Outcome> {
        self.index.get(&candidate.program).map(|&at| &self.measured[at].1)
    }

    /// Adds a measurement. Those of one program are pooled: its times are those of all of them, and it failed if
    /// one did.
    pub fn add(&mut self, candidate: &Candidate, outcome: Outcome) {
        match self.index.get(&candidate.program) {
            Some(&at) => self.measured[at].1.pool(outcome),
            None => {
                self.index.insert(candidate.program, self.measured.len());
                self.measured.push((candidate.clone(), outcome));
            }
        }
    }

    /// The candidate of the least time.
    pub fn best(&self) -> Option<(&Candidate, f64)> {
        let timed = self.measured.iter().filter_map(|(c, o)| Some((c, o.seconds()?)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}
