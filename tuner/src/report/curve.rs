//! The best time so far against the measurements made.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::outcome::Outcome;
use crate::records::Record;

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Point {
    /// How many were made.
    pub measurements: usize,
    pub seconds: f64,
}

/// The points at which the best time changes, and the last one.
///
/// All measurements of a program so far are taken together, so the best time may also rise: when what seemed
/// fast is measured again and was luck, or is found to be wrong.
pub fn curve(records: &[Record]) -> Vec<Point> {
    let mut programs: BTreeMap<u64, Outcome> = BTreeMap::new();
    // The bits of positive numbers are ordered as they are.
    let mut times: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut points: Vec<Point> = vec![];
    for (i, record) in records.iter().enumerate() {
        let entry = |o: &Outcome| o.seconds().map(|s| (s.to_bits(), record.program));
        match programs.get_mut(&record.program) {
            Some(pooled) => {
                entry(pooled).map(|old| times.remove(&old));
                pooled.pool(record.outcome.clone());
                times.extend(entry(pooled));
            }
            None => {
                times.extend(entry(&record.outcome));
                programs.insert(record.program, record.outcome.clone());
            }
        }
        let Some(&(bits, _)) = times.first() else { continue };
        let seconds = f64::from_bits(bits);
        let last = i + 1 == records.len();
        if last || points.last().is_none_or(|p| p.seconds != seconds) {
            points.push(Point { measurements: i + 1, seconds });
        }
    }
    points
}
