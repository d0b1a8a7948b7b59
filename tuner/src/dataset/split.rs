//! Which tasks a model does not see while it is trained.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Entry;

/// Tasks by their keys, each in one of the lists.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Split {
    /// The tasks that models are trained on.
    pub train: BTreeSet<String>,
    /// The tasks that models are judged by.
    pub test: BTreeSet<String>,
}

impl Split {
    /// Holds out the tasks of these networks; without networks this share of all tasks. A task that
    /// another network has as well is held out all the same.
    pub fn of(entries: &[Entry], networks: &[String], share: f64, seed: u64) -> Split {
        let mut order: Vec<&Entry> = entries.iter().collect();
        order.sort_by_key(|e| (xxh3_64_with_seed(e.key.as_bytes(), seed), &e.key));
        let count = (share.clamp(0.0, 1.0) * order.len() as f64).round() as usize;
        let is_held_out = |place: usize, entry: &Entry| match networks.is_empty() {
            true => place < count,
            false => networks.iter().any(|n| entry.networks.contains_key(n)),
        };
        let mut split = Split::default();
        for (place, entry) in order.into_iter().enumerate() {
            let list = if is_held_out(place, entry) { &mut split.test } else { &mut split.train };
            list.insert(entry.key.clone());
        }
        split
    }
}
