//! Processes that run cases: names in on standard input, outcomes out on standard output, one a
//! line.

use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::case::{self, Outcome};

pub(crate) const FLAG: &str = "--worker";

/// The folder of the case and the path of the artifact.
type Order = (PathBuf, PathBuf);

/// A process that is started when there is a case for it, and again after it died.
pub(crate) struct Worker<'a> {
    corpus: &'a Path,
    timeout: Duration,
    scratch: tempfile::TempDir,
    process: Option<Process>,
}

struct Process {
    child: Child,
    orders: ChildStdin,
    outcomes: Receiver<Outcome>,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(corpus: &'a Path, timeout: Duration) -> Worker<'a> {
        let scratch = tempfile::tempdir().expect("a directory for artifacts");
        Worker { corpus, timeout, scratch, process: None }
    }

    pub(crate) fn run(&mut self, case: &str) -> Outcome {
        let artifact = self.scratch.path().join("case.ansc");
        let order: Order = (self.corpus.join(case), artifact);
        let process = self.process.get_or_insert_with(start);
        let line = serde_json::to_string(&order).expect("paths are text");
        // Where the process is gone, there is no outcome either.
        let _ = writeln!(process.orders, "{line}");
        match process.outcomes.recv_timeout(self.timeout) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => {
                self.stop();
                Outcome::Timeout
            }
            Err(RecvTimeoutError::Disconnected) => Outcome::Crash(self.stop()),
        }
    }

    /// Ends the process, dead or alive, and says how it ended.
    fn stop(&mut self) -> String {
        let Some(mut process) = self.process.take() else { return String::new() };
        // It may have ended by itself.
        let _ = process.child.kill();
        process.child.wait().map_or_else(|e| e.to_string(), |status: ExitStatus| status.to_string())
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start() -> Process {
    let program = std::env::current_exe().expect("the path of this program");
    let mut child = Command::new(program)
        .arg(FLAG)
        // There is a worker for each core already.
        .env("RAYON_NUM_THREADS", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts again");
    let orders = child.stdin.take().expect("it is piped");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let (sender, outcomes) = channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let outcome = serde_json::from_str(&line).unwrap_or(Outcome::Crash(line));
            if sender.send(outcome).is_err() {
                return;
            }
        }
    });
    Process { child, orders, outcomes }
}

/// The other side: runs until there is nothing more to do.
pub(crate) fn serve() {
    static PANIC: Mutex<String> = Mutex::new(String::new());
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string().replace('\n', " ");
        *PANIC.lock().unwrap_or_else(|e| e.into_inner()) = text;
    }));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (folder, artifact): Order = serde_json::from_str(&line).expect("the parent writes it");
        let outcome = catch_unwind(AssertUnwindSafe(|| case::run(&folder, &artifact)));
        let outcome = outcome.unwrap_or_else(|_| {
            Outcome::Panic(PANIC.lock().unwrap_or_else(|e| e.into_inner()).clone())
        });
        // A later case must not find it.
        let _ = std::fs::remove_file(&artifact);
        println!("{}", serde_json::to_string(&outcome).expect("outcomes are text"));
    }
}
