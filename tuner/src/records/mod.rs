//! What is known: every measurement that was ever made.
//!
//! A record is durable as soon as [`Records::add`] returns. Records are never changed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ansc_sketch::Trace;
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;

/// Which schedules can stand for one another: those of the same subgraph on the same machine and threads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Key {
    /// [`ansc_sketch::Task::key`].
    pub task: String,
    /// Architecture, processor and its features.
    pub target: String,
    /// Threads that ran the candidates.
    pub threads: usize,
}

/// One measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    #[serde(flatten)]
    pub key: Key,
    pub trace: Trace,
    pub outcome: Outcome,
    /// Structural hash of the program that the trace made.
    pub program: u64,
    /// The compiler that measured.
    pub version: String,
    /// Seconds since 1970.
    pub time: u64,
}

/// A store of records.
pub trait Records {
    fn add(&mut self, records: &[Record]) -> Result<(), RecordsError>;
    /// Those of one key, in the order in which they were added.
    fn of(&self, key: &Key) -> Result<Vec<Record>, RecordsError>;
    /// The trace and the median time of the fastest program, all measurements of a program taken together.
    fn best(&self, key: &Key) -> Result<Option<(Trace, f64)>, RecordsError> {
        Ok(fastest(self.of(key)?))
    }
}

fn fastest(records: Vec<Record>) -> Option<(Trace, f64)> {
    let mut programs: BTreeMap<u64, (Trace, Outcome)> = BTreeMap::new();
    for record in records {
        match programs.entry(record.program) {
            Entry::Occupied(mut known) => known.get_mut().1.pool(record.outcome),
            Entry::Vacant(new) => {
                new.insert((record.trace, record.outcome));
            }
        }
    }
    let timed = programs.into_values().filter_map(|(trace, o)| Some((trace, o.seconds()?)));
    timed.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Records that live as long as the process.
#[derive(Clone, Debug, Default)]
pub struct InMemory(Vec<Record>);

impl Records for InMemory {
    fn add(&mut self, records: &[Record]) -> Result<(), RecordsError> {
        self.0.extend_from_slice(records);
        Ok(())
    }

    fn of(&self, key: &Key) -> Result<Vec<Record>, RecordsError> {
        Ok(self.0.iter().filter(|r| r.key == *key).cloned().collect())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    #[error("{path}: {source}")]
    Database {
        path: String,
        #[source]
        source: rusqlite::Error,
    },
    #[error("{path}: {message}")]
    Format { path: String, message: String },
    #[error("{path}: {source}")]
    Io {
        path: String,
        #[source]
        source: std::io::Error,
    },
}
