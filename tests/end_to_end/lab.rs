//! `ansc lab`, as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

fn ansc(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ansc")).current_dir(dir).args(args).output().unwrap()
}

fn json(dir: &Path, args: &[&str]) -> serde_json::Value {
    let output = ansc(dir, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ansc {args:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Results and curves, which time does not change.
fn results(comparison: &serde_json::Value) -> Vec<serde_json::Value> {
    let strategies = comparison["strategies"].as_array().unwrap().iter();
    strategies
        .flat_map(|s| s["runs"].as_array().unwrap())
        .map(|run| {
            let curve = run["curve"].as_array().unwrap().iter();
            let curve: Vec<_> = curve.map(|point| [point[0].clone(), point[2].clone()]).collect();
            serde_json::json!([run["seed"], run["trials"], run["result"], curve])
        })
        .collect()
}

#[test]
fn the_simulated_device_is_exact() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let lab = ["lab", "GMM", "--simulated", "--space", "SSRSRS", "--seeds", "2", "--json"];
    let some = ["--strategies", "opevo,random", "--per-round", "16"];
    let run = |more: &[&str]| json(dir, &[&lab[..], &some, more].concat());
    let first = run(&["--trials", "48", "--html", "lab.html"]);
    assert_eq!(first["strategies"].as_array().unwrap().len(), 2);
    assert_eq!(first["space_size"], "115200");
    let page = std::fs::read_to_string(dir.join("lab.html")).unwrap();
    assert!(page.contains("opevo") && page.matches("<svg").count() == 3);
    // A longer run begins with the measurements that a shorter run has recorded.
    run(&["--trials", "32", "--records", "lab.db"]);
    let longer = run(&["--trials", "48", "--records", "lab.db"]);
    assert_eq!(results(&longer), results(&first));
}

#[test]
fn a_real_device_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let lab = ["lab", "GMM", "--strategies", "g-bfs,random", "--trials", "8", "--per-round", "8"];
    let found = json(dir, &[&lab[..], &["--seeds", "1", "--threads", "1", "--json"]].concat());
    for strategy in found["strategies"].as_array().unwrap() {
        assert!(strategy["mean"].as_f64().unwrap() > 0.0, "{strategy}");
    }
    assert!(found["untuned_seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_is_wrong_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let table = [
        (&["lab", "no-such", "--simulated"][..], "neither a file nor a generated workload"),
        (&["lab", "GMM", "--simulated", "--space", "XYZ"], "is not a space"),
        (&["lab", "GMM", "--simulated", "--subgraph", "7"], "there is no subgraph 7"),
    ];
    for (args, message) in table {
        let output = ansc(dir.path(), args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(message), "{args:?}: {errors}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}
