//! Which schedule a kernel gets: the one that tuning found, or the default one.

use std::collections::BTreeMap;
use std::sync::Arc;

use ansc_codegen::Target;
use ansc_graph::Compute;
use ansc_sketch::default::{Machine, Scheduled};
use ansc_sketch::trace::Unfit;
use ansc_sketch::{Task, Trace};
use ansc_tuner::Records;
use ansc_tuner::records::{Key, RecordsError};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// The machine, and what is known to be fast on it.
#[derive(Clone, Debug)]
pub struct Schedules {
    pub machine: Machine,
    /// Threads that tuned schedules are for.
    pub threads: usize,
    /// The best trace by [`Task::key`].
    pub tuned: BTreeMap<String, Trace>,
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
        if let Some((trace, _)) = records.best(&key)? {
            self.tuned.insert(key.task, trace);
        }
        Ok(())
    }

    /// A trace that does not replay, which one of another version may not, gives way to the default schedule.
    pub(crate) fn of(&self, name: &str, compute: &Compute, constant: &[bool]) -> Scheduled {
        let default = || ansc_sketch::default::schedule(name, compute, constant, &self.machine);
        if self.tuned.is_empty() {
            return default();
        }
        let task = Arc::new(self.task(name, compute, constant));
        let Some(trace) = self.tuned.get(&task.key()) else { return default() };
        let random = &mut StdRng::seed_from_u64(0);
        task.sample(trace, Unfit::Refuse, random).map_or_else(|_| default(), |s| s.scheduled)
    }
}

/// What a record was measured on: schedules of one processor are not those of another.
pub fn target_name(target: &Target) -> String {
    let info = target.info();
    format!("{} {} {}", info.triple, target.tune, info.features.join(" "))
}
