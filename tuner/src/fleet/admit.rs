//! Whether a job may run here. Everything that it says is checked before anything of it is built.
//!
//! ```text
//! bytes -> size -> kind, limits -> subgraph, verifier | trace -> the program that the tuner made
//!                                        [`Gate`]     | [`Promise`], just before it is built
//! ```
//!
//! The tuner is told of each job that is refused, with both sides named.

use std::sync::Arc;

use ansc_graph::{Compute, cost, verify};
use ansc_sketch::Machine;
use ansc_sketch::task::Sums;
use ansc_sketch::{Task, Trace};

use super::kind::Kind;
use super::promise::Promise;
use super::wire::{self, Job, TaskText};

/// Stages and inputs of a subgraph.
const MOST_STAGES: usize = 1024;
/// Bytes of everything that a subgraph reads and computes.
const MOST_TENSORS: usize = 8 << 30;
/// Operations of one run.
const MOST_FLOPS: u64 = 1 << 44;
/// Seconds that a job may ask for, building and running.
const LONGEST: f64 = 120.0;
/// And timing.
const LONGEST_TIMING: f64 = 10.0;
/// Bytes that may follow the name of a target.
const LONGEST_SUFFIX: usize = 64;
/// Subgraphs that are kept for the next jobs.
const KEPT: usize = 16;

/// A job that may run if its candidate is what it promises.
#[derive(Clone, Debug)]
pub(super) struct Admitted {
    pub(super) job: Job,
    /// Length of the message.
    pub(super) bytes: usize,
    pub(super) candidate: Arc<Promise>,
    /// It was replayed, and is what it promises.
    pub(super) baseline: Option<Arc<Promise>>,
    /// How often it was begun by workers that did not come to its end.
    pub(super) tries: usize,
}

/// Why a job may not run; without the job if it cannot even be answered.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) job: Option<Box<Job>>,
    pub(super) reason: String,
}

/// A subgraph that jobs were about, and the baseline that it was last measured with.
struct Known {
    text: TaskText,
    key: String,
    task: Arc<Task>,
    baseline: Option<Arc<Promise>>,
}

impl Known {
    /// All jobs of a round have the same: it is replayed once.
    fn baseline(&mut self, trace: &Trace, program: &str) -> Result<Arc<Promise>, String> {
        let kept = self.baseline.as_ref().filter(|kept| kept.is_of(trace, program));
        if let Some(kept) = kept {
            return Ok(kept.clone());
        }
        let promise = Arc::new(Promise::new(&self.task, trace, program)?);
        promise.candidate()?;
        self.baseline = Some(promise.clone());
        Ok(promise)
    }
}

/// Admits jobs for one kind of machine.
pub(super) struct Gate {
    kind: Kind,
    machine: Machine,
    known: Vec<Known>,
}

impl Gate {
    pub(super) fn new(kind: Kind, machine: Machine) -> Gate {
        Gate { kind, machine, known: vec![] }
    }

    /// Checks everything but the trace, which its promise replays.
    pub(super) fn admit(&mut self, bytes: &[u8]) -> Result<Admitted, Refusal> {
        let job: Job = wire::parse(bytes).map_err(|reason| Refusal { job: None, reason })?;
        let is_word = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit())
        };
        if !is_word(&job.tuner, 16) || !is_word(&job.id, 32) {
            return Err(Refusal { job: None, reason: "its tuner or its name is no word".into() });
        }
        match self.check(&job) {
            Ok((candidate, baseline)) => {
                let (bytes, candidate) = (bytes.len(), Arc::new(candidate));
                Ok(Admitted { job, bytes, candidate, baseline, tries: 0 })
            }
            Err(reason) => Err(Refusal { job: Some(Box::new(job)), reason }),
        }
    }

    fn check(&mut self, job: &Job) -> Result<(Promise, Option<Arc<Promise>>), String> {
        let differences = self.kind.differences(&job.kind);
        if !differences.is_empty() {
            let both = differences.join(", ");
            return Err(format!(
                "it is for another kind of machine: {both} (here is the worker, there the tuner)"
            ));
        }
        self.check_words(job)?;
        let known = self.known(&job.task)?;
        if known.key != job.key {
            let (here, there) = (&known.key, job.key.escape_debug());
            return Err(format!("its subgraph is {here} here and {there} where the tuner runs"));
        }
        let baseline = match &job.baseline {
            Some(b) if !(b.seconds.is_finite() && b.seconds > 0.0) => {
                return Err(format!("its baseline takes {} s", b.seconds));
            }
            Some(b) => Some(known.baseline(&b.trace, &b.program)?),
            None => None,
        };
        let candidate = Promise::new(&known.task, &job.trace, &job.program)?;
        Ok((candidate, baseline))
    }

    fn check_words(&self, job: &Job) -> Result<(), String> {
        let suffix = job.target.strip_prefix(&self.kind.target);
        if suffix.is_none_or(|suffix| suffix.len() > LONGEST_SUFFIX) {
            return Err("its records would be filed under another machine".into());
        }
        let how = &job.how;
        let within = |seconds: f64, most: f64| seconds > 0.0 && seconds <= most;
        let limits = [how.build_seconds, how.run_seconds];
        if !limits.iter().all(|s| within(*s, LONGEST)) || !within(how.seconds, LONGEST_TIMING) {
            return Err(format!(
                "it asks for {} s of building, {} s of running and {} s of timing; {LONGEST} s, {LONGEST} s and \
                 {LONGEST_TIMING} s are the most",
                how.build_seconds, how.run_seconds, how.seconds
            ));
        }
        Ok(())
    }

    fn known(&mut self, text: &TaskText) -> Result<&mut Known, String> {
        if let Some(at) = self.known.iter().position(|known| known.text == *text) {
            return Ok(&mut self.known[at]);
        }
        self.check_machine(text)?;
        let compute = compute(&text.compute)?;
        if compute.inputs.len() != text.constant.len() {
            return Err("its subgraph has another number of inputs than is said".into());
        }
        let task = Arc::new(Task {
            wishes: Default::default(),
            name: text.name.chars().take(256).collect(),
            compute,
            constant: text.constant.clone(),
            machine: text.machine(),
            cores: text.cores,
            gpu: text.limits(),
            sums: if text.accurate { Sums::Direct } else { Sums::Any },
        });
        if self.known.len() >= KEPT {
            self.known.remove(0);
        }
        let (text, key) = (text.clone(), task.key());
        self.known.push(Known { text, key, task, baseline: None });
        Ok(self.known.last_mut().expect("just pushed"))
    }

    /// Schedules are for this machine, or use less of it.
    fn check_machine(&self, text: &TaskText) -> Result<(), String> {
        let (own, asked) = (&self.machine, text.machine());
        let units = |m: &Machine| [m.units.amx_bf16, m.units.amx_int8, m.units.mma];
        let has = units(&asked).iter().zip(units(own)).all(|(asked, own)| own || !asked);
        let fits = asked.vector_bytes == own.vector_bytes && asked.registers == own.registers;
        if !has || !fits {
            return Err(format!("its schedule is for {asked:?}, and the worker is {own:?}"));
        }
        if text.cores != self.kind.threads || text.gpu.is_some() != self.kind.gpu.is_some() {
            return Err(format!(
                "its schedule is for {} threads{}, and the worker measures with {}",
                text.cores,
                if text.gpu.is_some() { " of a GPU" } else { "" },
                self.kind.threads
            ));
        }
        Ok(())
    }
}

/// A subgraph that holds together and is not too large.
fn compute(text: &str) -> Result<Compute, String> {
    let compute = Compute::parse(text).map_err(|e| format!("its subgraph: {e}"))?;
    if compute.stages.len() > MOST_STAGES || compute.inputs.len() > MOST_STAGES {
        return Err(format!("its subgraph has more than {MOST_STAGES} stages or inputs"));
    }
    verify::verify_compute(&compute).map_err(|all| {
        let first = all.first().map_or_else(String::new, ToString::to_string);
        format!("its subgraph does not hold together: {first}")
    })?;
    let sizes = compute.inputs.iter().chain(compute.stages.iter().map(|s| &s.ty));
    let bytes = sizes.map(|ty| ty.bytes()).try_fold(0usize, usize::checked_add);
    if bytes.is_none_or(|bytes| bytes > MOST_TENSORS) {
        return Err(format!("its tensors take more than {MOST_TENSORS} bytes"));
    }
    let flops = cost::flops(&compute);
    if flops > MOST_FLOPS {
        return Err(format!("it has {flops} operations; {MOST_FLOPS} are the most"));
    }
    Ok(compute)
}
