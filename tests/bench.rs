//! Measuring, as trtexec and its like do it: streams, durations, own inputs, traces; and running
//! and comparing on files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ansc_runtime::{Tensor, npy};
use serde_json::Value;

fn ansc(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ansc")).current_dir(directory).args(args).output().unwrap()
}

fn json(directory: &Path, args: &[&str]) -> Value {
    let output = ansc(directory, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
}

fn refused(directory: &Path, args: &[&str], code: i32, reason: &str) {
    let output = ansc(directory, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    assert!(error.contains(reason), "{args:?}: {error}");
}

/// A folder with a compiled network.
fn compiled() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    for args in [&["models", "mlp", "-o", "."][..], &["compile", "mlp.onnx", "--untuned"]] {
        assert!(ansc(&path, args).status.success());
    }
    (folder, path)
}

#[test]
fn streams_durations_and_every_time() {
    let (_folder, dir) = compiled();
    let report = json(
        &dir,
        &["bench", "mlp.ansc", "--streams", "2", "--runs", "3", "--warmup", "1", "--raw", "--json"],
    );
    assert_eq!((&report["streams"], &report["latency"]["runs"]), (&2.into(), &6.into()));
    assert_eq!(report["latency"]["threads"], 1, "of each of several streams");
    assert_eq!(report["times_ms"].as_array().unwrap().len(), 6);
    let number = |key: &str| report[key].as_f64().unwrap();
    assert!(number("throughput") > 0.0 && number("load_ms") > 0.0 && number("first_run_ms") > 0.0);
    let latency = |key: &str| report["latency"][key].as_f64().unwrap();
    let increasing = ["min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms"].map(latency);
    assert!(increasing.is_sorted(), "{increasing:?}");
    let report =
        json(&dir, &["bench", "mlp.ansc", "--duration", "0.05", "--warmup", "0", "--json"]);
    assert!(report["latency"]["runs"].as_u64().unwrap() >= 1 && report.get("times_ms").is_none());
    let both = ["bench", "mlp.ansc", "--runs", "3", "--duration", "1"];
    refused(&dir, &both, 2, "cannot be used with");
    refused(&dir, &["bench", "mlp.ansc", "--streams", "0"], 2, "from 1 on");
}

#[test]
fn traces_are_events_of_threads() {
    let (_folder, dir) = compiled();
    let args =
        ["bench", "mlp.ansc", "--threads", "2", "--runs", "1", "--trace", "t.json", "--json"];
    json(&dir, &args);
    let trace: Value = serde_json::from_slice(&std::fs::read(dir.join("t.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of_kind = |kind: &str| events.iter().filter(|e| e["ph"] == kind).collect::<Vec<_>>();
    assert!(of_kind("M").iter().any(|e| e["args"]["name"] == "caller"));
    let complete = of_kind("X");
    let explained = json(&dir, &["explain", "mlp.ansc", "--json"]).to_string();
    assert!(complete.len() >= 10, "{}", complete.len());
    let mut last = std::collections::BTreeMap::new();
    for event in complete {
        let (start, length) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        let end = last.entry(event["tid"].as_u64().unwrap()).or_insert(0.0);
        assert!(start >= *end - 1e-3 && length >= 0.0, "{event} begins before {end}");
        *end = start + length;
        let kernel = event["args"]["kernel"].as_str().unwrap();
        assert!(explained.contains(kernel), "{kernel}");
    }
    refused(
        &dir,
        &["bench", "mlp.ansc", "--streams", "2", "--trace", "t.json"],
        2,
        "cannot be used with",
    );
}

#[test]
fn archives_go_in_and_out() {
    let (_folder, dir) = compiled();
    let files = json(&dir, &["run", "mlp.ansc", "--seed", "7", "--output-dir", "a", "--json"]);
    let output = files["outputs"][0]["name"].as_str().unwrap();
    let first = npy::read(dir.join(files["outputs"][0]["file"].as_str().unwrap())).unwrap();
    json(&dir, &["run", "mlp.ansc", "--seed", "7", "--output", "a.npz", "--json"]);
    let archive = ansc::npz::read(&dir.join("a.npz")).unwrap();
    assert_eq!(archive[output].to_f64_vec(), first.to_f64_vec());
    // Values that are given are taken, out of an archive as well.
    let inputs = json(&dir, &["inspect", "mlp.ansc", "--json"]);
    let name = inputs["inputs"][0]["name"].as_str().unwrap().to_owned();
    let shape: Vec<usize> = serde_json::from_value(inputs["inputs"][0]["shape"].clone()).unwrap();
    let value = Tensor::from_slice(&shape, &vec![0.25f32; shape.iter().product()]);
    npy::write(dir.join("x.npy"), &value).unwrap();
    ansc::npz::write(&dir.join("x.npz"), &[(name.clone(), value)]).unwrap();
    let by_name = format!("{name}=x.npy");
    json(&dir, &["run", "mlp.ansc", "--input", &by_name, "--output", "b.npz", "--json"]);
    json(&dir, &["run", "mlp.ansc", "--input", "x.npz", "--output", "c.npz", "--json"]);
    let of = |file: &str| ansc::npz::read(&dir.join(file)).unwrap()[output].to_f64_vec();
    assert!(of("b.npz") == of("c.npz") && of("b.npz") != of("a.npz"));
    json(&dir, &["bench", "mlp.ansc", "--input", "x.npz", "--runs", "2", "--json"]);
    refused(&dir, &["run", "mlp.ansc", "--input", "x.npy"], 2, ".npz");
    refused(&dir, &["run", "mlp.ansc", "--input", "missing.npz"], 1, "missing.npz");
}

#[test]
fn verify_takes_folders_and_dumps_what_it_compared() {
    let (_folder, dir) = compiled();
    let inputs = json(&dir, &["inspect", "mlp.ansc", "--json"]);
    let name = inputs["inputs"][0]["name"].as_str().unwrap();
    let shape: Vec<usize> = serde_json::from_value(inputs["inputs"][0]["shape"].clone()).unwrap();
    let value = Tensor::from_slice(&shape, &vec![0.25f32; shape.iter().product()]);
    std::fs::create_dir(dir.join("in")).unwrap();
    npy::write(dir.join("in").join(format!("{name}.npy")), &value).unwrap();
    let verify = ["verify", "mlp.onnx", "mlp.ansc", "--input-dir", "in", "--json"];
    let report = json(&dir, &[&verify[..], &["--layers", "--dump-tensors", "out"]].concat());
    assert_eq!(report["ok"], true);
    let index = std::fs::read(dir.join("out/index.json")).unwrap();
    let index: Vec<Value> = serde_json::from_slice(&index).unwrap();
    assert!(index.len() > report["outputs"].as_array().unwrap().len(), "kernels too");
    for entry in &index {
        let read =
            |key: &str| npy::read(dir.join("out").join(entry[key].as_str().unwrap())).unwrap();
        let (own, reference) = (read("file"), read("reference"));
        assert_eq!(own.shape(), reference.shape(), "{entry}");
    }
    std::fs::create_dir(dir.join("empty")).unwrap();
    let verify = ["verify", "mlp.onnx", "mlp.ansc", "--input-dir", "empty"];
    refused(&dir, &verify, 1, &format!("{name}.npy"));
}

#[test]
fn onnxruntime_is_a_reference_where_python_has_it() {
    let (_folder, dir) = compiled();
    let verify = ["verify", "mlp.onnx", "mlp.ansc", "--against", "onnxruntime"];
    let nothing = [&verify[..], &["--python", "./nothing"]].concat();
    refused(&dir, &nothing, 3, "--python PROGRAM");
    refused(&dir, &[&verify[..], &["--layers"]].concat(), 2, "--layers");
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/venv/bin/python");
    let has = |module: &str| {
        let import = format!("import {module}");
        Command::new(&python).args(["-c", &import]).output().is_ok_and(|o| o.status.success())
    };
    if !has("onnxruntime") {
        eprintln!("not compared: {} has no ONNX Runtime", python.display());
        return;
    }
    let report =
        json(&dir, &[&verify[..], &["--python", python.to_str().unwrap(), "--json"]].concat());
    assert_eq!(report["ok"], true, "{report}");
}
