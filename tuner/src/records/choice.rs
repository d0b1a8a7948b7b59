//! Which of the measured programs a kernel gets: the fastest of those that are surely faster than
//! the one that nobody tuned, else that one.
//!
//! ```text
//! untuned 1.00;  a 0.93, its slower quarter above 1.02;  b 0.95, its slower quarter above 0.99   =>  b
//! ```
//!
//! The least of many noisy medians is luck, and some schedules gain only while the machine is in
//! one of its states: what three quarters of the runs agree on holds elsewhere too. A machine that
//! was busy while the untuned program ran says little of that program but in its faster quarter, in
//! which the other has to be faster as well.

use ansc_sketch::Trace;
use ansc_sketch::task::Sums;

use super::{InMemory, Key, Record, Records, RecordsError, fastest, pooled, untuned_program};
use crate::outcome::Outcome;

/// The median and the lower quartile are at most this share of the untuned program's, and three
/// quarters of the runs are faster than its median.
const GAIN: f64 = 0.98;

/// The program and its median time, all measurements of a program taken together. Without an
/// untuned program it is the fastest; without a time of that program none is known to be faster.
pub fn choose(
    measured: impl Iterator<Item = (u64, Outcome)>,
    untuned: Option<u64>,
) -> Option<(u64, f64)> {
    let programs = pooled(measured);
    let all = fastest(programs.clone().into_iter(), usize::MAX);
    let Some(untuned) = untuned else { return all.first().copied() };
    let default = all.iter().find(|(program, _)| *program == untuned)?;
    let quick = programs[&untuned].lower_quartile()?;
    let mostly = |times: &Outcome| times.upper_quartile().is_some_and(|s| s <= default.1);
    let at_best = |times: &Outcome| times.lower_quartile().is_some_and(|s| s <= GAIN * quick);
    let surely = |(program, median): &&(u64, f64)| {
        let times = &programs[program];
        *median <= GAIN * default.1 && mostly(times) && at_best(times)
    };
    all.iter().find(surely).or(Some(default)).copied()
}

/// As [`Records::best`], of the schedules whose algorithms are allowed.
pub fn best_allowed(
    records: &dyn Records,
    key: &Key,
    untuned: Option<u64>,
    sums: Sums,
) -> Result<Option<(Trace, f64)>, RecordsError> {
    if sums == Sums::Any {
        return records.best(key, untuned);
    }
    let mut all = records.of(key)?;
    all.retain(|record| sums.allow(record.trace.algorithm()));
    let mut allowed = InMemory::default();
    allowed.add(&all)?;
    allowed.best(key, untuned)
}

/// Takes every key for which something is surely faster than the untuned program, and keeps both,
/// with their medians alone.
pub fn chosen(from: &dyn Records) -> Result<InMemory, RecordsError> {
    let mut into = InMemory::default();
    let tasks = from.tasks()?;
    for key in from.keys()? {
        let both = gained(from, &key)?;
        into.add(&both)?;
        let known = tasks.iter().find(|t| t.key == key.task && !both.is_empty());
        known.map_or(Ok(()), |task| into.add_task(task))?;
    }
    Ok(into)
}

fn gained(from: &dyn Records, key: &Key) -> Result<Vec<Record>, RecordsError> {
    let records = from.of(key)?;
    let untuned = untuned_program(&records);
    let chosen = choose(outcomes(&records), untuned).map(|(program, _)| program);
    if chosen == untuned {
        return Ok(vec![]);
    }
    let times = pooled(outcomes(&records));
    let short = |program: Option<u64>| {
        let record = records.iter().find(|r| Some(r.program) == program)?;
        let seconds = times[&record.program].seconds()?;
        Some(Record { outcome: Outcome::Seconds(vec![seconds]), ..record.clone() })
    };
    Ok([untuned, chosen].into_iter().filter_map(short).collect())
}

pub(super) fn outcomes(records: &[Record]) -> impl Iterator<Item = (u64, Outcome)> {
    records.iter().map(|r| (r.program, r.outcome.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> impl Iterator<Item = (u64, Outcome)> {
        let all = [
            (1, vec![1.0, 1.01, 0.99, 1.0]),
            (2, vec![0.8, 0.9, 1.02, 1.02]),
            (2, vec![0.8, 0.9, 1.02, 1.02]),
            (3, vec![0.95, 0.95, 0.99, 1.2]),
            (4, vec![0.99, 0.99, 0.99, 0.99]),
        ];
        all.into_iter().map(|(program, times)| (program, Outcome::Seconds(times)))
    }

    #[test]
    fn what_is_surely_faster_is_chosen() {
        assert_eq!(choose(measured(), Some(1)), Some((3, 0.95)));
        assert_eq!(choose(measured().filter(|m| m.0 != 3), Some(1)), Some((1, 1.0)));
        assert_eq!(choose(measured(), None), Some((2, 0.9)));
        assert_eq!(choose(measured(), Some(7)), None);
        assert_eq!(choose(std::iter::empty(), Some(1)), None);
        // The machine was busy during most runs of the untuned program.
        let busy = [(1, vec![0.98, 0.99, 1.38, 6.7]), (2, vec![1.06, 1.15, 1.19, 1.2])];
        let busy = busy.into_iter().map(|(program, times)| (program, Outcome::Seconds(times)));
        assert_eq!(choose(busy, Some(1)).map(|(program, _)| program), Some(1));
    }
}
