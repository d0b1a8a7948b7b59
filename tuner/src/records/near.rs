//! Tasks that differ from one in numbers only: what was good for them is worth a try.

use ansc_graph::{Compute, cost};

use super::{Records, RecordsError, TaskRecord};
use crate::structure::structure;

/// The tasks of the same structure, those of the most similar number of operations first; not the
/// task itself.
pub fn near(
    records: &dyn Records,
    key: &str,
    compute: &Compute,
) -> Result<Vec<TaskRecord>, RecordsError> {
    let Some(wanted) = structure(compute) else { return Ok(vec![]) };
    let mut found = records.tasks()?;
    found.retain(|task| {
        let other = Compute::parse(&task.compute).ok().and_then(|c| structure(&c));
        task.key != key && other.as_ref() == Some(&wanted)
    });
    let log = |flops: u64| (flops as f64 + 1.0).ln();
    let distance = |task: &TaskRecord| (log(task.flops) - log(cost::flops(compute))).abs();
    found.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::InMemory;

    fn sum(rows: usize, combiner: &str) -> Compute {
        let text = format!(
            "compute(in0: f32[{rows}, 8]) -> s {{ s: f32[{rows}] = {combiner}{{r0: 8}} in0[i0, r0] }}"
        );
        Compute::parse(&text).unwrap()
    }

    #[test]
    fn near_tasks_come_first() {
        let mut records = InMemory::default();
        for (key, compute) in [
            ("a", sum(4, "sum")),
            ("b", sum(100, "sum")),
            ("c", sum(10, "max")),
            ("d", sum(9, "sum")),
        ] {
            let flops = cost::flops(&compute);
            let (key, compute) = (key.to_owned(), compute.to_string());
            records.add_task(&TaskRecord { name: key.clone(), key, compute, flops }).unwrap();
        }
        let found = near(&records, "d", &sum(9, "sum")).unwrap();
        assert_eq!(found.iter().map(|t| &*t.key).collect::<Vec<_>>(), ["a", "b"]);
    }
}
