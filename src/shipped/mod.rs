//! Schedules and prices that come with the compiler. Tuning found the schedules, for the kernels of
//! common networks, where they are surely faster than the untuned ones; a model of measurements
//! corrects the prices by which other kernels get theirs, on the kind of processor that taught it.
//!
//! Each class of processors has a file of both. Schedules, in the form of `ansc records export
//! --chosen`, hold for the exact subgraph and number of threads that they were measured with. On
//! another kind of processor of the class than measured them they are taken where prices agree. How
//! the files are made: `scripts/ship`, and `scripts/ship_prices` for the model.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use ansc_codegen::Target;
use ansc_sketch::machine::{Correction, Corrects};
use ansc_tuner::Records;
use ansc_tuner::model::{Corrected, Trained, file};
use ansc_tuner::records::{InMemory, Key, jsonl, seconds_of, untuned_program};

use crate::choice::{Origin, Schedules, Tuned, target_name};

/// Processors that share what comes with the compiler: the features that all have, those that none
/// has, the schedules, and the prices where somebody measured.
struct Class {
    with: &'static [&'static str],
    without: &'static [&'static str],
    lines: &'static str,
    prices: Option<&'static LazyLock<Prices>>,
}

struct Prices {
    model: Arc<Corrected>,
    trained: Trained,
}

static V4_PRICES: LazyLock<Prices> = LazyLock::new(|| {
    let read = file::prices(include_bytes!("x86-64-v4.prices"));
    let (model, trained) = read.expect("a file of ours is sound");
    Prices { model: Arc::new(model), trained }
});

/// Wider vectors and more registers want other tiles.
const CLASSES: [Class; 2] = [
    Class {
        with: &["avx2", "fma"],
        without: &["avx512f"],
        lines: include_str!("x86-64-v3.jsonl"),
        prices: None,
    },
    Class {
        with: &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"],
        without: &[],
        lines: include_str!("x86-64-v4.jsonl"),
        prices: Some(&V4_PRICES),
    },
];

impl Class {
    fn has(&self, target: &Target) -> bool {
        self.with.iter().all(|f| target.has(f)) && !self.without.iter().any(|f| target.has(f))
    }
}

/// The schedules that come with the compiler for such a processor and number of threads, by
/// [`ansc_sketch::Task::key`].
pub fn schedules(target: &Target, threads: usize) -> BTreeMap<String, Tuned> {
    let class = CLASSES.iter().find(|class| class.has(target));
    let records = class.map(|class| read(class.lines)).unwrap_or_default();
    let keys = records.keys().expect("they are in memory").into_iter();
    let of = |key| tuned(&records, key, target);
    keys.filter(|key| key.threads == threads).filter_map(of).collect()
}

impl Schedules {
    /// Takes up what comes with the compiler for such a processor and number of threads.
    pub fn add_shipped(&mut self, target: &Target) {
        if self.aim.is_cpu() {
            self.add(schedules(target, self.threads));
        }
    }
}

/// The model that corrects prices on such a processor; none where nobody has measured.
pub fn prices(target: &Target) -> Correction {
    Correction(model(target).map(|model| model as Arc<dyn Corrects>))
}

/// The same, if processors of this very kind taught it.
pub fn own_prices(target: &Target) -> Correction {
    let kind = format!("{}-", target.tune);
    let taught = |prices: &Prices| prices.trained.platforms.iter().any(|p| p.starts_with(&kind));
    if known(target).is_some_and(taught) { prices(target) } else { Correction::default() }
}

/// The model that comes with the compiler, if there is one for such a processor.
pub fn model(target: &Target) -> Option<Arc<Corrected>> {
    known(target).map(|prices| Arc::clone(&prices.model))
}

fn known(target: &Target) -> Option<&'static Prices> {
    let class = CLASSES.iter().find(|class| class.has(target))?;
    class.prices.map(|prices| &**prices)
}

/// As a file of ours, it is never wrong: a test reads them all.
fn read(lines: &str) -> InMemory {
    let mut records = InMemory::default();
    let done = jsonl::import(&mut lines.as_bytes(), &mut records).expect("memory is read");
    debug_assert_eq!(done.bad, 0, "{:?}", done.bad_lines);
    records
}

fn tuned(records: &InMemory, key: Key, target: &Target) -> Option<(String, Tuned)> {
    let all = records.of(&key).ok()?;
    let untuned = untuned_program(&all)?;
    let (trace, seconds) = records.best(&key, Some(untuned)).ok()??;
    let untuned_seconds = seconds_of(&all, untuned);
    let elsewhere = is_a_class(target) || key.target != target_name(target);
    let origin = Origin { machine: key.target, threads: key.threads, shipped: true, elsewhere };
    let against = Some(untuned);
    Some((key.task, Tuned { trace, seconds, untuned_seconds, against, origin }))
}

/// Whether the target is a class of processors, such as `x86-64-v3`, and no kind.
fn is_a_class(target: &Target) -> bool {
    target.tune.starts_with("x86-64")
}

#[cfg(test)]
mod tests;
