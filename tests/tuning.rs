//! `ansc tune` and what is compiled with its records, as a user runs them.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use ansc_tuner::Records;
use ansc_tuner::records::Sqlite;

fn ansc(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ansc"));
    command.current_dir(dir).args(args);
    command
}

fn ok(dir: &Path, args: &[&str]) -> Output {
    let output = ansc(dir, args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ansc {args:?}: {errors}");
    output
}

fn records(dir: &Path) -> usize {
    let records = Sqlite::open_existing(&dir.join("ansc-records.db")).unwrap();
    records.check().unwrap();
    records.keys().unwrap().iter().map(|key| records.of(key).unwrap().len()).sum()
}

const TUNE: [&str; 7] = ["tune", "GMM.onnx", "--per-round", "8", "--threads", "1", "--json"];

#[test]
fn what_was_tuned_is_compiled_and_right() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["models", "GMM", "-o", "."]);
    let report = ok(dir, &[&TUNE[..], &["--trials", "24"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["trials"], 24);
    let task = &report["tasks"][0];
    assert!(task["best"].as_f64() <= task["untuned"].as_f64(), "{task}");
    assert!(records(dir) >= 24);
    let compile = ["compile", "GMM.onnx", "--records", "ansc-records.db", "--threads", "1"];
    ok(dir, &[&compile[..], &["-o", "a.ansc"]].concat());
    ok(dir, &[&compile[..], &["-o", "b.ansc"]].concat());
    assert_eq!(
        std::fs::read(dir.join("a.ansc")).unwrap(),
        std::fs::read(dir.join("b.ansc")).unwrap()
    );
    ok(dir, &["verify", "GMM.onnx", "a.ansc"]);
}

#[test]
fn a_killed_run_loses_nothing_and_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["models", "GMM", "-o", "."]);
    let mut known = 0;
    for pause in [700, 1500, 2300] {
        let mut run = ansc(dir, &[&TUNE[..], &["--trials", "100000"]].concat()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        run.kill().unwrap();
        run.wait().unwrap();
        if dir.join("ansc-records.db").exists() {
            let now = records(dir);
            assert!(now >= known, "{known} records became {now}");
            known = now;
        }
    }
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(workers_in(dir), 0);
    ok(dir, &[&TUNE[..], &["--trials", "8"]].concat());
    assert!(records(dir) >= known + 8);
}

/// Processes of ours whose working folder is `dir`.
fn workers_in(dir: &Path) -> usize {
    let dir = dir.canonicalize().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|p| std::fs::read_link(p.path().join("cwd")).is_ok_and(|cwd| cwd == dir))
        .count()
}
