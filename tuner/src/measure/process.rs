//! One worker process: requests in, replies out, within a time limit.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::protocol::{Reply, Request};

/// The program that serves requests, and its arguments.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    pub program: std::path::PathBuf,
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
    Died,
}

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

    /// Asks, and waits for the reply. An error of the outer result means that no process can be started.
    pub(super) fn ask(
        &mut self,
        request: &Request,
        limit: Duration,
    ) -> io::Result<Result<Reply, Lost>> {
        if self.running.is_none() {
            self.running = Some(Running::start(&self.command)?);
        }
        let running = self.running.as_mut().expect("just started");
        let reply = running.ask(request, limit);
        if reply.is_err() {
            self.stop();
        }
        Ok(reply)
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

impl Running {
    fn start(command: &WorkerCommand) -> io::Result<Running> {
        let mut child = Command::new(&command.program)
            .args(&command.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // An interrupt from the terminal is for the tuner, which ends its workers in order.
            .process_group(0)
            .spawn()?;
        let requests = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Running { child, requests, replies })
    }

    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, Lost> {
        let mut line = serde_json::to_string(request).expect("requests serialise");
        line.push('\n');
        self.requests
            .write_all(line.as_bytes())
            .and_then(|()| self.requests.flush())
            .map_err(|_| Lost::Died)?;
        let reply = self.replies.recv_timeout(limit).map_err(|e| match e {
            RecvTimeoutError::Timeout => Lost::Timeout,
            RecvTimeoutError::Disconnected => Lost::Died,
        })?;
        // A kernel that wrote over the worker's memory may make it say anything.
        serde_json::from_str(&reply).map_err(|_| Lost::Died)
    }
}
