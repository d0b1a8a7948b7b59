//! Schedules that come with the compiler: what tuning found for the kernels of common networks,
//! where it is surely faster than the untuned schedule.
//!
//! One file for each class of processors, in the form of `ansc records export --chosen`. Schedules
//! hold for the exact subgraph and number of threads that they were measured with; all others get
//! the default one. How the files are made: `scripts/ship`.

use std::collections::BTreeMap;

use ansc_codegen::Target;
use ansc_tuner::Records;
use ansc_tuner::records::{InMemory, Key, jsonl, seconds_of, untuned_program};

use crate::choice::{Origin, Tuned};

/// Processors that share schedules: the features that all have, those that none has, and the
/// schedules.
struct Class {
    with: &'static [&'static str],
    without: &'static [&'static str],
    lines: &'static str,
}

/// Wider vectors and more registers want other tiles.
const CLASSES: [Class; 2] = [
    Class { with: &["avx2", "fma"], without: &["avx512f"], lines: include_str!("x86-64-v3.jsonl") },
    Class {
        with: &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"],
        without: &[],
        lines: include_str!("x86-64-v4.jsonl"),
    },
];

impl Class {
    fn has(&self, target: &Target) -> bool {
        self.with.iter().all(|f| target.has(f)) && !self.without.iter().any(|f| target.has(f))
    }
}

/// What comes for such a processor and number of threads, by [`ansc_sketch::Task::key`].
pub fn schedules(target: &Target, threads: usize) -> BTreeMap<String, Tuned> {
    let class = CLASSES.iter().find(|class| class.has(target));
    let records = class.map(|class| read(class.lines)).unwrap_or_default();
    let keys = records.keys().expect("they are in memory").into_iter();
    keys.filter(|key| key.threads == threads).filter_map(|key| tuned(&records, key)).collect()
}

/// As a file of ours, it is never wrong: a test reads them all.
fn read(lines: &str) -> InMemory {
    let mut records = InMemory::default();
    let done = jsonl::import(&mut lines.as_bytes(), &mut records).expect("memory is read");
    debug_assert_eq!(done.bad, 0, "{:?}", done.bad_lines);
    records
}

fn tuned(records: &InMemory, key: Key) -> Option<(String, Tuned)> {
    let all = records.of(&key).ok()?;
    let untuned = untuned_program(&all)?;
    let (trace, seconds) = records.best(&key, Some(untuned)).ok()??;
    let untuned_seconds = seconds_of(&all, untuned);
    let origin = Origin { machine: key.target, threads: key.threads, shipped: true };
    let against = Some(untuned);
    Some((key.task, Tuned { trace, seconds, untuned_seconds, against, origin }))
}

#[cfg(test)]
mod tests;
