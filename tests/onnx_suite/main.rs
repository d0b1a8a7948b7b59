//! ONNX's own backend tests, compiled and run: the whole road from the file to a session's outputs.
//!
//! Cases are folders of `model.onnx`, `input_<i>.npy` and `output_<i>.npy` (`output_<i>.<j>.npy`
//! for elements of sequences), written by `tests/onnx/materialize.py`; `ANSC_ONNX_CORPUS` says
//! where (`scripts/test` sets it). They run in worker processes, so that a crash or a hang costs
//! one case. `tests/onnx/exceptions.txt` lists the cases that may fail, and why; one of them that
//! passes fails the run, as does any other that fails. `ANSC_BLESS=1` takes those that pass from
//! the list.
//!
//! ```text
//! cargo test --release --test onnx_suite               all
//! cargo test --release --test onnx_suite -- softmax    those with `softmax` in their name
//! ANSC_SUITE=gpu cargo test ..                         with the schedules of a GPU, in their form for a CPU
//! ```

mod case;
mod compare;
mod exceptions;
mod summary;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use case::Outcome;
use summary::Suite;
use worker::Worker;

const WORKERS: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(120);

/// The largest first: the last case to end should be a small one. Fewer cases than the minimum mean
/// that the corpus is broken; the share of them that must pass is of those in the corpus.
const SUITES: [Suite; 5] = [
    Suite { name: "light", minimum: 9, must_pass: 1.0 },
    Suite { name: "simple", minimum: 20, must_pass: 0.9 },
    Suite { name: "pytorch-converted", minimum: 80, must_pass: 1.0 },
    Suite { name: "pytorch-operator", minimum: 35, must_pass: 1.0 },
    Suite { name: "node", minimum: 1600, must_pass: 0.95 },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == worker::FLAG) {
        worker::serve();
        return ExitCode::SUCCESS;
    }
    // Options such as `cargo test -- --nocapture` go to all tests. They mean nothing to this one.
    let filter = args.into_iter().find(|a| !a.starts_with('-'));
    match run(filter.as_deref()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(filter: Option<&str>) -> Result<bool, String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let corpus = match std::env::var_os("ANSC_ONNX_CORPUS") {
        Some(path) => PathBuf::from(path),
        None => root.join("target/onnx-corpus"),
    };
    let list = root.join("tests/onnx/exceptions.txt");
    let mut exceptions = exceptions::read(&list)?;
    let mut cases = Vec::new();
    for suite in &SUITES {
        cases.extend(cases_of(&corpus, suite.name)?);
    }
    cases.retain(|case| filter.is_none_or(|text| case.contains(text)));
    let outcomes = run_all(&corpus, &cases);
    let results: Vec<(&str, Outcome)> = cases.iter().map(String::as_str).zip(outcomes).collect();
    if std::env::var_os("ANSC_BLESS").is_some() {
        let passes = |case: &str| results.iter().any(|(c, o)| *c == case && o.passes());
        exceptions::without(&list, passes)?;
        exceptions.retain(|case, _| !passes(case));
    }
    Ok(summary::judge(&SUITES, &results, &exceptions, filter.is_none()))
}

/// `suite/case` of every folder, sorted.
fn cases_of(corpus: &Path, suite: &str) -> Result<Vec<String>, String> {
    let folder = corpus.join(suite);
    let unreadable = |e| format!("{}: {e}; `scripts/test` makes the cases", folder.display());
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        cases.push(format!("{suite}/{}", entry.file_name().to_string_lossy()));
    }
    cases.sort();
    Ok(cases)
}

/// Workers take the next case when they are done with the last.
fn run_all(corpus: &Path, cases: &[String]) -> Vec<Outcome> {
    let next = Mutex::new(cases.iter().enumerate());
    let outcomes = Mutex::new(vec![None; cases.len()]);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut worker = Worker::new(corpus, TIMEOUT);
                loop {
                    let Some((i, case)) = next.lock().expect("no thread panics").next() else {
                        return;
                    };
                    let outcome = worker.run(case);
                    outcomes.lock().expect("no thread panics")[i] = Some(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("no thread panics");
    outcomes.into_iter().map(|o| o.expect("every case is run")).collect()
}
