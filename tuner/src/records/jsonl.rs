//! Records as lines of JSON, to carry them elsewhere. `docs/src/records.md` describes the lines.
//!
//! ```text
//! {"format":1,"kind":"task","key":"5f..","name":"conv_3","compute":"compute(..) -> ..","flops":231211008}
//! {"format":1,"kind":"model","name":"resnet18.onnx","tasks":[{"task":"5f..","count":3}, ..]}
//! {"format":1,"kind":"machine","target":"x86_64 ..","threads":2,"flops_per_second":1.1e11,"bytes_per_second":2.3e10}
//! {"format":1,"kind":"record","task":"5f..","target":"x86_64 ..","threads":2,"trace":[..],"outcome":{"seconds":[0.00131]},..}
//! ```
//!
//! Each line stands by itself: files can be concatenated, cut and filtered with the tools for
//! lines.

use std::fmt::{self, Display, Formatter};
use std::io::{self, BufRead, Read, Write};

use ansc_graph::Compute;
use serde::{Deserialize, Serialize};

use super::{MachineRecord, ModelRecord, Record, Records, RecordsError, TaskRecord};
use crate::outcome::Outcome;

const FORMAT: u32 = 1;
/// No trace comes near.
const LONGEST_LINE: usize = 16 << 20;
/// At most this many bad lines are described. All of them are counted.
const DESCRIBED: usize = 100;
/// Records that are written in one transaction.
const BATCH: usize = 1000;

#[derive(Serialize, Deserialize)]
struct Versioned {
    format: u32,
    #[serde(flatten)]
    line: Line,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Task(TaskRecord),
    Model(ModelRecord),
    Machine(MachineRecord),
    Record(Record),
}

/// A line that was not imported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BadLine {
    /// The first is 1.
    pub line: usize,
    /// Why the line was not imported.
    pub reason: String,
}

impl Display for BadLine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// The counts of an import.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Imported {
    /// Records that were not there before.
    pub records: usize,
    /// Records that were there already.
    pub duplicates: usize,
    /// Lines that describe a task.
    pub tasks: usize,
    /// Lines that were not imported.
    pub bad: usize,
    /// The first hundred of them.
    pub bad_lines: Vec<BadLine>,
}

/// Why lines could not be imported at all.
#[derive(Debug, thiserror::Error)]
pub enum JsonlError {
    /// The store failed.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The lines cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes every task and every record; how many records.
pub fn export(records: &dyn Records, to: &mut dyn Write) -> Result<usize, JsonlError> {
    for task in records.tasks()? {
        write_line(to, Line::Task(task))?;
    }
    for model in records.models()? {
        write_line(to, Line::Model(model))?;
    }
    for machine in records.machines()? {
        write_line(to, Line::Machine(machine))?;
    }
    let mut written = 0;
    for key in records.keys()? {
        for record in records.of(&key)? {
            write_line(to, Line::Record(record))?;
            written += 1;
        }
    }
    to.flush()?;
    Ok(written)
}

fn write_line(to: &mut dyn Write, line: Line) -> io::Result<()> {
    serde_json::to_writer(&mut *to, &Versioned { format: FORMAT, line })?;
    to.write_all(b"\n")
}

/// Adds what is new. A bad line is refused and told, and the others go in all the same.
pub fn import(from: &mut dyn BufRead, into: &mut dyn Records) -> Result<Imported, JsonlError> {
    let mut done = Imported::default();
    let mut batch = vec![];
    let mut buffer = vec![];
    for number in 1.. {
        if !next_line(from, &mut buffer)? {
            break;
        }
        match parse(&buffer) {
            Ok(None) => {}
            Ok(Some(Line::Task(task))) => {
                into.add_task(&task)?;
                done.tasks += 1;
            }
            Ok(Some(Line::Model(model))) => into.add_model(&model)?,
            Ok(Some(Line::Machine(machine))) => {
                if into.limits(&machine.target, machine.threads)?.is_none() {
                    into.set_machine(&machine)?;
                }
            }
            Ok(Some(Line::Record(record))) => batch.push(record),
            Err(reason) => done.refuse(number, reason),
        }
        if batch.len() == BATCH {
            done.count(into.merge(&batch)?, &mut batch);
        }
    }
    done.count(into.merge(&batch)?, &mut batch);
    Ok(done)
}

impl Imported {
    fn refuse(&mut self, line: usize, reason: String) {
        self.bad += 1;
        if self.bad_lines.len() < DESCRIBED {
            self.bad_lines.push(BadLine { line, reason });
        }
    }

    fn count(&mut self, new: usize, batch: &mut Vec<Record>) {
        self.records += new;
        self.duplicates += batch.len() - new;
        batch.clear();
    }
}

/// Reads a line of which no more than is allowed, and one byte, is kept. False at the end.
fn next_line(from: &mut dyn BufRead, buffer: &mut Vec<u8>) -> io::Result<bool> {
    buffer.clear();
    from.take(LONGEST_LINE as u64 + 1).read_until(b'\n', buffer)?;
    if buffer.len() > LONGEST_LINE && buffer.last() != Some(&b'\n') {
        from.skip_until(b'\n')?;
    }
    Ok(!buffer.is_empty())
}

/// Nothing for an empty line.
fn parse(line: &[u8]) -> Result<Option<Line>, String> {
    if line.len() > LONGEST_LINE {
        return Err(format!("longer than {LONGEST_LINE} bytes"));
    }
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    #[derive(Deserialize)]
    struct Header {
        format: u32,
    }
    let header: Header = serde_json::from_slice(line).map_err(|e| e.to_string())?;
    if header.format != FORMAT {
        return Err(format!("of format {}, and this version reads format {FORMAT}", header.format));
    }
    let versioned: Versioned = serde_json::from_slice(line).map_err(|e| e.to_string())?;
    match problem(&versioned.line) {
        Some(problem) => Err(problem),
        None => Ok(Some(versioned.line)),
    }
}

/// Why a line is wrong whose fields have the right types. None if it is right.
fn problem(line: &Line) -> Option<String> {
    match line {
        Line::Task(task) => {
            let parsed = Compute::parse(&task.compute);
            bad_key(&task.key).or_else(|| Some(format!("the subgraph: {}", parsed.err()?)))
        }
        Line::Model(model) => model.tasks.iter().find_map(|t| bad_key(&t.task)),
        Line::Machine(machine) => {
            let limits = [machine.limits.flops_per_second, machine.limits.bytes_per_second];
            let sound = limits.iter().all(|l| l.is_finite() && *l > 0.0);
            (!sound).then(|| "the limits are not positive".into())
        }
        Line::Record(record) => bad_key(&record.key.task).or_else(|| bad_record(record)),
    }
}

fn bad_key(key: &str) -> Option<String> {
    let is_key = key.len() == 32 && key.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    (!is_key).then(|| format!("`{key}` is not the key of a task"))
}

fn bad_record(record: &Record) -> Option<String> {
    let times = |all: &[f64]| !all.is_empty() && all.iter().all(|s| s.is_finite() && *s > 0.0);
    match &record.outcome {
        _ if record.key.threads == 0 => Some("measured on no thread".into()),
        _ if record.trace.steps.is_empty() => Some("the trace is empty".into()),
        Outcome::Seconds(all) if !times(all) => Some("the times are not positive".into()),
        _ => None,
    }
}
