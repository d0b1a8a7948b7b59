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
    #[error(
        "node `{node}`: {what} is work of the runtime, which a bundle does without; \
         compile an artifact (without `--emit bundle`) and run it with the runtime"
    )]
    Bundle { node: String, what: String },
    #[error(
        "a bundle is for one size of each input, and there are several ({sizes}); \
         give one with `--dim` or `--shape`, and make a bundle of each"
    )]
    BundleSizes { sizes: String },
    #[error("the artifact cannot be written: {0}")]
    Artifact(String),
}

impl CodegenError {
    /// Whether another model would do, so that its file is to be named.
    pub fn is_of_the_model(&self) -> bool {
        matches!(self, CodegenError::Bundle { .. } | CodegenError::BundleSizes { .. })
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> CodegenError {
        let path = path.into();
        move |source| CodegenError::Io { path, source }
    }
}
