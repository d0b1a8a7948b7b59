//! Why a file is not a model that can run here.

use std::io;
use std::path::PathBuf;

use crate::manifest::FORMAT_VERSION;
use crate::pool::PoolError;
use crate::run_error::RunError;
use crate::target::TargetError;
use crate::validate::ManifestError;

/// Why a file is not a model that can run here.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", path.display())]
pub struct LoadError {
    /// The file; [`IN_MEMORY`] for bytes.
    pub path: PathBuf,
    /// The problem with it.
    #[source]
    pub kind: LoadErrorKind,
}

/// Errors show this in place of a path, if there is none.
pub const IN_MEMORY: &str = "the artifact in memory";

/// The problems that an artifact can have, in the order of the checks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadErrorKind {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else than an ELF shared library.
    #[error("is not an artifact of ansc: {0}")]
    NotAnArtifact(String),
    /// It is a shared library, but none of ours.
    #[error("is a shared library, but not an artifact of ansc: it has no seal")]
    NotSealed,
    /// Written by a compiler that is too old or too new.
    #[error(
        "has format version {found}, but this runtime reads version {FORMAT_VERSION}; compile the \
         model again"
    )]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// The file's hash is not the one in its seal.
    #[error("is damaged: its contents do not match its seal")]
    Damaged,
    /// A part of the artifact is missing or out of place.
    #[error("its section `{0}` is missing or misaligned")]
    Section(&'static str),
    /// Compiled for another machine.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The manifest is not sound.
    #[error("its manifest is malformed: {0}")]
    Manifest(#[from] ManifestError),
    /// The dynamic linker refused the library.
    #[error("its code cannot be loaded: {0}")]
    Library(#[source] libloading::Error),
    /// Its weights cannot be prepared.
    #[error("its weights cannot be prepared: {0}")]
    Preparation(#[from] PreparationError),
    /// The manifest names a kernel that the library does not define.
    #[error("kernel `{0}` is not in the library")]
    Symbol(String),
}

/// Why weights could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreparationError {
    /// There is no memory for them.
    #[error("they need {bytes} bytes of memory: {source}")]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// The error of the system.
        source: io::Error,
    },
    /// There are no threads.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A step of the plan failed.
    #[error(transparent)]
    Run(#[from] RunError),
}
