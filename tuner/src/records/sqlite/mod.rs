//! Records in a SQLite file.
//!
//! One row for each measurement, task, model and machine. A commit is synchronised with the disk
//! (`synchronous=FULL` on a write-ahead log): what [`Records::add`] acknowledged survives `kill -9`
//! and loss of power. That costs a few milliseconds for each round of measurements, which takes
//! seconds. Several processes may write at once: each waits for its turn.
//!
//! ```text
//! FILE      tables `tasks`, `models`, `machines`, `records` and `places`
//! FILE-wal  what was committed last; part of the file while it is there
//! FILE-shm  an index of that
//! ```

mod open;
mod overview;
mod prune;
mod schema;

use std::time::Duration;

use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};

use super::{
    Key, Limits, MachineRecord, ModelRecord, Record, Records, RecordsError, TaskRecord, choose,
};
use crate::outcome::Outcome;
use ansc_sketch::Trace;

pub use overview::Overview;

/// How long a locked file is waited for.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Records in a file, a database of SQLite.
#[derive(Debug)]
pub struct Sqlite {
    path: String,
    connection: Connection,
}

type Result<T> = std::result::Result<T, RecordsError>;

const INSERT: &str = "INSERT INTO records
  (task, target, threads, seconds, program, trace, outcome, version, time, digest)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const INSERT_PLACE: &str = "INSERT INTO places (record, machine) VALUES (?, ?)";
const OF_KEY: &str = "WHERE task = ? AND target = ? AND threads = ?";

impl Records for Sqlite {
    fn add(&mut self, records: &[Record]) -> Result<()> {
        self.write(|transaction| {
            records.iter().try_for_each(|record| insert(transaction, record, &record.digest()))
        })
    }

    fn merge(&mut self, records: &[Record]) -> Result<usize> {
        self.write(|transaction| {
            let mut known = transaction.prepare_cached("SELECT 1 FROM records WHERE digest = ?")?;
            let mut added = 0;
            for record in records {
                let digest = record.digest();
                if !known.exists([&digest])? {
                    insert(transaction, record, &digest)?;
                    added += 1;
                }
            }
            Ok(added)
        })
    }

    fn add_task(&mut self, task: &TaskRecord) -> Result<()> {
        self.write(|transaction| {
            transaction.execute(
                "INSERT OR IGNORE INTO tasks (key, name, compute, flops) VALUES (?, ?, ?, ?)",
                params![task.key, task.name, task.compute, task.flops.to_string()],
            )?;
            Ok(())
        })
    }

    fn tasks(&self) -> Result<Vec<TaskRecord>> {
        let rows =
            self.rows("SELECT key, name, compute, flops FROM tasks ORDER BY key", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
        let task = |(key, name, compute, flops): (String, _, _, String)| {
            let flops = flops.parse().map_err(|e| self.damaged(format!("task {key}: {e}")))?;
            Ok(TaskRecord { key, name, compute, flops })
        };
        rows.into_iter().map(task).collect()
    }

    fn add_model(&mut self, model: &ModelRecord) -> Result<()> {
        let tasks = serde_json::to_string(&model.tasks).expect("records are data");
        self.write(|transaction| {
            transaction.execute(
                "INSERT OR IGNORE INTO models (digest, name, tasks) VALUES (?, ?, ?)",
                params![model.digest(), model.name, tasks],
            )?;
            Ok(())
        })
    }

    fn models(&self) -> Result<Vec<ModelRecord>> {
        let select = "SELECT name, tasks FROM models ORDER BY name, digest";
        let rows = self.rows(select, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let model = |(name, tasks): (String, String)| {
            let tasks = serde_json::from_str(&tasks)
                .map_err(|e| self.damaged(format!("model {name}: {e}")))?;
            Ok(ModelRecord { name, tasks })
        };
        rows.into_iter().map(model).collect()
    }

    fn set_machine(&mut self, machine: &MachineRecord) -> Result<()> {
        self.write(|transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO machines (target, threads, flops, bytes) VALUES (?, ?, ?, ?)",
                params![
                    machine.target,
                    machine.threads as i64,
                    machine.limits.flops_per_second,
                    machine.limits.bytes_per_second,
                ],
            )?;
            Ok(())
        })
    }

    fn machines(&self) -> Result<Vec<MachineRecord>> {
        let select = "SELECT target, threads, flops, bytes FROM machines ORDER BY target, threads";
        let rows = self.rows(select, [], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?, row.get(3)?))
        })?;
        let machine =
            |(target, threads, flops_per_second, bytes_per_second): (String, i64, _, _)| {
                let threads = usize::try_from(threads)
                    .map_err(|_| self.damaged(format!("{threads} threads of a machine")))?;
                let limits = Limits { flops_per_second, bytes_per_second };
                Ok(MachineRecord { target, threads, limits })
            };
        rows.into_iter().map(machine).collect()
    }

    fn keys(&self) -> Result<Vec<Key>> {
        let distinct =
            "SELECT DISTINCT task, target, threads FROM records ORDER BY task, target, threads";
        let rows = self.rows(distinct, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.into_iter().map(|(task, target, threads)| self.key(task, target, threads)).collect()
    }

    fn of(&self, key: &Key) -> Result<Vec<Record>> {
        let stored = self.stored(key)?;
        stored.into_iter().filter_map(|one| one.into_record(key, self).transpose()).collect()
    }

    /// Without reading all traces.
    fn best(&self, key: &Key, untuned: Option<u64>) -> Result<Option<(Trace, f64)>> {
        let mut outcomes = self.outcomes(key)?;
        while let Some((program, seconds)) = choose(outcomes.iter().cloned(), untuned) {
            if let Some(trace) = self.trace_of(key, program)? {
                return Ok(Some((trace, seconds)));
            }
            outcomes.retain(|(other, _)| *other != program);
        }
        Ok(None)
    }
}

impl Sqlite {
    /// The path that it was opened by.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads the whole file and says whether all of it is sound.
    pub fn check(&self) -> Result<()> {
        self.check_with("PRAGMA integrity_check")
    }

    fn check_with(&self, pragma: &str) -> Result<()> {
        let problems: Vec<String> = self.rows(pragma, [], |row| row.get::<_, String>(0))?;
        match &problems[..] {
            [ok] if ok == "ok" => Ok(()),
            _ => Err(self.damaged(problems.join("; "))),
        }
    }

    /// One transaction: all of it, or nothing.
    fn write<T>(&mut self, f: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T> {
        let write = |connection: &mut Connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = f(&transaction)?;
            transaction.commit()?;
            Ok(result)
        };
        write(&mut self.connection).map_err(|e| RecordsError::of_sqlite(&self.path, e))
    }

    fn rows<T>(
        &self,
        select: &str,
        params: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let rows = || -> rusqlite::Result<Vec<T>> {
            self.connection.prepare_cached(select)?.query_map(params, read)?.collect()
        };
        rows().map_err(|e| self.failed(e))
    }

    /// The records of one key, in the order in which they were added.
    fn stored(&self, key: &Key) -> Result<Vec<Stored>> {
        let select = format!(
            "SELECT id, program, trace, outcome, version, time, machine \
             FROM records LEFT JOIN places ON record = id {OF_KEY} ORDER BY id"
        );
        self.rows(&select, key_params(key), Stored::read)
    }

    fn trace_of(&self, key: &Key, program: u64) -> Result<Option<Trace>> {
        let select =
            format!("SELECT id, trace FROM records {OF_KEY} AND program = ? ORDER BY id LIMIT 1");
        let found = self.connection.query_row(
            &select,
            params![key.task, key.target, key.threads as i64, digits(program)],
            |row| Ok((row.get(0)?, row.get::<_, String>(1)?)),
        );
        let (id, trace) = found.map_err(|e| self.failed(e))?;
        self.trace(id, &trace)
    }

    fn outcomes(&self, key: &Key) -> Result<Vec<(u64, Outcome)>> {
        let select = format!("SELECT id, program, outcome FROM records {OF_KEY} ORDER BY id");
        let rows =
            self.rows(&select, key_params(key), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.into_iter()
            .map(|(id, program, outcome): (i64, String, String)| {
                Ok((self.program(id, &program)?, self.parse(id, &outcome)?))
            })
            .collect()
    }

    fn key(&self, task: String, target: String, threads: i64) -> Result<Key> {
        let threads = usize::try_from(threads)
            .map_err(|_| self.damaged(format!("{threads} threads of task {task}")))?;
        Ok(Key { task, target, threads })
    }

    fn program(&self, id: i64, digits: &str) -> Result<u64> {
        u64::from_str_radix(digits, 16).map_err(|e| self.damaged(format!("record {id}: {e}")))
    }

    fn parse<T: serde::de::DeserializeOwned>(&self, id: i64, json: &str) -> Result<T> {
        serde_json::from_str(json).map_err(|e| self.damaged(format!("record {id}: {e}")))
    }

    /// `None` for a trace with steps that this version does not know: other versions may have
    /// others, and their records stay for them.
    fn trace(&self, id: i64, json: &str) -> Result<Option<Trace>> {
        match serde_json::from_str(json) {
            Err(e) if e.is_data() => Ok(None),
            Err(e) => Err(self.damaged(format!("record {id}: {e}"))),
            Ok(trace) => Ok(Some(trace)),
        }
    }

    fn failed(&self, source: rusqlite::Error) -> RecordsError {
        RecordsError::of_sqlite(&self.path, source)
    }

    fn damaged(&self, what: String) -> RecordsError {
        RecordsError::Damaged { path: self.path.clone(), what }
    }
}

/// A row of the table `records`, less its key.
struct Stored {
    id: i64,
    program: String,
    trace: String,
    outcome: String,
    version: String,
    time: i64,
    machine: Option<String>,
}

impl Stored {
    fn read(row: &Row<'_>) -> rusqlite::Result<Stored> {
        Ok(Stored {
            id: row.get(0)?,
            program: row.get(1)?,
            trace: row.get(2)?,
            outcome: row.get(3)?,
            version: row.get(4)?,
            time: row.get(5)?,
            machine: row.get(6)?,
        })
    }

    /// `None` for one of another version, see [`Sqlite::trace`].
    fn into_record(self, key: &Key, file: &Sqlite) -> Result<Option<Record>> {
        let Some(trace) = file.trace(self.id, &self.trace)? else { return Ok(None) };
        Ok(Some(Record {
            key: key.clone(),
            trace,
            outcome: file.parse(self.id, &self.outcome)?,
            program: file.program(self.id, &self.program)?,
            version: self.version,
            time: u64::try_from(self.time).unwrap_or(0),
            machine: self.machine,
        }))
    }
}

fn insert(transaction: &Transaction<'_>, record: &Record, digest: &str) -> rusqlite::Result<()> {
    let json = |value: serde_json::Result<String>| value.expect("records are data");
    transaction.prepare_cached(INSERT)?.execute(params![
        record.key.task,
        record.key.target,
        record.key.threads as i64,
        record.outcome.seconds(),
        digits(record.program),
        json(serde_json::to_string(&record.trace)),
        json(serde_json::to_string(&record.outcome)),
        record.version,
        i64::try_from(record.time).unwrap_or(i64::MAX),
        digest,
    ])?;
    if let Some(machine) = &record.machine {
        let id = transaction.last_insert_rowid();
        transaction.prepare_cached(INSERT_PLACE)?.execute(params![id, machine])?;
    }
    Ok(())
}

fn key_params(key: &Key) -> impl rusqlite::Params {
    (key.task.clone(), key.target.clone(), key.threads as i64)
}

fn digits(program: u64) -> String {
    format!("{program:016x}")
}
