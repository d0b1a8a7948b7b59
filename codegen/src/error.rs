//! Why code could not be generated, in words for the user.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum CodegenError {
    #[error("target `{name}` is not known: {reason}")]
    UnknownTarget { name: String, reason: String },
    #[error("kernel {program}: {what}")]
    Unsupported { program: String, what: String },
    #[error("kernel {program}: LLVM rejected the code ({stage}): {message}")]
    Llvm { program: String, stage: &'static str, message: String },
    #[error("the kernels cannot be linked: {0}")]
    Link(String),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("the artifact cannot be written: {0}")]
    Artifact(String),
}

impl CodegenError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> CodegenError {
        let path = path.into();
        move |source| CodegenError::Io { path, source }
    }
}
