//! Which schedule a kernel gets: the one that tuning found, or the default one.

use std::collections::BTreeMap;
use std::sync::Arc;

use ansc_codegen::Target;
use ansc_graph::Compute;
use ansc_runtime::manifest::Tuning;
use ansc_sketch::default::{Machine, Scheduled};
use ansc_sketch::trace::Unfit;
use ansc_sketch::{Task, Trace};
use ansc_tuner::Records;
use ansc_tuner::records::{Key, RecordsError, untuned_seconds};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// The machine, and what is known to be fast on it.
#[derive(Clone, Debug)]
pub struct Schedules {
    pub machine: Machine,
    /// Threads that tuned schedules are for.
    pub threads: usize,
    /// The best known by [`Task::key`].
    pub tuned: BTreeMap<String, Tuned>,
}

/// What records know of a task.
#[derive(Clone, Debug)]
pub struct Tuned {
    pub trace: Trace,
    pub seconds: f64,
    pub untuned_seconds: Option<f64>,
}

impl Schedules {
    /// The default schedule for every kernel.
    pub fn untuned(target: &Target) -> Schedules {
        let machine =
            Machine { vector_bytes: target.vector_bytes, registers: target.vector_registers };
        Schedules { machine, threads: 1, tuned: BTreeMap::new() }
    }

    pub fn task(&self, name: &str, compute: &Compute, constant: &[bool]) -> Task {
        Task {
            name: name.into(),
            compute: compute.clone(),
            constant: constant.to_vec(),
            machine: self.machine.clone(),
            cores: self.threads,
        }
    }

    /// Looks up the best trace of a task.
    pub fn learn(
        &mut self,
        task: &Task,
        target: &str,
        records: &dyn Records,
    ) -> Result<(), RecordsError> {
        let key = Key { task: task.key(), target: target.into(), threads: self.threads };
        if let Some((trace, seconds)) = records.best(&key)? {
            let untuned_seconds = untuned_seconds(&records.of(&key)?);
            self.tuned.insert(key.task, Tuned { trace, seconds, untuned_seconds });
        }
        Ok(())
    }

    /// A trace that does not replay, which one of another version may not, gives way to the default schedule.
    pub(crate) fn of(
        &self,
        name: &str,
        compute: &Compute,
        constant: &[bool],
    ) -> (Scheduled, Option<Tuning>) {
        let task = Arc::new(self.task(name, compute, constant));
        let tuned = (!self.tuned.is_empty()).then(|| {
            let tuned = self.tuned.get(&task.key())?;
            let random = &mut StdRng::seed_from_u64(0);
            let sample = task.sample(&tuned.trace, Unfit::Refuse, random).ok()?;
            Some((sample.scheduled, Some(tuned.tuning(&task))))
        });
        tuned.flatten().unwrap_or_else(|| (task.default_schedule(), None))
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

/// What a record was measured on: schedules of one processor are not those of another.
pub fn target_name(target: &Target) -> String {
    let info = target.info();
    format!("{} {} {}", info.triple, target.tune, info.features.join(" "))
}
