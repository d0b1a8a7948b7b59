//! An overview of the records in a file, made without reading the traces.

use serde::Serialize;

use super::{Result, Sqlite};
use crate::records::Key;

/// The records of one key.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Overview {
    /// The subgraph and the machine.
    #[serde(flatten)]
    pub key: Key,
    /// The name of the task, if the file knows it.
    pub name: Option<String>,
    /// Operations of one execution, if the file knows the task.
    pub flops: Option<u64>,
    /// Measurements of it.
    pub records: usize,
    /// Measurements that failed.
    pub failed: usize,
    /// The least median of a measurement; later ones of the same program may have been slower.
    pub best_seconds: Option<f64>,
    /// When the first and the last was measured, in seconds since 1970.
    pub first: u64,
    /// As `first`, of the last one.
    pub last: u64,
}

const SELECT: &str = "
SELECT task, target, threads, name, flops, count(*), sum(seconds IS NULL), min(seconds), min(time), max(time)
FROM records LEFT JOIN tasks ON task = key
GROUP BY task, target, threads ORDER BY task, target, threads";

impl Sqlite {
    /// By key.
    pub fn overview(&self) -> Result<Vec<Overview>> {
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        let rows = self.rows(SELECT, [], |row| {
            let key: (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let known: (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
            let counts: (i64, i64) = (row.get(5)?, row.get(6)?);
            Ok((key, known, counts, row.get(7)?, (row.get::<_, i64>(8)?, row.get::<_, i64>(9)?)))
        })?;
        rows.into_iter()
            .map(|((task, target, threads), (name, flops), counts, best_seconds, times)| {
                Ok(Overview {
                    key: self.key(task, target, threads)?,
                    name,
                    flops: flops.and_then(|f| f.parse().ok()),
                    records: count(counts.0) as usize,
                    failed: count(counts.1) as usize,
                    best_seconds,
                    first: count(times.0),
                    last: count(times.1),
                })
            })
            .collect()
    }
}
