//! The tables of a file of records, and that a file has these and nothing else.
//!
//! Views and triggers are programs: one that somebody put into a file could run for ever when it is
//! read, or lose what is written. So a file whose tables are not to the letter ours is refused
//! before a row of it is read.

use std::collections::BTreeMap;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

/// `seconds` is the median, or nothing where the candidate failed; `program` and `digest` are
/// digits.
pub(super) const TABLES: &str = "
CREATE TABLE tasks (
  key TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  compute TEXT NOT NULL,
  flops TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE records (
  id INTEGER PRIMARY KEY,
  task TEXT NOT NULL,
  target TEXT NOT NULL,
  threads INTEGER NOT NULL,
  seconds REAL,
  program TEXT NOT NULL,
  trace TEXT NOT NULL,
  outcome TEXT NOT NULL,
  version TEXT NOT NULL,
  time INTEGER NOT NULL,
  digest TEXT NOT NULL
);
CREATE INDEX records_of_key ON records (task, target, threads, id);
CREATE INDEX records_by_digest ON records (digest);
";

/// The tables that format 1 did not have. The column `tasks` is JSON.
pub(super) const TABLES_SINCE_2: &str = "
CREATE TABLE models (
  digest TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  tasks TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE machines (
  target TEXT NOT NULL,
  threads INTEGER NOT NULL,
  flops REAL NOT NULL,
  bytes REAL NOT NULL,
  PRIMARY KEY (target, threads)
) WITHOUT ROWID;
";

/// The table that format 2 did not have: which machine measured a record, where it is known.
pub(super) const TABLES_SINCE_3: &str = "
CREATE TABLE places (
  record INTEGER PRIMARY KEY,
  machine TEXT NOT NULL
);
";

/// Kind and name of a table, index, view or trigger.
type Name = (String, String);

/// Everything in a database by its kind and name: whose it is, and the text that made it.
type Schema = BTreeMap<Name, (String, Option<String>)>;

/// Nothing that a file says about itself is executed while it is looked at, and what is damaged is
/// found early.
pub(super) fn distrust(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.pragma_update(None, "cell_size_check", true)
}

/// Why the tables of a file are not these. None if they are right.
pub(super) fn problem(
    connection: &Connection,
    tables: &[&str],
) -> rusqlite::Result<Option<String>> {
    let made = Connection::open_in_memory()?;
    tables.iter().try_for_each(|tables| made.execute_batch(tables))?;
    let (expected, found) = (read(&made)?, read(connection)?);
    let differs = |(name, text): &(&Name, _)| expected.get(*name) != Some(*text);
    if let Some(((kind, name), _)) = found.iter().find(differs) {
        return Ok(Some(format!("its {kind} {name:?} is none that ansc makes")));
    }
    let missing = expected.keys().find(|name| !found.contains_key(*name));
    Ok(missing.map(|(kind, name)| format!("it has no {kind} {name:?}")))
}

fn read(connection: &Connection) -> rusqlite::Result<Schema> {
    let mut select = connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let entry = |row: &rusqlite::Row<'_>| {
        let text: Option<String> = row.get(3)?;
        // Other versions may have broken their lines elsewhere.
        let words = text.map(|t| t.split_whitespace().collect::<Vec<_>>().join(" "));
        Ok(((row.get(0)?, row.get(1)?), (row.get(2)?, words)))
    };
    select.query_map([], entry)?.collect()
}
