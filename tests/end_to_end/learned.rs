//! Data sets and trained models, as a user makes and uses them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::text;
use serde_json::Value;

fn ansc(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ansc")).current_dir(dir).args(args).output().unwrap()
}

fn ok(dir: &Path, args: &[&str]) -> String {
    let output = ansc(dir, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    text(&output.stdout)
}

fn object(dir: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&ok(dir, args)).unwrap()
}

fn fails(dir: &Path, args: &[&str], code: i32, part: &str) {
    let output = ansc(dir, args);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    assert!(error.contains(part), "{args:?}: no `{part}` in {error}");
}

const WORKLOADS: [&str; 3] = ["GMM", "SFM", "DEP"];

fn collect(dir: &Path, dataset: &str, seed: &str) -> Value {
    let some = ["--per-task", "6", "--threads", "1", "--seed", seed, "--json"];
    object(dir, &[&["dataset", "collect", dataset], &WORKLOADS[..], &some].concat())
}

/// The bytes of the traces of each task.
fn traces(dataset: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(dataset.join("tasks")).unwrap().map(|f| f.unwrap());
    files
        .map(|f| (f.file_name().into_string().unwrap(), std::fs::read(f.path()).unwrap()))
        .collect()
}

#[test]
fn a_model_is_trained_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let first = collect(dir, "d", "3");
    assert_eq!(
        (&first["interrupted"], first["traces"].as_u64()),
        (&false.into(), first["of_traces"].as_u64())
    );
    assert!(first["measured"].as_u64().unwrap() >= 12, "{first}");
    // All is there: nothing is measured again.
    assert_eq!(collect(dir, "d", "3")["measured"], 0);
    fails(dir, &["dataset", "collect", "d", "GMM", "--per-task", "6", "--seed", "4"], 1, "seed 4");
    // Another number of threads measures what the data set has, and needs no workload.
    let known = ["dataset", "collect", "other", "--known", "--threads", "2", "--json"];
    collect(dir, "other", "3");
    let made = traces(&dir.join("other"));
    let known = object(dir, &known);
    assert_eq!((&known["measured"], &known["traces"]), (&first["of_traces"], &first["of_traces"]));
    assert_eq!(traces(&dir.join("other")), made);
    fails(dir, &["dataset", "collect", "d", "GMM", "--known"], 2, "--known");
    fails(dir, &["dataset", "collect", "nowhere", "--known"], 1, "nowhere");
    let stats = object(dir, &["dataset", "stats", "d", "--json"]);
    assert_eq!(stats["stats"]["platforms"][0]["labels"], stats["stats"]["traces"]);
    assert!(ok(dir, &["dataset", "stats", "d"]).contains("tasks of networks: DEP"));

    ok(dir, &["dataset", "split", "d", "--networks", "SFM"]);
    fails(dir, &["dataset", "split", "d", "--networks", "vgg"], 2, "`vgg`");
    let train = ["train", "d", "-m", "tlp,mtl-tlp,mlp,hist", "-o", "m.bin", "--json"];
    let report = object(dir, &train);
    let models = report["models"].as_array().unwrap();
    let names: Vec<&str> = models.iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tlp", "mtl-tlp", "tlp, target alone", "mlp", "hist"]);
    for model in models {
        let (one, five) =
            (model["top_1"][0].as_f64().unwrap(), model["top_5"][0].as_f64().unwrap());
        assert!(0.0 < one && one <= five && five <= 1.0, "{model}");
    }
    assert_eq!(report["trained"]["platforms"], stats["names"]);

    ok(dir, &["models", "GMM", "-o", "."]);
    let tune = ["tune", "GMM.onnx", "--threads", "1", "--trials", "8", "--records", "r.db"];
    let tuned = object(dir, &[&tune[..], &["--model", "m.bin", "--json"]].concat());
    assert_eq!(tuned["trials"], 8);
    let lab = ["lab", "GMM", "--simulated", "--trials", "16", "--seeds", "1", "--per-round", "8"];
    let with = ["--strategies", "evolutionary,annealing", "--model", "m.bin", "--json"];
    let compared = object(dir, &[&lab[..], &with].concat());
    assert_eq!(compared["strategies"][0]["runs"][0]["trials"], 16);
    fails(dir, &[&tune[..], &["--model", "r.db"]].concat(), 1, "not a trained model");
    fails(
        dir,
        &[&tune[..], &["--model", "m.bin", "--cost-model", "mlp"]].concat(),
        2,
        "--cost-model",
    );
}

#[test]
fn the_same_seed_gives_the_same_traces() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let make = |dataset: &str, seed: &str, cpu: &str| {
        let some = ["--per-task", "6", "--minutes", "0", "--target-cpu", cpu, "--seed", seed];
        ok(dir, &[&["dataset", "collect", dataset], &WORKLOADS[..], &some].concat());
        traces(&dir.join(dataset))
    };
    let here = make("here", "1", "native");
    assert!(here.len() >= 3);
    assert_eq!(here, make("there", "1", "x86-64-v2"));
    assert_ne!(here, make("other", "2", "native"));
}

/// A model of prices chooses among the schedules of a kernel, and no other model does.
#[test]
fn prices_are_corrected_by_a_trained_model() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    collect(dir, "d", "3");
    ok(dir, &["train", "d", "-m", "corrected,price", "-o", "prices.bin"]);
    ok(dir, &["train", "d", "-m", "hist", "-o", "hist.bin"]);
    ok(dir, &["models", "GMM", "-o", "."]);
    let compile = |prices: &'static str| ["compile", "GMM.onnx", "--untuned", "--prices", prices];
    let artifact = || {
        ok(dir, &compile("prices.bin"));
        std::fs::read(dir.join("GMM.ansc")).unwrap()
    };
    assert!(artifact() == artifact());
    ok(dir, &["verify", "GMM.onnx", "GMM.ansc"]);
    fails(dir, &compile("hist.bin"), 1, "hist.bin: a trained model of the kind `hist`");
    fails(dir, &compile("absent.bin"), 1, "absent.bin");
    let cut = std::fs::read(dir.join("prices.bin")).unwrap();
    std::fs::write(dir.join("cut.bin"), &cut[..cut.len() / 2]).unwrap();
    fails(dir, &compile("cut.bin"), 1, "cut.bin");
}
