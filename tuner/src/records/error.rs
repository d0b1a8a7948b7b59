//! What can be wrong with a file of records, and what to do about it.

use rusqlite::ErrorCode;

#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    #[error("{path}: there is no such file of records")]
    Absent { path: String },
    #[error("{path}: is not a file of records ({what}); name another file, or move this one away")]
    Foreign { path: String, what: String },
    #[error(
        "{path}: is of format {found}, and this version of ansc reads format {known}; use a newer ansc"
    )]
    Newer { path: String, found: i64, known: i64 },
    #[error(
        "{path}: is damaged ({what}); move it away and tuning starts anew, or save what is left of it with \
         `sqlite3 FILE .recover | sqlite3 NEW`"
    )]
    Damaged { path: String, what: String },
    #[error(
        "{path}: cannot be written ({source}); what was measured before is kept: make room, or make the \
         folder writable, and run it again"
    )]
    Unwritable {
        path: String,
        #[source]
        source: rusqlite::Error,
    },
    #[error("{path}: another program kept the file locked for {seconds} s; wait until it is done")]
    Locked { path: String, seconds: u64 },
    #[error("{path}: {source}")]
    Database {
        path: String,
        #[source]
        source: rusqlite::Error,
    },
    #[error("{path}: {source}")]
    Io {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

impl RecordsError {
    /// Whose fault an error of SQLite is.
    pub(super) fn of_sqlite(path: &str, source: rusqlite::Error) -> RecordsError {
        let path = path.to_owned();
        // What SQLite reads without complaint is no text or number that we wrote.
        if matches!(
            source,
            rusqlite::Error::Utf8Error(..)
                | rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::InvalidColumnType(..)
        ) {
            return RecordsError::Damaged { path, what: source.to_string() };
        }
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => {
                RecordsError::Foreign { path, what: "it is no database".into() }
            }
            Some(ErrorCode::DatabaseCorrupt) => {
                RecordsError::Damaged { path, what: source.to_string() }
            }
            Some(
                ErrorCode::DiskFull
                | ErrorCode::ReadOnly
                | ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::SystemIoFailure,
            ) => RecordsError::Unwritable { path, source },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                let seconds = super::sqlite::PATIENCE.as_secs();
                RecordsError::Locked { path, seconds }
            }
            _ => RecordsError::Database { path, source },
        }
    }
}
