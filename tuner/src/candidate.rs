//! Candidates, and what a search of one task knows.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ansc_sketch::features::{Features, features, features_on};
use ansc_sketch::rules::Sketch;
use ansc_sketch::sample::Sample;
use ansc_sketch::trace::{TraceError, Unfit};
use ansc_sketch::{Choice, Machine, Scheduled, Task, Trace};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::model::{Needs, Sample as Measured, Subject, View};
use crate::outcome::Outcome;
use crate::refusal::Refusals;

/// A schedule that might be measured.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// With all its decisions.
    pub trace: Trace,
    /// The program that the trace makes.
    pub scheduled: Scheduled,
    /// The features of the program, made when somebody asks for them first.
    features: OnceLock<Arc<Features>>,
    /// The machine that it is priced for; none for GPUs.
    machine: Option<Machine>,
    /// [`code_hash`](ansc_sketch::Program::code_hash) of the program: traces that become the same
    /// code are one candidate.
    pub program: u64,
}

impl Candidate {
    /// Replays a trace; what is undecided or does not fit is drawn. None if the trace is invalid.
    pub fn of(task: &Arc<Task>, trace: &Trace, random: &mut dyn Rng) -> Option<Candidate> {
        task.sample(trace, Unfit::Resample, random).ok().map(|sample| Candidate::new(task, sample))
    }

    /// Replays a trace of a task of the same structure and another shape. What does not fit is made
    /// to.
    pub fn adapted(task: &Arc<Task>, trace: &Trace) -> Option<Candidate> {
        let random = &mut StdRng::seed_from_u64(0);
        task.sample(trace, Unfit::Adapt, random).ok().map(|sample| Candidate::new(task, sample))
    }

    /// Replays a trace with exactly the decisions that it has.
    pub fn exactly(task: &Arc<Task>, trace: &Trace) -> Option<Candidate> {
        let random = &mut StdRng::seed_from_u64(0);
        task.sample(trace, Unfit::Refuse, random).ok().map(|sample| Candidate::new(task, sample))
    }
}

impl Candidate {
    /// A sample of the task.
    pub fn new(task: &Task, sample: Sample) -> Candidate {
        let Sample { trace, scheduled } = sample;
        let machine = task.gpu.is_none().then(|| task.machine.clone());
        let program = scheduled.program.code_hash();
        Candidate { trace, scheduled, features: OnceLock::new(), machine, program }
    }

    /// A schedule of the task that needs no search.
    pub fn of_choice(task: &Task, Choice { sketch, scheduled, .. }: Choice) -> Candidate {
        Candidate::new(task, Sample { trace: sketch.trace, scheduled })
    }

    /// The program as cost models see it.
    pub fn features(&self) -> &Arc<Features> {
        let program = &self.scheduled.program;
        let made = || match &self.machine {
            Some(machine) => features_on(program, machine),
            None => features(program),
        };
        self.features.get_or_init(|| Arc::new(made()))
    }

    /// The candidate as a model sees it that needs this much.
    pub fn view<'a>(&'a self, subject: &'a Subject, needs: Needs) -> View<'a> {
        let features = (needs == Needs::Program).then(|| self.features().as_ref());
        View { subject, trace: &self.trace, features }
    }
}

/// The search of one task: its space, and what was measured.
pub struct Search {
    /// The task that is searched.
    pub task: Arc<Task>,
    /// The task as models see it.
    pub subject: Arc<Subject>,
    /// The first is the untuned schedule's.
    pub sketches: Vec<Sketch>,
    /// In the order of measurement.
    pub measured: Vec<(Candidate, Outcome)>,
    /// How many traces were tried, and how many of them make no program.
    pub refusals: Refusals,
    /// Where in `measured` a program is.
    index: HashMap<u64, usize>,
}

impl Search {
    /// A search that has measured nothing.
    pub fn new(task: Arc<Task>) -> Search {
        let sketches = task.sketches();
        let subject = Arc::new(Subject::of(&task));
        let refusals = Refusals::default();
        Search { task, subject, sketches, measured: vec![], refusals, index: HashMap::new() }
    }

    /// As [`Candidate::of`], but that it counts what is tried and refused.
    pub fn replay(&self, trace: &Trace, random: &mut dyn Rng) -> Option<Candidate> {
        self.counted(self.task.sample(trace, Unfit::Resample, random))
    }

    /// As [`Candidate::exactly`], but that it counts what is tried and refused.
    pub fn replay_exactly(&self, trace: &Trace) -> Option<Candidate> {
        let random = &mut StdRng::seed_from_u64(0);
        self.counted(self.task.sample(trace, Unfit::Refuse, random))
    }

    fn counted(&self, made: Result<Sample, TraceError>) -> Option<Candidate> {
        self.refusals.count(made).map(|sample| Candidate::new(&self.task, sample))
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

    /// Adds a measurement. Those of one program are pooled: its times are those of all of them, and
    /// it failed if one did.
    pub fn add(&mut self, candidate: &Candidate, outcome: Outcome) {
        match self.index.get(&candidate.program) {
            Some(&at) => self.measured[at].1.pool(outcome),
            None => {
                self.index.insert(candidate.program, self.measured.len());
                self.measured.push((candidate.clone(), outcome));
            }
        }
    }

    /// The measured candidates as samples for a model that needs this much. All samples of one task
    /// have its number.
    pub fn samples(&self, task: usize, needs: Needs) -> impl Iterator<Item = Measured> {
        self.measured.iter().map(move |(c, o)| self.sample(task, c, o, needs))
    }

    /// A candidate of this search that was measured, for a model that needs this much.
    pub fn sample(
        &self,
        task: usize,
        candidate: &Candidate,
        outcome: &Outcome,
        needs: Needs,
    ) -> Measured {
        Measured {
            task,
            platform: 0,
            subject: self.subject.clone(),
            trace: Arc::new(candidate.trace.clone()),
            features: (needs == Needs::Program).then(|| candidate.features().clone()),
            seconds: outcome.seconds(),
        }
    }

    /// The candidate of the least time.
    pub fn best(&self) -> Option<(&Candidate, f64)> {
        let timed = self.measured.iter().filter_map(|(c, o)| Some((c, o.seconds()?)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}
