//! Measuring, as trtexec and its like do it: streams, durations, own inputs, traces; and running
//! and comparing on files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ansc_runtime::{Tensor, npy};
use prost::Message;
use serde_json::Value;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::Dimension;
use tract_onnx::pb::tensor_shape_proto::dimension::Value::DimValue;
use tract_onnx::pb::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, type_proto,
};

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
    refused(&dir, &["bench", "mlp.ansc", "--streams", "1025"], 2, "1024 at most");
}

#[test]
fn traces_are_events_of_threads_in_the_timed_runs() {
    const RUNS: usize = 5;
    let (_folder, dir) = compiled();
    let args = ["bench", "mlp.ansc", "--threads", "2", "--runs", "5", "--raw", "--json"];
    let report = json(&dir, &[&args[..], &["--trace", "t.json"]].concat());
    let trace: Value = serde_json::from_slice(&std::fs::read(dir.join("t.json")).unwrap()).unwrap();
    assert_eq!(trace["otherData"], serde_json::json!({ "runs": RUNS, "dropped_events": 0 }));
    let events = trace["traceEvents"].as_array().unwrap();
    let of_kind = |kind: &str| events.iter().filter(|e| e["ph"] == kind).collect::<Vec<_>>();
    let time = |event: &Value| event["ts"].as_f64().unwrap();
    assert!(of_kind("M").iter().any(|e| e["args"]["name"] == "caller"));
    // Beginnings and ends are those of the runs whose times the report has.
    let (begins, ends) = (of_kind("b"), of_kind("e"));
    let took: Vec<f64> = begins.iter().zip(&ends).map(|(b, e)| time(e) - time(b)).collect();
    let reported: Vec<f64> = serde_json::from_value(report["times_ms"].clone()).unwrap();
    assert_eq!((took.len(), reported.len()), (RUNS, RUNS));
    assert!(took.iter().zip(&reported).all(|(us, ms)| (us - ms * 1e3).abs() < 1e-3), "{took:?}");
    let complete = of_kind("X");
    let explained = json(&dir, &["explain", "mlp.ansc", "--json"]).to_string();
    let mut last = std::collections::BTreeMap::new();
    let mut in_run = [0; RUNS];
    for event in complete {
        let (start, length) = (time(event), event["dur"].as_f64().unwrap());
        let end = last.entry(event["tid"].as_u64().unwrap()).or_insert(0.0);
        assert!(start >= *end - 1e-3 && length >= 0.0, "{event} begins before {end}");
        *end = start + length;
        let kernel = event["args"]["kernel"].as_str().unwrap();
        assert!(explained.contains(kernel), "{kernel}");
        let holds =
            |i: &usize| time(begins[*i]) <= start && start + length <= time(ends[*i]) + 1e-3;
        let run = (0..RUNS).find(holds).unwrap_or_else(|| panic!("{event} is in no timed run"));
        in_run[run] += 1;
    }
    let kernels =
        json(&dir, &["inspect", "mlp.ansc", "--json"])["kernels"].as_array().unwrap().len();
    assert!(in_run.iter().all(|count| *count >= kernels), "{in_run:?} of {kernels} kernels");
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
    let renamed = Tensor::from_slice(&shape, &vec![0.25f32; shape.iter().product()]);
    ansc::npz::write(&dir.join("more.npz"), &[("a=b".to_owned(), renamed)]).unwrap();
    let by_key = format!("{name}=more.npz:a=b");
    json(&dir, &["run", "mlp.ansc", "--input", &by_key, "--output", "d.npz", "--json"]);
    assert_eq!(of("b.npz"), of("d.npz"));
    let no_key = format!("{name}=more.npz:b");
    refused(&dir, &["run", "mlp.ansc", "--input", &no_key], 1, "no array `b`; it has a=b");
    let whole = format!("{name}=more.npz");
    refused(&dir, &["run", "mlp.ansc", "--input", &whole], 1, "more.npz:KEY` takes one");
    let no_archive = format!("{name}=x.npz:{name}");
    std::fs::rename(dir.join("x.npy"), dir.join("y.npz")).unwrap();
    let no_archive = no_archive.replace("x.npz", "y.npz");
    refused(&dir, &["run", "mlp.ansc", "--input", &no_archive], 1, ", not an .npz file");
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

/// A `TensorProto` of floats with its data as they are.
fn tensor_proto(shape: &[usize], values: &[f32]) -> Vec<u8> {
    let proto = TensorProto {
        dims: shape.iter().map(|&n| n as i64).collect(),
        data_type: DataType::Float as i32,
        raw_data: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        ..TensorProto::default()
    };
    proto.encode_to_vec()
}

/// `d = a - b, y = relu(d)`: the order of inputs matters, and so does that of the outputs `y, d`.
fn difference(dir: &Path) {
    let node = |op: &str, inputs: &[&str], output: &str| NodeProto {
        op_type: op.into(),
        input: inputs.iter().map(|name| name.to_string()).collect(),
        output: vec![output.into()],
        ..NodeProto::default()
    };
    let port = |name: &str| {
        let extent = Dimension { value: Some(DimValue(3)), ..Dimension::default() };
        let tensor = type_proto::Tensor {
            elem_type: DataType::Float as i32,
            shape: Some(TensorShapeProto { dim: vec![extent] }),
        };
        let value = Some(type_proto::Value::TensorType(tensor));
        let r#type = Some(TypeProto { value, ..TypeProto::default() });
        ValueInfoProto { name: name.into(), r#type, ..ValueInfoProto::default() }
    };
    let graph = GraphProto {
        name: "g".into(),
        node: vec![node("Sub", &["a", "b"], "d"), node("Relu", &["d"], "y")],
        input: vec![port("a"), port("b")],
        output: vec![port("y"), port("d")],
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { version: 18, ..OperatorSetIdProto::default() };
    let model = ModelProto {
        ir_version: 8,
        opset_import: vec![opset],
        graph: Some(graph),
        ..ModelProto::default()
    };
    std::fs::write(dir.join("m.onnx"), model.encode_to_vec()).unwrap();
    json(dir, &["compile", "m.onnx", "-o", "m.ansc", "--untuned", "--json"]);
}

#[test]
fn verify_compares_with_recorded_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    difference(dir);
    let put = |name: &str, values: &[f32; 3]| {
        std::fs::write(dir.join("t").join(name), tensor_proto(&[3], values)).unwrap();
    };
    std::fs::create_dir(dir.join("t")).unwrap();
    put("input_0.pb", &[1.0, 2.0, 3.0]);
    put("input_1.pb", &[2.0, 0.5, -1.0]);
    let verify = ["verify", "m.onnx", "m.ansc", "--input-dir", "t"];
    let with = |more: &[&'static str]| [&verify[..], more].concat();
    // Without outputs, the interpreter is the reference.
    assert_eq!(json(dir, &with(&["--json"]))["against"], "the reference");
    refused(dir, &with(&["--against", "recorded"]), 2, "output_0.pb");
    put("output_1.pb", &[-1.0, 1.5, 4.0]);
    refused(dir, &verify, 1, "has output_1.pb, but no output_0.pb for `y`");
    put("output_0.pb", &[0.0, 1.5, 4.0]);
    let report = json(dir, &with(&["--json"]));
    assert_eq!((&report["ok"], &report["against"]), (&true.into(), &"the recorded outputs".into()));
    // The recorded values are compared, and not those of the interpreter.
    put("output_0.pb", &[0.0, 1.5, 4.1]);
    refused(dir, &verify, 1, "m.ansc differs from the recorded outputs");
    assert_eq!(json(dir, &with(&["--against", "reference", "--json"]))["ok"], true);
    put("output_0.pb", &[0.0, 1.5, 4.0]);
    refused(dir, &with(&["--input", "a=t/input_1.pb"]), 2, "--against reference");
    refused(dir, &with(&["--outputs", "d"]), 2, "--against reference");
    std::fs::remove_file(dir.join("t/input_1.pb")).unwrap();
    refused(dir, &verify, 1, "no input_1.pb for `b`");
    std::fs::write(dir.join("t/input_1.pb"), b"no tensor").unwrap();
    refused(dir, &verify, 1, "is not a tensor of ONNX");
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
