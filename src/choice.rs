//! Which schedule a kernel gets: the one that tuning found, or the default one.

use std::collections::BTreeMap;
use std::sync::Arc;

use ansc_codegen::Target;
use ansc_graph::Compute;
use ansc_runtime::manifest::Tuning;
use ansc_sketch::default::{Machine, Scheduled, gpu_schedule};
use ansc_sketch::gpu::{self, GpuLimits, GpuProgram};
use ansc_sketch::trace::Unfit;
use ansc_sketch::{Task, Trace, finish};
use ansc_tuner::Records;
use ansc_tuner::candidate::Candidate;
use ansc_tuner::records::{Key, RecordsError, seconds_of};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::Error;
use crate::shipped;

/// The machine, and what is known to be fast on it.
#[derive(Clone, Debug)]
pub struct Schedules {
    pub machine: Machine,
    /// Threads that tuned schedules are for.
    pub threads: usize,
    /// The best known by [`Task::key`].
    pub tuned: BTreeMap<String, Tuned>,
    pub aim: Aim,
    /// Only such as store weights in no more room than they take: less memory, for more time.
    pub small: bool,
}

/// What records know of a task.
#[derive(Clone, Debug)]
pub struct Tuned {
    pub trace: Trace,
    pub seconds: f64,
    pub untuned_seconds: Option<f64>,
}

/// What kernels are scheduled for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Aim {
    Cpu,
    /// Kernels become code with their schedules (see `machine_code`); until then they stay naive.
    Gpu(GpuLimits),
    /// Schedules of a GPU in their form for this CPU: slow, for checking.
    GpuOnCpu(GpuLimits),
}

impl Aim {
    /// What a GPU allows, if the schedules are for one.
    pub fn gpu(&self) -> Option<&GpuLimits> {
        match self {
            Aim::Cpu => None,
            Aim::Gpu(limits) | Aim::GpuOnCpu(limits) => Some(limits),
        }
    }
}

impl Schedules {
    /// The default schedule for every kernel.
    pub fn untuned(target: &Target) -> Schedules {
        let machine =
            Machine { vector_bytes: target.vector_bytes, registers: target.vector_registers };
        Schedules { machine, threads: 1, tuned: BTreeMap::new(), aim: Aim::Cpu, small: false }
    }

    pub fn task(&self, name: &str, compute: &Compute, constant: &[bool]) -> Task {
        Task {
            name: name.into(),
            compute: compute.clone(),
            constant: constant.to_vec(),
            machine: self.machine.clone(),
            cores: self.threads,
            gpu: self.aim.gpu().cloned(),
        }
    }

    /// Looks up what is better than the default schedule of a task.
    pub fn learn(
        &mut self,
        task: &Arc<Task>,
        target: &str,
        records: &dyn Records,
    ) -> Result<(), RecordsError> {
        let key = Key { task: task.key(), target: target.into(), threads: self.threads };
        let untuned = Candidate::exactly(task, &task.untuned()).map(|c| c.program);
        if let Some((trace, seconds)) = records.best(&key, untuned)? {
            let untuned_seconds = untuned.map(|p| Ok(seconds_of(&records.of(&key)?, p)));
            let untuned_seconds = untuned_seconds.transpose()?.flatten();
            self.tuned.insert(key.task, Tuned { trace, seconds, untuned_seconds });
        }
        Ok(())
    }

    /// Takes up what comes with the compiler for such a processor and number of threads.
    pub fn add_shipped(&mut self, target: &Target) {
        if self.aim == Aim::Cpu {
            self.tuned.extend(shipped::schedules(target, self.threads));
        }
    }

    /// A trace that does not replay, which one of another version may not, gives way to the default schedule.
    pub(crate) fn of(
        &self,
        name: &str,
        compute: &Compute,
        constant: &[bool],
    ) -> Result<(Scheduled, Option<Tuning>), Error> {
        let unpacked = |program| Scheduled { program, packings: vec![] };
        let learned = self.learned(name, compute, constant);
        match &self.aim {
            Aim::Gpu(_) => {
                Ok((unpacked(ansc_sketch::lower(name, compute)), learned.map(|(_, tuning)| tuning)))
            }
            Aim::GpuOnCpu(limits) => {
                let kernels = self.for_gpu(name, compute, constant, limits)?;
                Ok((unpacked(finish(kernels.cpu_form())), None))
            }
            Aim::Cpu => Ok(match learned {
                Some((scheduled, tuning)) => (scheduled, Some(tuning)),
                None => (self.default(&self.task(name, compute, constant)), None),
            }),
        }
    }

    fn default(&self, task: &Task) -> Scheduled {
        let preferred = task.default_schedule();
        if self.allows(&preferred) { preferred } else { task.small_schedule() }
    }

    fn allows(&self, scheduled: &Scheduled) -> bool {
        !self.small || !scheduled.enlarges()
    }

    /// The kernels of a GPU for one subgraph.
    pub(crate) fn for_gpu(
        &self,
        name: &str,
        compute: &Compute,
        constant: &[bool],
        limits: &GpuLimits,
    ) -> Result<GpuProgram, Error> {
        let learned = self.learned(name, compute, constant);
        let lowered = learned.and_then(|(s, _)| gpu::lower(&s.program, limits).ok());
        let failed = |e| Error::Machine(format!("kernel {name}: {e}"));
        lowered.map_or_else(|| gpu_schedule(name, compute, limits).map_err(failed), Ok)
    }

    /// What tuning found, if it still replays.
    fn learned(
        &self,
        name: &str,
        compute: &Compute,
        constant: &[bool],
    ) -> Option<(Scheduled, Tuning)> {
        if self.tuned.is_empty() {
            return None;
        }
        let task = Arc::new(self.task(name, compute, constant));
        let tuned = self.tuned.get(&task.key())?;
        let random = &mut StdRng::seed_from_u64(0);
        let sample = task.sample(&tuned.trace, Unfit::Refuse, random).ok()?;
        self.allows(&sample.scheduled).then_some(())?;
        Some((sample.scheduled, tuned.tuning(&task)))
    }
}

impl Tuned {
    fn tuning(&self, task: &Arc<Task>) -> Tuning {
        Tuning {
            trace: serde_json::to_value(&self.trace).expect("traces are data"),
            steps: self.trace.in_words(),
            rules: rules_of(task, &self.trace),
            seconds: self.seconds,
            untuned_seconds: self.untuned_seconds,
        }
    }
}

/// The rules that derived the sketch of a trace; none if it is none of the task's.
pub fn rules_of(task: &Arc<Task>, trace: &Trace) -> Vec<String> {
    let sketch = task.sketches().into_iter().find(|s| s.trace.same_sketch(trace));
    sketch.map_or(vec![], |s| s.rules)
}

/// What records of a generation of GPUs are filed under.
pub fn gpu_name(sm: u32) -> String {
    format!("nvptx64-nvidia-cuda sm_{sm}")
}

/// What a record was measured on: schedules of one processor are not those of another.
pub fn target_name(target: &Target) -> String {
    let info = target.info();
    format!("{} {} {}", info.triple, target.tune, info.features.join(" "))
}

/// The same for kernels that had to fetch their constants from memory.
pub fn cold_target_name(target: &Target) -> String {
    format!("{} with cold constants", target_name(target))
}
