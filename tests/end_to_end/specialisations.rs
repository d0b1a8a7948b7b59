//! One artifact for several sizes of a dimension: each specialisation computes what a model
//! compiled for it alone computes, to the bit, and weights are stored once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{ansc, refuses, str, text};
use ansc_models::Builder;
use ansc_models::proto::{Attribute, Dim, ElemType};
use ansc_runtime::{Model, RunError, SessionOptions, Tensor, npy};
use serde_json::Value;

/// A convolution, a pool and a product for `x: [batch, 3, size, 16]`, with `size` a name or a
/// number.
fn network(dir: &Path, size: Dim) -> PathBuf {
    let mut b = Builder::new("net");
    let dims = [Dim::Named("batch"), Dim::Size(3), size, Dim::Size(16)];
    let x = b.typed_input("x", ElemType::F32, &dims);
    let w = b.weight(&[32, 3, 3, 3], 27, 1.0);
    let y = b.op("Conv", &[&x, &w], &[("pads", Attribute::Ints(vec![1, 1, 1, 1]))]);
    let y = b.op("Relu", &[&y], &[]);
    let y = b.op("GlobalAveragePool", &[&y], &[]);
    let y = b.op("Flatten", &[&y], &[]);
    let (w, bias) = (b.weight(&[32, 48], 32, 1.0), b.uniform(&[48], -1.0, 1.0));
    let y = b.op("Gemm", &[&y, &w, &bias], &[]);
    b.result("y", &[Dim::Named("batch"), Dim::Size(48)], "Softmax", &[&y], &[]);
    let path = dir.join("net.onnx");
    std::fs::write(&path, b.finish().to_bytes()).unwrap();
    path
}

fn compiled(model: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let output = model.with_file_name(name);
    let all = [&["compile", str(model), "-o", str(&output)], arguments].concat();
    let done = ansc(&all);
    assert!(done.status.success(), "{}", text(&done.stderr));
    output
}

fn json(args: &[&str]) -> Value {
    let output = ansc(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn image(batch: usize, size: usize) -> Tensor {
    let values: Vec<f32> =
        (0..batch * 48 * size).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&[batch, 3, size, 16], &values)
}

#[test]
fn each_computes_what_a_model_for_it_alone_does() {
    let dir = tempfile::tempdir().unwrap();
    let model = network(dir.path(), Dim::Named("size"));
    let several = compiled(&model, "several.ansc", &["--dim", "batch=1,4", "--dim", "size=16,7"]);
    let several = Model::load(several).unwrap();
    let names: Vec<&str> = several.specialisations().iter().map(|s| s.name.as_str()).collect();
    let expected = ["batch=1 size=16", "batch=1 size=7", "batch=4 size=16", "batch=4 size=7"];
    assert_eq!(names, expected);
    for threads in [1, 3] {
        let options = SessionOptions { threads, ..SessionOptions::default() };
        let mut session = several.session_with(&options).unwrap();
        for (batch, size) in [(4, 7), (1, 16), (4, 16), (1, 7), (4, 7)] {
            let dims = [format!("batch={batch}"), format!("size={size}")];
            let alone = compiled(&model, "alone.ansc", &["--dim", &dims[0], "--dim", &dims[1]]);
            let x = image(batch, size);
            let mut lone = Model::load(alone).unwrap().session_with(&options).unwrap();
            let reference = lone.run(&[("x", &x)]).unwrap();
            assert_eq!(reference[0].1.shape(), [batch, 48]);
            assert_eq!(session.run(&[("x", &x)]).unwrap(), reference, "{dims:?}");
            assert_eq!(session.specialisation().name, dims.join(" "));
        }
        let error = session.run(&[("x", &image(2, 7))]).unwrap_err();
        assert!(
            matches!(error, RunError::Specialisation { available, .. } if available.len() == 4)
        );
    }
}

#[test]
fn weights_and_kernels_are_shared() {
    let dir = tempfile::tempdir().unwrap();
    let model = network(dir.path(), Dim::Size(16));
    let sizes = ["batch=1", "batch=4", "batch=1,4"];
    let manifests = sizes
        .iter()
        .map(|dim| Model::read_manifest(compiled(&model, "m.ansc", &["--dim", dim])).unwrap());
    let [one, four, both] = &manifests.collect::<Vec<_>>()[..] else { unreachable!() };
    // No more than if nothing could be shared, and no second copy of what neither packs.
    assert!(both.weight_bytes < one.weight_bytes + four.weight_bytes);
    let arena = |m: &ansc_runtime::manifest::Manifest, i: usize| m.specialisations[i].arena_bytes;
    assert_eq!([arena(both, 0), arena(both, 1)], [arena(one, 0), arena(four, 0)]);
    assert_eq!(both.kernels.len(), one.kernels.len() + four.kernels.len());
}

#[test]
fn the_same_bytes_with_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let model = network(dir.path(), Dim::Size(16));
    let mut first = None;
    for threads in ["1", "7"] {
        let output = dir.path().join(format!("{threads}.ansc"));
        let done = Command::new(env!("CARGO_BIN_EXE_ansc"))
            .args(["compile", str(&model), "-o", str(&output), "--dim", "batch=1,4,16"])
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
        let bytes = std::fs::read(output).unwrap();
        assert!(*first.get_or_insert_with(|| bytes.clone()) == bytes);
    }
}

#[test]
fn every_verb_knows_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let model = network(dir.path(), Dim::Size(16));
    assert_eq!(json(&["check", str(&model), "--dim", "batch=1,4", "--json"])["compiles"], true);
    let artifact = compiled(&model, "net.ansc", &["--dim", "batch=1,4"]);
    let path = str(&artifact);
    let manifest = json(&["inspect", path, "--json"]);
    let shape = |i: usize| &manifest["specialisations"][i]["inputs"][0]["shape"];
    assert_eq!([shape(0)[0].as_u64(), shape(1)[0].as_u64()], [Some(1), Some(4)]);
    let shown = text(&ansc(&["inspect", path]).stdout);
    assert!(shown.contains("for batch=1:") && shown.contains("for batch=4:"), "{shown}");
    let report = json(&["verify", str(&model), path, "--layers", "--json"]);
    let of = |row: &Value| row["specialisation"].as_str().unwrap().to_owned();
    let rows: Vec<String> = report["outputs"].as_array().unwrap().iter().map(of).collect();
    assert_eq!(
        (rows, &report["ok"]),
        (vec!["batch=1".into(), "batch=4".into()], &Value::Bool(true))
    );
    for (shape, name) in [("x=4x3x16x16", "batch=4"), ("x=1x3x16x16", "batch=1")] {
        let bench =
            json(&["bench", path, "--shape", shape, "--runs", "2", "--per-kernel", "--json"]);
        assert_eq!(bench["specialisation"], name);
        let kernels = bench["kernels"].as_array().unwrap();
        let share: f64 = kernels.iter().map(|k| k["share"].as_f64().unwrap()).sum();
        assert!((share - 1.0).abs() < 1e-9, "{share}");
        let rated = |k: &&Value| k["gflops"].is_f64() && k["gbytes"].is_f64();
        assert!(kernels.iter().filter(rated).count() >= 3, "{kernels:?}");
    }
    let x = dir.path().join("x.npy");
    npy::write(&x, &image(4, 16)).unwrap();
    let (input, folder) = (format!("x={}", str(&x)), dir.path().join("out"));
    let report = json(&["verify", str(&model), path, "--input", &input, "--json"]);
    assert_eq!(report["outputs"].as_array().unwrap().len(), 1);
    let run = json(&["run", path, "--input", &input, "--output-dir", str(&folder), "--json"]);
    assert_eq!(run["outputs"][0]["shape"], serde_json::json!([4, 48]));
}

#[test]
fn what_does_not_fit_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let model = network(dir.path(), Dim::Size(16));
    let path = str(&model);
    let artifact = compiled(&model, "net.ansc", &["--dim", "batch=1,4"]);
    let x = dir.path().join("x.npy");
    npy::write(&x, &image(2, 16)).unwrap();
    let input = format!("x={}", str(&x));
    let cases: BTreeMap<&str, (Vec<&str>, i32)> = BTreeMap::from([
        (
            "only for x [1, 3, 16, 16]; x [4, 3, 16, 16]",
            (vec!["run", str(&artifact), "--input", &input], 1),
        ),
        (
            "not compiled for x [2, 3, 16, 16]",
            (vec!["bench", str(&artifact), "--shape", "x=2x3x16x16"], 1),
        ),
        ("no input `z`", (vec!["bench", str(&artifact), "--shape", "z=1"], 1)),
        ("has 4 twice", (vec!["compile", path, "--dim", "batch=1,4,4"], 2)),
        ("given twice", (vec!["compile", path, "--dim", "batch=1", "--dim", "batch=4"], 2)),
        ("several sizes", (vec!["sketches", path, "--dim", "batch=1,4"], 2)),
        ("`` is not a size", (vec!["compile", path, "--dim", "batch=1,"], 2)),
    ]);
    for (cause, (args, code)) in cases {
        let output = ansc(&args);
        let err = text(&output.stderr);
        assert_eq!(
            (output.status.code(), err.contains(cause)),
            (Some(code), true),
            "{args:?}: {err}"
        );
        assert!(!err.contains("panicked"), "{err}");
    }
    refuses(&["compile", path, "--dim", "depth=1,2"], 1, path, &["no dimension `depth`"]);
}
