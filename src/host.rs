//! The program that a verb runs in: the command itself, or one that calls verbs as a library.
//!
//! A library prints nothing and leaves the signals of its program alone. So a program that runs
//! verbs takes their JSON objects as values, and says itself when a search is to end.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use ansc_tuner::measure::WorkerCommand;
use serde::Serialize;
use serde_json::Value;

use crate::Error;

/// An object that the command would print.
pub enum Report {
    /// With `--json-lines`: what one round of a search came to.
    Round(Value),
    /// With `--json`: what the verb came to.
    Result(Value),
}

/// A program gives this to the verbs that it runs.
pub struct Host {
    /// Takes the objects.
    pub report: Box<dyn Fn(Report)>,
    /// Becomes true when a search is to end after its round.
    pub interrupted: Arc<AtomicBool>,
}

thread_local! {
    static HOST: RefCell<Option<Host>> = const { RefCell::new(None) };
}

/// How this compiler is started as a program, for the workers of a search, where that is not by the
/// path of the program that runs.
static PROGRAM: OnceLock<WorkerCommand> = OnceLock::new();

/// Does something on this thread, such as to run a verb, for a program of another kind.
pub fn run<T>(host: Host, act: impl FnOnce() -> T) -> T {
    /// Takes the host away again, also after a panic.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            HOST.set(None);
        }
    }
    HOST.set(Some(host));
    let _end = End;
    act()
}

/// Says once how this compiler is started: a program, and arguments that the verb comes after.
pub fn started_by(program: PathBuf, args: Vec<String>) {
    // The first word stands, as a second one would be the same.
    let _ = PROGRAM.set(WorkerCommand { program, args });
}

/// The program that is this compiler, with the arguments that the verb comes after.
pub(crate) fn program() -> Result<WorkerCommand, Error> {
    if let Some(program) = PROGRAM.get() {
        return Ok(program.clone());
    }
    let program = std::env::current_exe()
        .map_err(|e| Error::Machine(format!("the path of this program is unknown: {e}")))?;
    Ok(WorkerCommand { program, args: vec![] })
}

/// Whether there is a host, who wants neither words on the terminal nor handlers of signals.
pub(crate) fn is_there() -> bool {
    HOST.with_borrow(Option::is_some)
}

/// The host's flag that ends a search.
pub(crate) fn interrupted() -> Option<Arc<AtomicBool>> {
    HOST.with_borrow(|host| Some(host.as_ref()?.interrupted.clone()))
}

/// Gives an object to the host; false if there is none, and it is to be printed.
pub(crate) fn report(value: &impl Serialize, kind: fn(Value) -> Report) -> bool {
    HOST.with_borrow(|host| match host {
        Some(host) => {
            (host.report)(kind(serde_json::to_value(value).expect("reports serialise")));
            true
        }
        None => false,
    })
}
