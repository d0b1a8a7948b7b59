//! Statuses, the message of the last error, and the border that no panic crosses.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::load::{LoadError, LoadErrorKind};
use crate::pool::PoolError;
use crate::run_error::RunError;
use crate::session::SessionError;

/// The outcome of a call. Everything but `ANSC_STATUS_OK` leaves a message for
/// `ansc_error_message`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnscStatus {
    /// It was done.
    Ok = 0,
    /// The call itself is wrong: a null pointer, an index out of range, memory that overlaps.
    Argument = 1,
    /// The file cannot be read, or is no undamaged artifact of a version that this library reads.
    Artifact = 2,
    /// This machine cannot run the artifact, or has not the memory or the threads for it.
    Machine = 3,
    /// The inputs, outputs or states do not fit the model: names, element types, shapes, values. Or
    /// the session has no room for what a run would add to its states.
    Data = 4,
    /// The session is running in another thread.
    Busy = 5,
    /// An error of this library. It never shows for a correct one; please report it.
    Internal = 6,
}

/// An error on its way to C.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: AnscStatus,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn argument(message: impl Into<String>) -> Failure {
        Failure { status: AnscStatus::Argument, message: message.into() }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        let status = match error.kind {
            LoadErrorKind::Target(_) => AnscStatus::Machine,
            _ => AnscStatus::Artifact,
        };
        Failure { status, message: error.to_string() }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Failure {
        let status = match error {
            SessionError::Pool(PoolError::TooMany { .. }) => AnscStatus::Argument,
            _ => AnscStatus::Machine,
        };
        Failure { status, message: error.to_string() }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        let status = match &error {
            RunError::Truncate { .. } => AnscStatus::Argument,
            _ if error.is_of_the_machine() => AnscStatus::Machine,
            _ => AnscStatus::Data,
        };
        Failure { status, message: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a C function: an error or a panic becomes a status and a message.
pub(super) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> AnscStatus {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return AnscStatus::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { status: AnscStatus::Internal, message: text_of(panic) },
    };
    // A thread that is about to end may have lost its message already.
    let _ = LAST.try_with(|last| last.replace(c_string(&failure.message)));
    failure.status
}

/// As [`guard`], for functions that cannot fail: `otherwise` if the body panics.
pub(super) fn shield<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("internal error: {}", text.unwrap_or("a panic without a message"))
}

/// The text up to its first null character.
pub(super) fn c_string(text: &str) -> CString {
    let bytes = text.split('\0').next().unwrap_or_default();
    CString::new(bytes).unwrap_or_default()
}

/// The message of the last error in this thread, in UTF-8; empty if there was none.
///
/// It is valid until the next call of this library in this thread that fails, and until the thread
/// ends. It is never null.
#[unsafe(no_mangle)]
pub extern "C" fn ansc_error_message() -> *const c_char {
    shield(c"".as_ptr(), || LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr()))
}

/// The name of a status in a word or two: "ok", "bad argument", ..
#[unsafe(no_mangle)]
pub extern "C" fn ansc_status_name(status: u32) -> *const c_char {
    let name: &'static CStr = match status {
        0 => c"ok",
        1 => c"bad argument",
        2 => c"bad artifact",
        3 => c"machine unfit",
        4 => c"bad data",
        5 => c"session busy",
        6 => c"internal error",
        _ => c"unknown status",
    };
    name.as_ptr()
}

/// The version of this library, such as "0.1.0". Never null, valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn ansc_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        // SAFETY: never null, and this thread makes no other call.
        unsafe { CStr::from_ptr(ansc_error_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn panics_and_errors_become_messages_of_their_thread() {
        assert_eq!(message(), "");
        assert_eq!(guard(|| panic!("number {}", 7)), AnscStatus::Internal);
        assert_eq!(message(), "internal error: number 7");
        let failed = guard(|| Err(Failure::argument("first\0second")));
        assert_eq!((failed, message().as_str()), (AnscStatus::Argument, "first"));
        assert_eq!(guard(|| Ok(())), AnscStatus::Ok);
        assert_eq!(message(), "first");
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
        assert_eq!(shield(5, || panic!("lost")), 5);
    }
}
