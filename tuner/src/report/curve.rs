//! The best time so far against the measurements made.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::outcome::Outcome;
use crate::records::Record;

/// The best time after some measurements.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Point {
    /// How many were made.
    pub measurements: usize,
    /// Seconds of the best schedule so far.
    pub seconds: f64,
}

/// The points at which the best time changes, and the last one.
///
/// A program counts with all of its measurements, those that came later too: what seemed fast and
/// was luck, or was found to be wrong, was never the best. So the curve only falls, and ends with
/// the best that is known.
pub fn curve(records: &[Record]) -> Vec<Point> {
    let mut programs: BTreeMap<u64, Outcome> = BTreeMap::new();
    for record in records {
        match programs.get_mut(&record.program) {
            Some(pooled) => pooled.pool(record.outcome.clone()),
            None => drop(programs.insert(record.program, record.outcome.clone())),
        }
    }
    let times: BTreeMap<u64, f64> =
        programs.iter().filter_map(|(program, o)| Some((*program, o.seconds()?))).collect();
    let mut points: Vec<Point> = vec![];
    for (i, record) in records.iter().enumerate() {
        let best = points.last().map_or(f64::INFINITY, |p| p.seconds);
        let seconds = times.get(&record.program).map_or(best, |s| s.min(best));
        let last = i + 1 == records.len();
        if seconds < best || (last && seconds.is_finite()) {
            points.push(Point { measurements: i + 1, seconds });
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Key;

    fn record(program: u64, seconds: f64) -> Record {
        let key = Key { task: String::new(), target: String::new(), threads: 1 };
        let outcome = Outcome::Seconds(vec![seconds]);
        let trace = serde_json::from_str("[]").unwrap();
        let version = String::new();
        Record { key, trace, outcome, program, version, time: 0, machine: None }
    }

    #[test]
    fn the_best_never_rises() {
        let all = [(0, 4.0), (1, 1.0), (1, 3.0), (1, 3.0), (2, 2.0), (2, 5.0), (2, 5.0), (3, 3.5)];
        let records: Vec<Record> = all.iter().map(|&(p, s)| record(p, s)).collect();
        let curve = curve(&records);
        assert!(curve.is_sorted_by(|a, b| a.seconds >= b.seconds), "{curve:?}");
        let points: Vec<_> = curve.iter().map(|p| (p.measurements, p.seconds)).collect();
        assert_eq!(points, [(1, 4.0), (2, 3.0), (8, 3.0)]);
    }
}
