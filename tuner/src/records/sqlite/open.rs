//! Opening a file of records: what it must look like, and what makes a new one.

use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::schema::{self, TABLES, TABLES_SINCE_2, TABLES_SINCE_3};
use super::{PATIENCE, Sqlite};
use crate::records::RecordsError;

/// `ansc` in ASCII: tells our files from other databases.
const APPLICATION: i64 = 0x616e_7363;
/// The version of the tables. It is raised whenever they change.
const FORMAT: i64 = 3;

/// The content of a file that was opened.
enum Found {
    Nothing,
    /// A file of an older format, which lacks these tables.
    Older(&'static [&'static str]),
    Records,
}

impl Sqlite {
    /// Opens a file of records, or makes one.
    pub fn open(path: &Path) -> Result<Sqlite, RecordsError> {
        connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)
    }

    /// Opens a file of records that is there.
    pub fn open_existing(path: &Path) -> Result<Sqlite, RecordsError> {
        if !path.exists() {
            return Err(RecordsError::Absent { path: path.display().to_string() });
        }
        connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Sqlite, RecordsError> {
    let name = path.display().to_string();
    let failed = |e| RecordsError::of_sqlite(&name, e);
    // SQLite takes relative names that begin with `file:` for addresses.
    let absolute = std::path::absolute(path)
        .map_err(|source| RecordsError::Io { path: name.clone(), source })?;
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if is_no_file(path) {
        return Err(RecordsError::Foreign { path: name, what: "it is not a regular file".into() });
    }
    let mut connection = Connection::open_with_flags(absolute, flags).map_err(failed)?;
    schema::distrust(&connection).map_err(failed)?;
    connection.busy_timeout(PATIENCE).map_err(failed)?;
    // Nothing is written to a file before it is known to be ours.
    if !matches!(look_at_once(&mut connection, &name)?, Found::Records) {
        create(&mut connection, &name)?;
    }
    settle_journal(&connection).map_err(failed)?;
    let file = Sqlite { path: name.clone(), connection };
    // Pages that refer to each other in circles would be read without end.
    file.check_with("PRAGMA quick_check")?;
    Ok(file)
}

/// A device or a pipe; SQLite gives its own errors for folders.
fn is_no_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir())
}

/// In one transaction: what another process makes meanwhile is seen whole or not at all.
fn look_at_once(connection: &mut Connection, path: &str) -> Result<Found, RecordsError> {
    let transaction = connection.transaction().map_err(|e| RecordsError::of_sqlite(path, e))?;
    look(&transaction, path)
}

fn look(connection: &Connection, path: &str) -> Result<Found, RecordsError> {
    let failed = |e| RecordsError::of_sqlite(path, e);
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get(0));
    let application: i64 = pragma("application_id").map_err(failed)?;
    let format: i64 = pragma("user_version").map_err(failed)?;
    let count = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(count, [], |row| row.get(0)).map_err(failed)?;
    let foreign = |what| Err(RecordsError::Foreign { path: path.to_owned(), what });
    let (found, tables): (Found, &[&str]) = match (application, format) {
        (0, 0) if tables == 0 => return Ok(Found::Nothing),
        (APPLICATION, FORMAT) => (Found::Records, &[TABLES, TABLES_SINCE_2, TABLES_SINCE_3]),
        (APPLICATION, 2) => (Found::Older(&[TABLES_SINCE_3]), &[TABLES, TABLES_SINCE_2]),
        (APPLICATION, 1) => (Found::Older(&[TABLES_SINCE_2, TABLES_SINCE_3]), &[TABLES]),
        (APPLICATION, found) => {
            return Err(RecordsError::Newer { path: path.to_owned(), found, known: FORMAT });
        }
        _ => return foreign("it is a database of another program".to_owned()),
    };
    match schema::problem(connection, tables).map_err(failed)? {
        Some(what) => foreign(what),
        None => Ok(found),
    }
}

fn create(connection: &mut Connection, path: &str) -> Result<(), RecordsError> {
    let failed = |e| RecordsError::of_sqlite(path, e);
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Another process may have been faster.
    let missing: &[&str] = match look(&transaction, path)? {
        Found::Nothing => &[TABLES, TABLES_SINCE_2, TABLES_SINCE_3],
        Found::Older(missing) => missing,
        Found::Records => &[],
    };
    for tables in missing {
        transaction.execute_batch(tables).map_err(failed)?;
        transaction.pragma_update(None, "application_id", APPLICATION).map_err(failed)?;
        transaction.pragma_update(None, "user_version", FORMAT).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

/// A log beside the file, so that readers and a writer do not wait for each other. The switch to it
/// does not wait for other processes by itself.
fn settle_journal(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    let start = Instant::now();
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(e) if is_busy(&e) && start.elapsed() < PATIENCE => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
