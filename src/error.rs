//! The errors of a verb, and the exit code that says whose fault an error is.

use std::path::{Path, PathBuf};

use ansc_codegen::CodegenError;
use ansc_frontend::ImportError;
use ansc_runtime::tensor::TensorError;
use ansc_runtime::{LoadErrorKind, PoolError, SessionError};
use ansc_tuner::dataset::DatasetError;
use ansc_tuner::lab::{LabError, SpaceError};
use ansc_tuner::records::RecordsError;
use ansc_tuner::tune::TuneError;

/// Exit codes are part of the command line's contract.
pub const EXIT_DATA: u8 = 1;
pub const EXIT_USAGE: u8 = 2;
pub const EXIT_MACHINE: u8 = 3;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Import(#[from] ImportError),
    /// The verb did what it was asked to, and its report says what is wrong.
    #[error("{0}")]
    Reported(String),
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error("{0}")]
    Pass(#[from] ansc_graph::passes::PassError),
    #[error("{0}")]
    Defect(#[from] ansc_graph::verify::Defect),
    #[error("{0}")]
    Program(#[from] ansc_sketch::verify::Defect),
    #[error("{0}")]
    Codegen(#[from] CodegenError),
    #[error("{0}")]
    Load(#[from] ansc_runtime::LoadError),
    #[error("{0}")]
    Run(#[from] ansc_runtime::RunError),
    #[error("{0}")]
    Session(#[from] SessionError),
    #[error("the reference interpreter: {0}")]
    Interpreter(#[from] ansc_graph::interp::InterpError),
    #[error("{0}")]
    Tensor(#[from] TensorError),
    #[error("{0}")]
    Npy(#[from] ansc_runtime::npy::NpyError),
    #[error("{0}")]
    Tune(#[from] TuneError),
    #[error("{0}")]
    Lab(#[from] LabError),
    #[error("{0}")]
    Dataset(#[from] DatasetError),
    #[error("{0}")]
    Records(#[from] RecordsError),
    #[error("{0}")]
    Mismatch(String),
    /// The data do not allow what was asked for. The text says why.
    #[error("{0}")]
    Data(String),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Machine(String),
}

impl Error {
    pub fn file(path: &Path, reason: impl ToString) -> Error {
        let reason = reason.to_string();
        // Many errors of libraries name the file already.
        let own = reason.strip_prefix(&format!("{}: ", path.display())).map(str::to_owned);
        Error::File { path: path.to_path_buf(), reason: own.unwrap_or(reason) }
    }

    /// An error of the system with a file.
    pub fn io(path: &Path, e: std::io::Error) -> Error {
        match is_full(&e) {
            true => Error::Machine(format!("{}: {e}", path.display())),
            false => Error::file(path, e),
        }
    }

    /// Whether there is no space for what was to be written.
    fn is_of_the_disk(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(e) = cause {
            let full = e.downcast_ref().is_some_and(is_full);
            if full || e.downcast_ref().is_some_and(RecordsError::is_full) {
                return true;
            }
            cause = e.source();
        }
        false
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            _ if self.is_of_the_disk() => EXIT_MACHINE,
            Error::Usage(_) => EXIT_USAGE,
            Error::Lab(LabError::Space(SpaceError::Unknown(_))) => EXIT_USAGE,
            Error::Machine(_) => EXIT_MACHINE,
            Error::Load(e) if matches!(e.kind, LoadErrorKind::Target(_)) => EXIT_MACHINE,
            Error::Run(e) if e.is_of_the_machine() => EXIT_MACHINE,
            Error::Tensor(TensorError::NoMemory { .. }) => EXIT_MACHINE,
            Error::Tune(TuneError::Measure(e)) | Error::Lab(LabError::Measure(e))
                if e.is_of_the_machine() =>
            {
                EXIT_MACHINE
            }
            Error::Dataset(DatasetError::Measure(e)) if e.is_of_the_machine() => EXIT_MACHINE,
            Error::Session(SessionError::Pool(PoolError::TooMany { .. })) => EXIT_USAGE,
            Error::Codegen(CodegenError::UnknownTarget { .. }) => EXIT_USAGE,
            Error::Session(_) => EXIT_MACHINE,
            _ => EXIT_DATA,
        }
    }

    /// The object that `--json` prints in place of a result.
    pub fn to_json(&self) -> serde_json::Value {
        let mut object =
            serde_json::json!({ "error": self.to_string(), "exit_code": self.exit_code() });
        if let Error::Import(e) = self {
            object["problems"] = serde_json::json!(e.problems);
        }
        object
    }
}

/// Whether the disk, or what a user may keep on it, is full.
fn is_full(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(e.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_once() {
        let path = Path::new("n.npy");
        for reason in ["n.npy: not an array", "not an array"] {
            assert_eq!(Error::file(path, reason).to_string(), "n.npy: not an array");
        }
    }
}
