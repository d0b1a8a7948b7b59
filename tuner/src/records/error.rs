//! The errors of a file of records, and what to do about them.

use rusqlite::ErrorCode;

/// Why records could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// There is no such file.
    #[error("{path}: there is no such file of records")]
    Absent {
        /// The file.
        path: String,
    },
    /// The file is something else.
    #[error("{path}: is not a file of records ({what}); name another file, or move this one away")]
    Foreign {
        /// The file.
        path: String,
        /// The reason.
        what: String,
    },
    /// A newer version of ansc wrote the file.
    #[error(
        "{path}: is of format {found}, and this version of ansc reads format {known}; use a newer ansc"
    )]
    Newer {
        /// The file.
        path: String,
        /// The format of the file.
        found: i64,
        /// The newest format that is known here.
        known: i64,
    },
    /// The file is a database of records, but broken.
    #[error(
        "{path}: is damaged ({what}); move it away and tuning starts anew, or save what is left of it with \
         `sqlite3 FILE .recover | sqlite3 NEW`"
    )]
    Damaged {
        /// The file.
        path: String,
        /// The part that is broken.
        what: String,
    },
    /// The system refuses to write.
    #[error(
        "{path}: cannot be written ({source}); what was measured before is kept: make room, or make the \
         folder writable, and run it again"
    )]
    Unwritable {
        /// The file.
        path: String,
        /// The error of the database.
        #[source]
        source: rusqlite::Error,
    },
    /// Another program writes to the file for too long.
    #[error("{path}: another program kept the file locked for {seconds} s; wait until it is done")]
    Locked {
        /// The file.
        path: String,
        /// Seconds that were waited.
        seconds: u64,
    },
    /// The database gave another error.
    #[error("{path}: {source}")]
    Database {
        /// The file.
        path: String,
        /// The error of the database.
        #[source]
        source: rusqlite::Error,
    },
    /// The file cannot be opened or read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
}

impl RecordsError {
    /// Whether there is no space for more records.
    pub fn is_full(&self) -> bool {
        let (RecordsError::Unwritable { source, .. } | RecordsError::Database { source, .. }) =
            self
        else {
            return false;
        };
        source.sqlite_error_code() == Some(ErrorCode::DiskFull)
    }

    /// Whose fault an error of SQLite is.
    pub(super) fn of_sqlite(path: &str, source: rusqlite::Error) -> RecordsError {
        let path = path.to_owned();
        // SQLite reads these values without complaint, but they are no text or number that we
        // wrote.
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
