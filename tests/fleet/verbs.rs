//! `ansc worker`, `ansc tune --fleet`, `ansc dataset collect --fleet` and `ansc fleet status`, as
//! a user runs them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ansc_tuner::Records;
use ansc_tuner::dataset::Dataset;
use ansc_tuner::records::{Record, Sqlite};
use serde_json::Value;

use super::server::Server;

fn ansc(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ansc"));
    command.args(args).current_dir(folder).env_remove("ANSC_FLEET_TOKEN");
    command
}

fn output(folder: &Path, args: &[&str]) -> Output {
    ansc(folder, args).output().unwrap()
}

fn ok(folder: &Path, args: &[&str]) -> String {
    let output = output(folder, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A worker that is ready.
struct Worker(Child);

impl Worker {
    fn start(folder: &Path, args: &[&str]) -> Worker {
        let own = ["worker", "--threads", "1", "--name", "bench", "--lease", "lease", "--json"];
        let mut command = ansc(folder, &[&own[..], args].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines.by_ref().map(Result::unwrap).find(|line| line.contains(" measures for "));
        assert!(ready.is_some(), "{:?}", child.wait_with_output());
        // Nobody waits for what it says later.
        std::thread::spawn(move || lines.for_each(drop));
        Worker(child)
    }

    /// The report of a process after an interrupt.
    fn end(self) -> Value {
        // SAFETY: no pointers; the process was not waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, libc::SIGINT) }, 0);
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn records(file: &Path) -> Vec<Record> {
    let file = Sqlite::open_existing(file).unwrap();
    file.keys().unwrap().iter().flat_map(|key| file.of(key).unwrap()).collect()
}

const TUNE: [&str; 5] = ["tune", "GMM.onnx", "--threads", "1", "--json"];

/// The rights that each role needs, as the book's page says.
const RIGHTS: &str = r#"
all: ["ansc.fleet.call", "_INBOX.>"]
authorization {
  users: [
    { user: tuner, password: word, permissions: { subscribe: $all, publish: [
      "ansc.jobs.>", "ansc.fleet.call", "$JS.API.>", "$JS.ACK.>", "_INBOX.>" ] } }
    { user: worker, password: word, permissions: { subscribe: $all, publish: [
      "ansc.answers.>", "ansc.dead.>", "ansc.tried.>", "$JS.API.>", "$JS.ACK.>", "_INBOX.>" ] } }
  ]
}"#;

#[test]
fn a_model_is_tuned_and_a_data_set_collected_on_another_machine() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    std::fs::write(folder.join("rights.conf"), RIGHTS).unwrap();
    let rights = folder.join("rights.conf");
    let server = Server::with(&folder.join("server"), &["--config", rights.to_str().unwrap()]);
    let as_user = |user: &str| server.url().replace("nats://", &format!("nats://{user}:word@"));
    let (url, workers) = (as_user("tuner"), as_user("worker"));
    let fleet = ["--fleet", &url];
    ok(folder, &["models", "GMM", "-o", "."]);
    let worker = Worker::start(folder, &["--fleet", &workers]);
    let few = ["--per-round", "8", "--trials", "16"];
    let report = ok(folder, &[&TUNE[..], &few, &fleet].concat());
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["trials"], 16);
    let found = records(&folder.join("ansc-records.db"));
    assert!(found.len() >= 16 && found.iter().all(|r| r.machine.as_deref() == Some("bench")));
    ok(folder, &["compile", "GMM.onnx", "--records", "ansc-records.db", "--threads", "1"]);
    ok(folder, &["verify", "GMM.onnx", "GMM.ansc"]);

    let collect = ["dataset", "collect", "set", "GMM", "--per-task", "8", "--threads", "1"];
    ok(folder, &[&collect[..], &fleet].concat());
    let stats = Dataset::open(&folder.join("set")).unwrap().stats().unwrap();
    assert_eq!((stats.platforms.len(), stats.platforms[0].labels), (1, stats.traces));

    let status: Value =
        serde_json::from_str(&ok(folder, &[&["fleet", "status", "--json"][..], &fleet].concat()))
            .unwrap();
    let member = &status["members"][0];
    assert_eq!((&member["role"], &member["machine"]), (&"worker".into(), &"bench".into()));
    let measured = found.len() + stats.traces;
    assert!(member["jobs"].as_u64().unwrap() as usize >= measured, "{status}");
    let page = ok(folder, &[&["fleet", "status"][..], &fleet].concat());
    assert!(page.contains("bench") && page.contains("a minute"), "{page}");
    let served = worker.end();
    assert_eq!((&served["refused"], &served["poisoned"]), (&0.into(), &0.into()), "{served}");
    let page = ok(folder, &[&["fleet", "status"][..], &fleet].concat());
    assert!(page.starts_with("nobody takes part"), "{page}");
}

/// A job that a worker has in its hands when it is interrupted goes back at once.
#[test]
fn an_interrupted_worker_returns_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let server = Server::start(&folder.join("server"));
    let url = server.url();
    ok(folder, &["models", "GMM", "-o", "."]);
    // Longer than the test may take: nothing comes back because a worker was silent.
    let silence = ["--fleet", &url, "--silence", "600"];
    let first = Worker::start(folder, &silence);
    let mut tune = ansc(folder, &[&TUNE[..], &["--fleet", &url, "--trials", "32"]].concat());
    let tune = tune.args(["--per-round", "32"]).stdout(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while !folder.join("ansc-records.db.fleet-0").exists() || start.elapsed().as_secs() < 3 {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    first.end();
    let second = Worker::start(folder, &silence);
    let output = tune.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(records(&folder.join("ansc-records.db")).len() >= 32);
    second.end();
}

#[test]
fn who_one_is_and_who_the_server_is_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let status = |args: &[&str]| output(folder, &[&["fleet", "status"][..], args].concat());
    let refused = |args: &[&str], part: &str| {
        let output = status(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{args:?}: {output:?}");
        assert!(text.contains(part) && !text.contains("s3cr3t"), "{args:?}: {text}");
    };
    let fine = |args: &[&str]| {
        let output = status(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
    };
    let nobody = ["--fleet", "nats://127.0.0.1:1"];
    refused(&nobody, "nats-server --jetstream");
    assert_eq!(status(&[]).status.code(), Some(2));

    let token = Server::with(&folder.join("token"), &["--auth", "s3cr3t"]);
    refused(&["--fleet", &token.url()], "--fleet-token");
    refused(&["--fleet", &token.url(), "--fleet-token", "wrong"], "--fleet-token");
    fine(&["--fleet", &token.url(), "--fleet-token", "s3cr3t"]);
    let with_token = token.url().replace("nats://", "nats://s3cr3t@");
    fine(&["--fleet", &with_token]);

    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        folder.join(name).to_str().unwrap().to_owned()
    };
    // The key is made of the bytes 0 to 31, and is nobody's.
    let user = "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK";
    let seed = write("seed", "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y\n");
    let config = write("nkey.conf", &format!("authorization {{ users: [ {{ nkey: {user} }} ] }}"));
    let nkey = Server::with(&folder.join("nkey"), &["--config", &config]);
    refused(&["--fleet", &nkey.url()], "--fleet-nkey");
    fine(&["--fleet", &nkey.url(), "--fleet-nkey", &seed]);
    refused(&["--fleet", &nkey.url(), "--fleet-nkey", "absent"], "absent");

    let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fleet/tls");
    let file = |name: &str| tls.join(name).to_str().unwrap().to_owned();
    let (certificate, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let options = ["--tls", "--tlscert", &certificate, "--tlskey", &key];
    let tls = Server::with(&folder.join("tls"), &options);
    fine(&["--fleet", &tls.url(), "--fleet-tlsca", &ca]);
    // An authority that nobody told of.
    let plain = status(&["--fleet", &tls.url()]);
    assert_eq!(plain.status.code(), Some(3), "{plain:?}");
}
