//! The command line, as a script sees it: exit codes, files, and one JSON object on standard output.

use std::path::Path;
use std::process::{Command, Output};

use ansc_runtime::{Tensor, npy};
use prost::Message;
use serde_json::Value;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

fn ansc(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ansc")).current_dir(directory).args(args).output().unwrap()
}

/// The one object on standard output, and the exit code.
fn json(directory: &Path, args: &[&str]) -> (Value, i32) {
    let output = ansc(directory, args);
    let text = String::from_utf8(output.stdout).unwrap();
    let object = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"));
    (object, output.status.code().unwrap())
}

fn ok(directory: &Path, args: &[&str]) -> String {
    let output = ansc(directory, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_model_from_its_making_to_its_outputs() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    ok(dir, &["models", "mlp", "-o", "."]);
    ok(dir, &["check", "mlp.onnx"]);
    ok(dir, &["compile", "mlp.onnx"]);
    ok(dir, &["verify", "mlp.onnx", "mlp.ansc", "--layers"]);
    let (report, code) = json(dir, &["inspect", "mlp.ansc", "--json"]);
    assert_eq!(code, 0);
    let input = &report["inputs"][0];
    let shape: Vec<usize> = serde_json::from_value(input["shape"].clone()).unwrap();
    let values = vec![0.5f32; shape.iter().product()];
    npy::write(dir.join("in.npy"), &Tensor::from_slice(&shape, &values)).unwrap();
    let input = format!("{}=in.npy", input["name"].as_str().unwrap());
    let (written, code) =
        json(dir, &["run", "mlp.ansc", "--input", &input, "--output-dir", "out", "--json"]);
    assert_eq!(code, 0);
    let output = &written["outputs"][0];
    let tensor = npy::read(dir.join(output["file"].as_str().unwrap())).unwrap();
    assert_eq!(output["shape"], serde_json::json!(tensor.shape()));
    let (bench, code) = json(dir, &["bench", "mlp.ansc", "--runs", "3", "--json"]);
    assert_eq!((code, bench.is_object()), (0, true));
    // No tolerance at all: the order of a sum differs from the reference's.
    let (report, code) = json(dir, &["verify", "mlp.onnx", "mlp.ansc", "--tolerance=-1", "--json"]);
    assert_eq!((code, &report["ok"]), (1, &Value::Bool(false)));
}

#[test]
fn what_cannot_be_compiled_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let value = |name: &str| ValueInfoProto { name: name.into(), ..Default::default() };
    let node = NodeProto {
        op_type: "Blur".into(),
        input: vec!["x".into()],
        output: vec!["y".into()],
        ..Default::default()
    };
    let graph = GraphProto { node: vec![node], output: vec![value("y")], ..Default::default() };
    let model = ModelProto { graph: Some(graph), ..Default::default() };
    std::fs::write(dir.join("blur.onnx"), model.encode_to_vec()).unwrap();
    let (report, code) = json(dir, &["check", "blur.onnx", "--json"]);
    assert_eq!((code, &report["compiles"]), (1, &Value::Bool(false)));
    assert_eq!(report["report"]["problems"][0]["op"], "Blur");
    let text = ansc(dir, &["check", "blur.onnx"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("Blur"), "{text:?}");
    let (report, code) = json(dir, &["compile", "blur.onnx", "--json"]);
    assert_eq!((code, &report["problems"][0]["op"]), (1, &Value::String("Blur".into())));
    assert!(!dir.join("blur.ansc").exists());
}

#[test]
fn files_and_options_that_are_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    std::fs::write(dir.join("noise.onnx"), b"not a model").unwrap();
    std::fs::write(dir.join("noise.ansc"), b"not an artifact").unwrap();
    let table: [(&[&str], i32); 5] = [
        (&["compile", "absent.onnx"], 1),
        (&["compile", "noise.onnx"], 1),
        (&["run", "noise.ansc"], 1),
        (&["compile", "noise.onnx", "--shape", "x"], 2),
        (&["compile", "noise.onnx", "--target-cpu", "no-such-processor"], 2),
    ];
    for (args, code) in table {
        let output = ansc(dir, args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}
