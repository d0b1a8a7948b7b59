//! The best that a search came across.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::point::Point;

/// The candidates of the highest scores, each once.
pub(super) struct Top {
    most: usize,
    /// By score, then by identity, so that the order is the same every time.
    kept: BTreeMap<(OrderedScore, u64), Arc<Point>>,
    known: HashSet<u64>,
}

#[derive(Clone, Copy, PartialEq)]
struct OrderedScore(f32);

impl Eq for OrderedScore {}

impl PartialOrd for OrderedScore {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedScore {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Top {
    pub(super) fn new(most: usize) -> Top {
        Top { most, kept: BTreeMap::new(), known: HashSet::new() }
    }

    pub(super) fn offer(&mut self, candidate: &Arc<Point>, score: f32) {
        if !self.known.insert(candidate.id) {
            return;
        }
        self.kept.insert((OrderedScore(score), candidate.id), candidate.clone());
        if self.kept.len() > self.most {
            self.kept.pop_first();
        }
    }

    pub(super) fn into_best(self) -> Vec<Arc<Point>> {
        self.kept.into_values().rev().collect()
    }
}
