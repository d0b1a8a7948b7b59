//! Whose fault it is that a request could not be served: the candidate's, or the machine's.
//!
//! A disk without room, a folder that is gone, no threads: all that is the machine's, and says
//! nothing about the candidate. Memory is the candidate's fault where it asks for more than a
//! worker may have at all.

use ansc_codegen::CodegenError;
use ansc_runtime::tensor::TensorError;
use ansc_runtime::{LoadErrorKind, RunError, SessionError, TargetError};
use ansc_tuner::measure::protocol::Reply;

use crate::Error;

/// The reply that says what went wrong. `limit` is how much memory a worker may have.
pub(super) fn reply(error: &Error, limit: Option<u64>) -> Reply {
    let message = error.to_string();
    if is_of_the_machine(error, limit) {
        Reply::Unfit { message }
    } else {
        Reply::Refused { message }
    }
}

fn is_of_the_machine(error: &Error, limit: Option<u64>) -> bool {
    let lacking = |bytes: usize| limit.is_none_or(|limit| (bytes as u64) < limit / 2);
    let no_room = |error: &TensorError| match error {
        TensorError::NoMemory { bytes, .. } => lacking(*bytes),
        _ => false,
    };
    match error {
        Error::File { .. } | Error::Machine(_) | Error::Codegen(CodegenError::Io { .. }) => true,
        Error::Load(e) => match &e.kind {
            LoadErrorKind::Io(_) => true,
            // Built for another processor than this one. What a GPU says is about the code.
            LoadErrorKind::Target(TargetError::Gpu { .. }) => false,
            LoadErrorKind::Target(_) => true,
            _ => false,
        },
        Error::Session(SessionError::Pool(_)) => true,
        Error::Session(SessionError::Memory { bytes, .. }) => lacking(*bytes),
        Error::Run(RunError::Memory { source, .. }) | Error::Tensor(source) => no_room(source),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_machine_is_to_blame_for_what_it_lacks() {
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        let memory = |bytes| Error::Session(SessionError::Memory { bytes, source: full() });
        let written = CodegenError::Io { path: "a.ansc".into(), source: full() };
        for error in [Error::file("r".as_ref(), full()), written.into(), memory(1 << 20)] {
            assert!(matches!(reply(&error, Some(1 << 30)), Reply::Unfit { .. }), "{error}");
        }
        let refused = CodegenError::Unsupported { program: "k".into(), what: "x".into() };
        for error in [Error::Usage("x".into()), refused.into(), memory(1 << 31)] {
            assert!(matches!(reply(&error, Some(1 << 30)), Reply::Refused { .. }), "{error}");
        }
    }
}
