//! Exceptions. Their messages are those of the command, word for word, and their classes are its
//! exit codes.

use ansc_runtime::{LoadError, LoadErrorKind, PoolError, RunError, SessionError};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(ansc, Error, PyException, "Base of all errors of ansc.");
create_exception!(ansc, DataError, Error, "The model or the data is at fault (exit code 1).");
create_exception!(ansc, UsageError, Error, "The call itself is wrong (exit code 2).");
create_exception!(ansc, MachineError, Error, "This machine cannot do it (exit code 3).");

/// Adds the exceptions to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("DataError", py.get_type::<DataError>())?;
    module.add("UsageError", py.get_type::<UsageError>())?;
    module.add("MachineError", py.get_type::<MachineError>())
}

/// The data does not fit, or an artifact is not sound.
pub(crate) fn data(error: impl std::fmt::Display) -> PyErr {
    DataError::new_err(error.to_string())
}

/// A call that could never work.
pub(crate) fn usage(error: impl std::fmt::Display) -> PyErr {
    UsageError::new_err(error.to_string())
}

/// Memory, threads, a package or a device are missing.
pub(crate) fn machine(error: impl std::fmt::Display) -> PyErr {
    MachineError::new_err(error.to_string())
}

/// An artifact that was not loaded.
pub(crate) fn load(error: LoadError) -> PyErr {
    if matches!(error.kind, LoadErrorKind::Target(_)) { machine(error) } else { data(error) }
}

/// A session that was not made.
pub(crate) fn session(error: SessionError) -> PyErr {
    match &error {
        SessionError::Pool(PoolError::TooMany { .. }) => usage(error),
        _ => machine(error),
    }
}

/// A run that failed, or a question about one.
pub(crate) fn run(error: RunError) -> PyErr {
    match &error {
        RunError::Truncate { .. } => usage(error),
        _ if error.is_of_the_machine() => machine(error),
        _ => data(error),
    }
}
