//! Starting points for a task that was never tuned: the fastest schedules of tasks of the same
//! structure and another shape, made to fit.

use crate::candidate::Candidate;
use crate::records::{Key, Records, RecordsError, fastest, near};
use crate::tune::Weighted;

/// Similar tasks that are asked.
const TASKS: usize = 4;
/// Schedules of each.
const SCHEDULES: usize = 4;

/// Those of the most similar task first. None for a task that has records of its own.
pub(super) fn hints(
    weighted: &Weighted,
    key: &Key,
    records: &dyn Records,
) -> Result<Vec<Candidate>, RecordsError> {
    let mut found: Vec<Candidate> = vec![];
    if !records.of(key)?.is_empty() {
        return Ok(found);
    }
    for similar in near(records, &key.task, &weighted.task.compute)?.into_iter().take(TASKS) {
        let known = records.of(&Key { task: similar.key, ..key.clone() })?;
        let times = known.iter().map(|r| (r.program, r.outcome.clone()));
        for (program, _) in fastest(times, SCHEDULES) {
            let record = known.iter().find(|r| r.program == program);
            let candidate = record.and_then(|r| Candidate::adapted(&weighted.task, &r.trace));
            found.extend(candidate);
        }
    }
    Ok(found)
}
