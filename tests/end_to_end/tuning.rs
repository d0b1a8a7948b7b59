//! `ansc tune` and what is compiled with its records, as a user runs them.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
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
    // The export holds the record that a compilation would take and the one that it is compared
    // with. These are two lines of records, or none.
    ok(dir, &["records", "export", "ansc-records.db", "--chosen", "-o", "chosen.jsonl"]);
    let lines = std::fs::read_to_string(dir.join("chosen.jsonl")).unwrap();
    let kept = lines.lines().filter(|line| line.contains("\"kind\":\"record\"")).count();
    assert!(kept == 0 || kept == 2, "{lines}");
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
    assert_eq!(processes_in(dir), [0; 0]);
    ok(dir, &[&TUNE[..], &["--trials", "8"]].concat());
    assert!(records(dir) >= known + 8);
}

/// A run whose temporary folder is `dir/tmp`.
fn tune_in(dir: &Path, trials: &str) -> Command {
    let mut command = ansc(dir, &[&TUNE[..], &["--trials", trials]].concat());
    command.env("TMPDIR", dir.join("tmp")).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until there is an artifact of a candidate.
fn wait_for_artifact(dir: &Path) {
    let start = Instant::now();
    let is_there = || {
        let folders = std::fs::read_dir(dir.join("tmp")).into_iter().flatten().flatten();
        let mut files = folders.flat_map(|f| std::fs::read_dir(f.path()).into_iter().flatten());
        files.any(|f| f.is_ok_and(|f| f.path().extension().is_some_and(|e| e == "ansc")))
    };
    while !is_there() {
        assert!(start.elapsed() < Duration::from_secs(60), "no candidate was built");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_temporary_folder_that_goes_away_is_no_result_of_a_candidate() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["models", "GMM", "-o", "."]);
    let absent = tune_in(dir, "16").output().unwrap();
    let text = String::from_utf8_lossy(&absent.stderr);
    assert_eq!(absent.status.code(), Some(3), "{text}");
    assert!(text.contains("set TMPDIR"), "{text}");
    std::fs::create_dir(dir.join("tmp")).unwrap();
    let mut run = tune_in(dir, "100000").spawn().unwrap();
    wait_for_artifact(dir);
    while run.try_wait().unwrap().is_none() {
        // Files that are being written meanwhile may be in the way.
        let _ = std::fs::remove_dir_all(dir.join("tmp"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = run.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("this machine cannot measure"), "{text}");
    let file = Sqlite::open_existing(&dir.join("ansc-records.db")).unwrap();
    let known = file.keys().unwrap().into_iter().flat_map(|key| file.of(&key).unwrap());
    assert_eq!(known.filter(|record| record.outcome.failure().is_some()).count(), 0);
}

#[test]
fn a_request_to_end_is_an_interrupt() {
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        ok(dir, &["models", "GMM", "-o", "."]);
        std::fs::create_dir(dir.join("tmp")).unwrap();
        let mut command = tune_in(dir, "100000");
        // Who runs the tests may ignore it, which programs inherit.
        // SAFETY: `signal` may be called between fork and exec, and sets no handler here.
        unsafe {
            command.pre_exec(move || {
                libc::signal(signal, libc::SIG_DFL);
                Ok(())
            })
        };
        let run = command.spawn().unwrap();
        wait_for_artifact(dir);
        // SAFETY: no pointers; the process was not waited for.
        assert_eq!(unsafe { libc::kill(run.id() as i32, signal) }, 0);
        let output = run.wait_with_output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &report["stop"]), (Some(0), &"interrupted".into()));
        assert!(is_empty(&dir.join("tmp")));
    }
}

#[test]
fn nothing_outlives_a_killed_run_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["models", "GMM", "-o", "."]);
    std::fs::create_dir(dir.join("tmp")).unwrap();
    let mut run = tune_in(dir, "100000").spawn().unwrap();
    wait_for_artifact(dir);
    // A worker asks for its end as the first thing that it does: all have begun by now.
    std::thread::sleep(Duration::from_secs(2));
    let workers: Vec<i32> =
        processes_in(dir).into_iter().filter(|p| *p != run.id() as i32).collect();
    assert!(!workers.is_empty());
    for worker in workers {
        // SAFETY: no pointers. A process that is gone already needs not be stopped.
        unsafe { libc::kill(worker, libc::SIGSTOP) };
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let are_gone = |_| {
        std::thread::sleep(Duration::from_millis(100));
        processes_in(dir).is_empty()
    };
    assert!((0..200).any(are_gone), "{:?} outlive their parent", processes_in(dir));
    assert!(!is_empty(&dir.join("tmp")), "kill -9 leaves no time to clean up");
    let next = tune_in(dir, "8").output().unwrap();
    assert!(next.status.success(), "{}", String::from_utf8_lossy(&next.stderr));
    assert!(is_empty(&dir.join("tmp")));
}

/// A run chooses by its seed and by what is known; a file of records becomes a choice by the
/// records alone.
#[test]
fn the_same_seed_and_records_choose_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["models", "GMM", "-o", "."]);
    ok(dir, &[&TUNE[..], &["--trials", "24", "--seed", "3"]].concat());
    let known = programs(dir, "ansc-records.db");
    let lines = ok(dir, &["records", "export", "ansc-records.db"]).stdout;
    let proposed = ["a", "b"].map(|name| {
        let (db, lines_file) = (format!("{name}.db"), format!("{name}.jsonl"));
        std::fs::write(dir.join(&lines_file), &lines).unwrap();
        ok(dir, &["records", "import", &db, &lines_file]);
        let artifact = format!("{name}.ansc");
        let compile = ["compile", "GMM.onnx", "--threads", "1", "--records", &db];
        ok(dir, &[&compile[..], &["-o", &artifact]].concat());
        // Whatever is measured now, the first round was chosen before.
        let again = ["--trials", "8", "--seed", "5", "--records", &db];
        ok(dir, &[&TUNE[..], &again].concat());
        programs(dir, &db)[known.len()..][..8].to_vec()
    });
    assert_eq!(proposed[0], proposed[1]);
    assert!(proposed[0][1..].iter().all(|p| !known.contains(p)));
    let bytes = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert_eq!(bytes("a.ansc"), bytes("b.ansc"));
}

/// In the order of measurement.
fn programs(dir: &Path, file: &str) -> Vec<u64> {
    let records = Sqlite::open_existing(&dir.join(file)).unwrap();
    let keys = records.keys().unwrap();
    keys.iter().flat_map(|key| records.of(key).unwrap()).map(|r| r.program).collect()
}

#[test]
fn runs_end_when_they_are_asked_to_and_say_what_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["models", "GMM", "-o", "."]);
    let tune = ["tune", "GMM.onnx", "--per-round", "4", "--threads", "1", "--trials", "100000"];
    let quiet = ok(dir, &[&tune[..], &["--until-gain", "100%", "--quiet"]].concat());
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{quiet:?}");
    let lines = ok(dir, &[&tune[..], &["--minutes", "0.05", "--json-lines"]].concat());
    let lines = String::from_utf8(lines.stdout).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let (report, rounds) = lines.split_last().unwrap();
    assert_eq!(report["stop"], "time");
    assert!(!rounds.is_empty());
    let trials: Vec<u64> = rounds.iter().map(|r| r["trials"].as_u64().unwrap()).collect();
    assert!(trials.is_sorted() && trials.last() == report["trials"].as_u64().as_ref());
    assert!(rounds.iter().all(|r| r["expected_gain"].is_f64() && r["best_seconds"].is_f64()));
    let phases = report["phases"].as_array().unwrap();
    for name in ["propose", "learn", "codegen", "link", "load", "time", "check", "reference"] {
        assert!(phases.iter().any(|p| p["name"] == name), "{name}: {phases:?}");
    }
    let told = ok(dir, &[&tune[..], &["--until-gain", "100%", "--records", "own.db"]].concat());
    let (said, begin) = (text(&told.stdout), text(&told.stderr));
    assert!(begin.contains("1 kernel to tune; measurements go to own.db"), "{begin}");
    assert!(said.contains("stopped: another round would gain too little ("), "{said}");
    assert!(said.contains("\ngained: ") && said.contains(" ms in a run\n"), "{said}");
    assert!(said.ends_with("\n  ansc compile GMM.onnx --threads 1 --records own.db\n"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    let gain = ok(dir, &[&tune[..], &["--until-gain", "100%", "--json"]].concat());
    let gain: serde_json::Value = serde_json::from_slice(&gain.stdout).unwrap();
    assert_eq!(gain["stop"], "little_to_gain");
}

#[test]
fn a_tuned_artifact_explains_itself() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["models", "TBG", "-o", "."]);
    let tune = ["tune", "TBG.onnx", "--per-round", "8", "--threads", "1", "--trials", "24"];
    ok(dir, &[&tune[..], &["--records", "r.db", "--quiet"]].concat());
    let from_records = ["--threads", "1", "--records", "r.db"];
    ok(dir, &[&["compile", "TBG.onnx", "-o", "t.ansc"], &from_records[..]].concat());
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&ok(dir, &[args, &["--json"]].concat()).stdout).unwrap()
    };
    let artifact = json(&["explain", "t.ansc", "--threads", "1"]);
    let kernels = artifact["kernels"].as_array().unwrap();
    let share: f64 = kernels.iter().map(|k| k["share"].as_f64().unwrap()).sum();
    assert!((share - 1.0).abs() < 1e-6, "{artifact}");
    for kernel in kernels {
        let tuning = &kernel["tuning"];
        assert!(tuning["seconds"].as_f64() <= tuning["untuned_seconds"].as_f64(), "{tuning}");
        assert!(!tuning["steps"].as_array().unwrap().is_empty(), "{tuning}");
        assert!(!tuning["rules"].as_array().unwrap().is_empty(), "{tuning}");
        assert!(kernel["roofline"]["share"].as_f64().unwrap() > 0.0, "{kernel}");
    }
    let planned = json(&[&["explain", "TBG.onnx", "--loops"], &from_records[..]].concat());
    let planned = &planned["kernels"];
    assert_eq!(planned.as_array().unwrap().len(), kernels.len());
    assert!(planned[0]["listing"].as_str().unwrap().contains("for "), "{planned}");
    for (file, title) in [("r.db", "<h1>Tuning</h1>"), ("t.ansc", "<h1>Kernels</h1>")] {
        let page = json(&["report", file, "-o", "page.html"]);
        assert_eq!(page["page"], "page.html");
        let page = std::fs::read_to_string(dir.join("page.html")).unwrap();
        assert!(page.contains(title) && page.contains("class=\"roofline\""), "{page}");
        assert!(page.contains("class=\"graph\"") == (file == "t.ansc"), "{page}");
    }
    assert_eq!(
        ansc(dir, &["explain", "t.ansc", "no-such-kernel"]).status().unwrap().code(),
        Some(2)
    );
}

/// Times with constants in memory do not compare with those of constants in the caches, but are
/// better than nothing for a model that has them there.
#[test]
fn records_with_cold_constants_are_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["models", "mlp", "-o", "."]);
    let targets = || -> BTreeSet<String> {
        let records = Sqlite::open_existing(&dir.join("r.db")).unwrap();
        records.keys().unwrap().into_iter().map(|key| key.target).collect()
    };
    let tune = |constants: &str| {
        let how = ["--per-round", "8", "--threads", "1", "--trials", "8", "--records", "r.db"];
        ok(dir, &[&["tune", "mlp.onnx", "--quiet", "--constants", constants], &how[..]].concat());
        targets()
    };
    let cold = tune("cold").pop_first().unwrap();
    assert!(cold.ends_with(" with cold constants") && targets().len() == 1, "{cold}");
    ok(dir, &["compile", "mlp.onnx", "-o", "a.ansc", "--records", "r.db", "--threads", "1"]);
    ok(dir, &["verify", "mlp.onnx", "a.ansc"]);
    let explained = ok(dir, &["explain", "a.ansc", "--threads", "1", "--json"]).stdout;
    let explained: serde_json::Value = serde_json::from_slice(&explained).unwrap();
    assert!(explained["kernels"][0]["tuning"]["seconds"].as_f64() > Some(0.0), "{explained}");
    let warm = cold.trim_end_matches(" with cold constants").to_owned();
    assert_eq!(tune("warm"), [cold, warm].into());
}

/// Processes of ours whose working folder is `dir`.
fn processes_in(dir: &Path) -> Vec<i32> {
    let dir = dir.canonicalize().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|p| std::fs::read_link(p.path().join("cwd")).is_ok_and(|cwd| cwd == dir))
        .filter_map(|p| p.file_name().to_str()?.parse().ok())
        .collect()
}
