//! Verbs of the command as functions: words in, their JSON object out.
//!
//! A verb runs on a thread of its own. The calling thread waits for what it reports, gives the
//! rounds of a search to a function of Python, and looks for signals, so that Ctrl-C works. No
//! handler of a signal is replaced.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use ansc::error::{EXIT_MACHINE, EXIT_USAGE};
use ansc::host::{self, Host, Report};
use ansc::{Error, command_line, verbs};
use pyo3::prelude::*;
use serde_json::Value;

use crate::error;

/// How often the calling thread looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Passes recurse as deep as a model is: as much as the main thread of the command has.
const STACK: usize = 8 << 20;

/// Adds the functions to the module, and says how this process starts workers.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let executable = module.py().import("sys")?.getattr("executable")?;
    if let Ok(python) = executable.extract::<PathBuf>() {
        host::started_by(python, vec!["-m".into(), "ansc".into()]);
    }
    module.add_function(wrap_pyfunction!(verb, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)
}

/// Runs the command that `words` are, and returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| command_line::main(words))
}

/// Runs the verb that `words` are, and returns the object that it prints with `--json`. `progress`
/// is called with what each round of a search came to.
#[pyfunction]
#[pyo3(signature = (words, progress=None))]
fn verb<'py>(
    py: Python<'py>,
    words: Vec<OsString>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let command = command_line::command(words).map_err(|e| exception(py, e))?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let (sender, mut reports) = channel();
    let run = {
        let interrupted = interrupted.clone();
        move || {
            let report = Box::new(move |value| drop(sender.send(value)));
            host::run(Host { report, interrupted }, || verbs::run(command))
        }
    };
    let thread = std::thread::Builder::new().name("ansc".into()).stack_size(STACK).spawn(run);
    let thread = thread.map_err(|e| error::machine(format!("no thread can be started: {e}")))?;
    let stop = || interrupted.store(true, Ordering::Relaxed);
    let (last, raised) = listen(py, &mut reports, progress, &stop);
    let done = py.detach(|| thread.join());
    // An exception of Python, such as `KeyboardInterrupt`, goes before the verb's own error.
    raised.map_or(Ok(()), Err)?;
    match (done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), last) {
        (Ok(()), None) => Ok(py.None().into_bound(py)),
        // A report that finds fault is a report.
        (Ok(()) | Err(Error::Reported(_)), Some(report)) => object(py, &report),
        (Err(e), _) => Err(exception(py, e)),
    }
}

/// Takes reports until the verb ends. Returns the last one, and what Python raised meanwhile.
fn listen(
    py: Python<'_>,
    reports: &mut Receiver<Report>,
    progress: Option<&Bound<'_, PyAny>>,
    stop: &dyn Fn(),
) -> (Option<Value>, Option<PyErr>) {
    let (mut last, mut raised) = (None, None);
    loop {
        let told = match (py.detach(|| next(reports)), progress) {
            (Ok(Report::Result(report)), _) => {
                last = Some(report);
                Ok(())
            }
            (Ok(Report::Round(round)), Some(progress)) if raised.is_none() => {
                tell(py, &round, progress)
            }
            (Ok(Report::Round(_)) | Err(RecvTimeoutError::Timeout), _) => Ok(()),
            (Err(RecvTimeoutError::Disconnected), _) => return (last, raised),
        };
        if let Err(error) = told.and_then(|()| py.check_signals()) {
            stop();
            raised.get_or_insert(error);
        }
    }
}

/// Waits for a moment. (By unique reference: a receiver is for one thread at a time.)
fn next(reports: &mut Receiver<Report>) -> Result<Report, RecvTimeoutError> {
    reports.recv_timeout(LOOK_EVERY)
}

fn tell(py: Python<'_>, round: &Value, progress: &Bound<'_, PyAny>) -> PyResult<()> {
    progress.call1((object(py, round)?,)).map(drop)
}

fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (value.to_string(),))
}

/// The error as the command would print it, with the list of `problems` of a model that cannot be
/// compiled.
fn exception(py: Python<'_>, error: Error) -> PyErr {
    let raised = match error.exit_code() {
        EXIT_USAGE => error::usage(&error),
        EXIT_MACHINE => error::machine(&error),
        _ => error::data(&error),
    };
    let json = error.to_json();
    let problems = json.get("problems").cloned().unwrap_or_else(|| Value::Array(vec![]));
    let attached =
        object(py, &problems).and_then(|problems| raised.value(py).setattr("problems", problems));
    attached.map_or_else(|e| e, |()| raised)
}
