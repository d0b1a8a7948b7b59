//! One worker process: requests in, replies out, within a time limit.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::protocol::{Reply, Request};
use super::{MeasureError, spawner};

/// The program that serves requests, and its arguments.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The program that is started.
    pub program: std::path::PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

pub(super) fn ignore_broken_pipes() {
    // SAFETY: replaces the action of one signal by none; no handler of ours runs.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Why there is no reply. The process is gone then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lost {
    Timeout,
    /// The process ended because of its request, or its reply made no sense.
    Died,
}

/// A fault of the machine and not of the request. The next process may fare better.
enum Trouble {
    NotStarted(io::Error),
    Unfit(String),
    Killed { signal: i32 },
}

/// Processes that are tried before the machine is found to be unfit.
const TRIES: usize = 3;
/// Before the second try; before the third it is longer.
const PAUSE: Duration = Duration::from_millis(150);

/// A process that is started when it is first needed, and again after it was lost.
pub(super) struct Worker {
    command: WorkerCommand,
    running: Option<Running>,
}

struct Running {
    child: Child,
    requests: ChildStdin,
    replies: Receiver<String>,
}

impl Worker {
    pub(super) fn new(command: WorkerCommand) -> Worker {
        Worker { command, running: None }
    }

    /// Asks, and waits for the reply. An error of the outer result is the machine's, which was
    /// given several chances.
    pub(super) fn ask(
        &mut self,
        request: &Request,
        limit: Duration,
    ) -> Result<Result<Reply, Lost>, MeasureError> {
        for attempt in 1.. {
            let trouble = match self.ask_once(request, limit) {
                Ok(reply) => return Ok(reply),
                Err(trouble) => trouble,
            };
            self.stop();
            if attempt == TRIES {
                return Err(trouble.into_error());
            }
            std::thread::sleep(PAUSE * (attempt * attempt) as u32);
        }
        unreachable!("the last try returns")
    }

    fn ask_once(
        &mut self,
        request: &Request,
        limit: Duration,
    ) -> Result<Result<Reply, Lost>, Trouble> {
        if self.running.is_none() {
            self.running = Some(Running::start(&self.command).map_err(Trouble::NotStarted)?);
        }
        let running = self.running.as_mut().expect("just started");
        let lost = match running.ask(request, limit) {
            Ok(Reply::Unfit { message }) => return Err(Trouble::Unfit(message)),
            Ok(reply) => return Ok(Ok(reply)),
            Err(lost) => lost,
        };
        let signal = if lost == Lost::Died { running.killed_by() } else { None };
        self.stop();
        match signal {
            Some(signal) => Err(Trouble::Killed { signal }),
            None => Ok(Err(lost)),
        }
    }

    /// Ends the process; the next request starts another.
    pub(super) fn stop(&mut self) {
        if let Some(mut running) = self.running.take() {
            // It may be gone already, or stuck in a kernel that never ends.
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Trouble {
    fn into_error(self) -> MeasureError {
        match self {
            Trouble::NotStarted(e) => MeasureError::Worker(e),
            Trouble::Unfit(message) => MeasureError::Unfit(message),
            Trouble::Killed { signal } => MeasureError::Killed { signal, times: TRIES },
        }
    }
}

/// Signals by which a process ends of what it does itself. All others come from outside.
const OWN_SIGNALS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP];
/// How long a process that closed its output may take to end.
const END: Duration = Duration::from_secs(2);

impl Running {
    fn start(command: &WorkerCommand) -> io::Result<Running> {
        let mut new = Command::new(&command.program);
        new.args(&command.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // An interrupt from the terminal is for the tuner, which ends its workers in order.
            .process_group(0);
        let mut child = spawner::start(new)?;
        let requests = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, replies) = channel();
        let reader = std::thread::Builder::new().spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let running = Running { child, requests, replies };
        match reader {
            Ok(_) => Ok(running),
            Err(e) => {
                Worker { command: command.clone(), running: Some(running) }.stop();
                Err(e)
            }
        }
    }

    /// The signal from outside that ended the process, if one did.
    fn killed_by(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.signal().filter(|s| !OWN_SIGNALS.contains(s)),
                Ok(None) if start.elapsed() < END => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                // It lives and talks nonsense.
                _ => return None,
            }
        }
    }

    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, Lost> {
        let mut line = serde_json::to_string(request).expect("requests serialise");
        line.push('\n');
        // A failed write is ignored: a process that is gone may have said why before.
        let _ = self.requests.write_all(line.as_bytes()).and_then(|()| self.requests.flush());
        let reply = self.replies.recv_timeout(limit).map_err(|e| match e {
            RecvTimeoutError::Timeout => Lost::Timeout,
            RecvTimeoutError::Disconnected => Lost::Died,
        })?;
        // A kernel that wrote over the worker's memory may make it say anything.
        serde_json::from_str(&reply).map_err(|_| Lost::Died)
    }
}
