//! The messages of the command to its user: about files in the wrong place, options that do
//! nothing, models with open shapes, where schedules come from, and names that a user knows.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::text;
use ansc_models::Builder;
use ansc_models::proto::{Attribute, Dim, ElemType};
use ansc_runtime::{Model, Tensor, npy};
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
    let value: Value = serde_json::from_str(&ok(dir, args)).unwrap();
    assert!(value.is_object(), "{args:?}: {value}");
    value
}

/// Fails with this code, and says all of it.
fn fails(dir: &Path, args: &[&str], code: i32, parts: &[&str]) {
    let output = ansc(dir, args);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    for part in parts {
        assert!(error.contains(part), "{args:?}: no `{part}` in {error}");
    }
}

/// `x: [batch, 3, 16, 16]` scaled by `factor`, and `n` rows of it.
fn network(dir: &Path, name: &str, seed: f32) {
    let mut b = Builder::new("net");
    let dims = [Dim::Named("batch"), Dim::Size(3), Dim::Size(16), Dim::Size(16)];
    let x = b.typed_input("x", ElemType::F32, &dims);
    let ends = b.typed_input("ends", ElemType::I64, &[Dim::Size(1)]);
    let w = b.weight(&[8, 3, 3, 3], 27, seed);
    let y = b.op("Conv", &[&x, &w], &[("pads", Attribute::Ints(vec![1, 1, 1, 1]))]);
    let y = b.op("Relu", &[&y], &[]);
    let (starts, axes) = (b.ints(&[0]), b.ints(&[2]));
    let y = b.op("Slice", &[&y, &starts, &ends, &axes], &[]);
    let out = [Dim::Named("batch"), Dim::Size(8), Dim::Size(1), Dim::Size(1)];
    b.result("y", &out, "GlobalAveragePool", &[&y], &[]);
    std::fs::write(dir.join(name), b.finish().to_bytes()).unwrap();
}

const FIXED: [&str; 2] = ["--value", "ends=4"];

fn compiled(dir: &Path, batch: &str) {
    network(dir, "net.onnx", 1.0);
    ok(dir, &[&["compile", "net.onnx", "--dim", batch], &FIXED[..]].concat());
}

#[test]
fn artifacts_and_pages_are_written_here() {
    let root = tempfile::tempdir().unwrap();
    let (models, here) = (root.path().join("models"), root.path().join("here"));
    [&models, &here].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    network(&models, "net.onnx", 1.0);
    ok(&here, &[&["compile", "../models/net.onnx", "--dim", "batch=1"], &FIXED[..]].concat());
    assert!(here.join("net.ansc").exists() && !models.join("net.ansc").exists());
    std::fs::rename(here.join("net.ansc"), models.join("net.ansc")).unwrap();
    assert_eq!(ok(&here, &["report", "../models/net.ansc", "--threads", "1"]), "net.html\n");
    assert!(here.join("net.html").exists() && !models.join("net.html").exists());
}

#[test]
fn files_in_the_wrong_place_are_named_for_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    compiled(dir, "batch=1");
    npy::write(dir.join("a.npy"), &Tensor::scalar(1.0f32)).unwrap();
    std::fs::write(dir.join("noise.npy"), "noise").unwrap();
    drop(ansc_tuner::records::Sqlite::open(&dir.join("r.db")).unwrap());
    let is_model = "is an ONNX model, not an artifact; `ansc compile net.onnx`";
    let table: [(&[&str], i32, &[&str]); 13] = [
        (&["run", "net.onnx"], 1, &["net.onnx: ", is_model]),
        (&["bench", "net.onnx"], 1, &[is_model]),
        (&["verify", "net.onnx", "net.onnx"], 1, &[is_model]),
        (&["verify", "net.ansc", "net.onnx"], 2, &["`ansc verify net.onnx net.ansc`"]),
        (&["compile", "net.ansc"], 1, &["net.ansc: is compiled code", ", not an ONNX model"]),
        (&["check", "net.ansc"], 1, &["is compiled code"]),
        (&["tune", "r.db"], 1, &["r.db: is a database", "`MODEL --records r.db`"]),
        (&["compile", "net.onnx", "--records", "net.ansc"], 1, &[", not a file of records"]),
        (&["records", "ls", "net.onnx"], 1, &["is an ONNX model, not a file of records"]),
        (&["records", "import", "r.db", "r.db"], 1, &[", not records as lines of JSON"]),
        (&["inspect", "r.db"], 1, &[", not an artifact or an ONNX model"]),
        (&["report", "net.onnx"], 1, &[", not an artifact or a file of records"]),
        (&["run", "net.ansc", "--input", "x=net.onnx"], 1, &[", not a .npy file"]),
    ];
    for (args, code, parts) in table {
        let args = if args[0] == "compile" { [args, &FIXED[..]].concat() } else { args.to_vec() };
        fails(dir, &args, code, parts);
    }
    // Named once.
    let error = text(&ansc(dir, &["run", "net.ansc", "--input", "x=noise.npy"]).stderr);
    assert_eq!(error.matches("noise.npy").count(), 1, "{error}");
}

#[test]
fn another_model_is_no_reference() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    compiled(dir, "batch=1");
    network(dir, "other.onnx", 2.0);
    ok(dir, &["verify", "net.onnx", "net.ansc"]);
    let parts = ["other.onnx: is not the model that net.ansc was compiled from", "net.onnx"];
    fails(dir, &["verify", "other.onnx", "net.ansc"], 1, &parts);
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    compiled(dir, "batch=1,4");
    let compile = |more: &[&'static str]| -> Vec<&'static str> {
        [&["compile", "net.onnx", "--dim", "batch=1", "-o", "b.ansc"], &FIXED[..], more].concat()
    };
    let table: [(Vec<&str>, &str); 11] = [
        (compile(&["--shape", "x=1x3x16x16", "--shape", "x=2x3x16x16"]), "given twice"),
        (compile(&["--value", "ends=5"]), "given twice"),
        (compile(&["--sm", "90"]), "--sm is for `--target cuda`"),
        (compile(&["--print-after", "nosuch"]), "the passes are all, "),
        (compile(&["--minutes", "3"]), "say how long with --trials N"),
        (compile(&["--value", "ends=4.5"]), "given twice"),
        (vec!["bench", "net.ansc", "--runs", "0"], "not a whole number from 1 on"),
        (vec!["bench", "net.ansc", "--dim", "batch=1,4"], "one is wanted here"),
        (vec!["tune", "net.onnx", "--trials", "0"], "not a whole number from 1 on"),
        (vec!["tune", "net.onnx", "--until-gain", "1"], "write `1%`"),
        (vec!["compile", "net.onnx", "--dim", "batch=1,other=2"], "--dim batch=1 --dim other=2"),
    ];
    for (args, part) in table {
        fails(dir, &args, 2, &[part]);
    }
    assert!(!dir.join("b.ansc").exists());
}

#[test]
fn values_are_written_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    network(dir, "net.onnx", 1.0);
    let bound = |value: &str| {
        let value = format!("ends={value}");
        ok(dir, &["compile", "net.onnx", "--dim", "batch=1", "--value", &value, "-o", "v.ansc"]);
        Model::load(dir.join("v.ansc")).unwrap().bound_value(1).unwrap()
    };
    npy::write(dir.join("ends.npy"), &Tensor::from_slice(&[1], &[4i64])).unwrap();
    assert_eq!(bound("4"), bound("ends.npy"));
    assert_eq!(bound("[4]"), bound("4"));
    assert_eq!(bound("-2").to_i64_vec(), Some(vec![-2]));
    let wrong = |value: &str, code, part: &str| {
        fails(dir, &["compile", "net.onnx", "--dim", "batch=1", "--value", value], code, &[part]);
    };
    wrong("ends=4.5", 2, "`4.5` is not a value of type i64");
    wrong("ends=no.npy", 2, "there is no file `no.npy`, and it is not a literal");
    wrong("end=4", 1, "no input `end`; its inputs are: x, ends");
}

#[test]
fn a_model_with_open_shapes_shows_them() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    network(dir, "net.onnx", 1.0);
    let shown = ok(dir, &["inspect", "net.onnx"]);
    for line in
        ["input x: f32 [batch, 3, 16, 16]", "input ends: i64 [1]", "     1 Conv", "--dim batch=N"]
    {
        assert!(shown.contains(line), "no `{line}` in\n{shown}");
    }
    let listed = object(dir, &["inspect", "net.onnx", "--json"]);
    assert_eq!(listed["inputs"][0]["shape"], serde_json::json!(["batch", 3, 16, 16]));
    // With all that is open fixed, shapes are numbers.
    let fixed = [&["inspect", "net.onnx", "--dim", "batch=2"], &FIXED[..]].concat();
    let shown = ok(dir, &fixed);
    assert!(shown.contains("input x: f32 [2, 3, 16, 16]\n") && !shown.contains('{'), "{shown}");
    assert!(!shown.contains("to be fixed"), "{shown}");
}

#[test]
fn one_of_several_sizes_is_timed_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    compiled(dir, "batch=1,4");
    let said = ok(dir, &["report", "net.ansc", "-o", "a.html", "--threads", "1"]);
    assert!(said.starts_with("batch=1 is one of 2 sizes; --dim or --shape chooses"), "{said}");
    let chosen = ["report", "net.ansc", "-o", "b.html", "--threads", "1", "--dim", "batch=4"];
    let report = object(dir, &[&chosen[..], &["--json"]].concat());
    assert_eq!(report["artifact"]["specialisation"], "batch=4");
    let page = std::fs::read_to_string(dir.join("b.html")).unwrap();
    assert!(page.contains("the size that ran: batch=4"), "{page}");
    let explained = object(dir, &["explain", "net.ansc", "--shape", "x=4x3x16x16", "--json"]);
    assert_eq!(explained["specialisation"], "batch=4");
    for kernel in explained["kernels"].as_array().unwrap() {
        assert!(kernel["seconds"].as_f64() > Some(0.0), "{kernel}");
    }
    let bench = object(dir, &["bench", "net.ansc", "--dim", "batch=4", "--runs", "2", "--json"]);
    assert_eq!(bench["specialisation"], "batch=4");
    let known = ["not compiled for batch=9", "for batch=1; batch=4"];
    fails(dir, &["bench", "net.ansc", "--dim", "batch=9"], 1, &known);
}

/// The node of the model comes first, and finds the kernel.
#[test]
fn kernels_are_known_by_the_nodes_of_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    compiled(dir, "batch=1");
    let node = {
        let manifest = Model::read_manifest(dir.join("net.ansc")).unwrap();
        manifest.kernels[0].nodes[0].clone()
    };
    let begins = |output: &str| output.lines().any(|line| line.contains(&format!("  {node}")));
    assert!(begins(&ok(dir, &["inspect", "net.ansc"])));
    assert!(begins(&ok(dir, &["bench", "net.ansc", "--per-kernel", "--runs", "2"])));
    assert!(begins(&ok(dir, &["explain", "net.ansc", &node])));
    let planned = [&["explain", "net.onnx", &node, "--dim", "batch=1", "--loops"], &FIXED[..]];
    let shown = ok(dir, &planned.concat());
    assert!(shown.starts_with(&node) && shown.contains("for "), "{shown}");
    let kernels = object(dir, &[&planned.concat()[..], &["--json"]].concat());
    // One node may become several kernels, as where a layout changes first.
    let found = kernels["kernels"].as_array().unwrap();
    let has = |kernel: &Value| kernel["nodes"].as_array().unwrap().contains(&Value::from(&*node));
    assert!(!found.is_empty() && found.iter().all(has), "{kernels}");
    fails(
        dir,
        &["explain", "net.ansc", "nosuch"],
        2,
        &["is named `nosuch`; one of the kernels is "],
    );
}

/// Another machine's times are said to be its own.
#[test]
fn schedules_that_come_with_the_compiler_are_counted_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["models", "mobilenet_v2", "-o", "."]);
    let machine = ["--threads", "1", "--target-cpu", "x86-64-v3"];
    let compile = [&["compile", "mobilenet_v2.onnx"], &machine[..]].concat();
    let shipped = "that come with the compiler (tuned on x86-64-v3, 1 thread)";
    let said = ok(dir, &compile);
    assert!(said.contains("  schedules: ") && said.contains(shipped), "{said}");
    let report = object(dir, &[&compile[..], &["--json"]].concat());
    let counts = &report["report"]["schedules"];
    let of = |key: &str| counts[key].as_u64().unwrap();
    let distinct = report["report"]["distinct_kernels"].as_u64().unwrap();
    assert!(of("shipped") > 0 && of("shipped") + of("default") == distinct, "{counts}");
    let untuned =
        ok(dir, &["compile", "mobilenet_v2.onnx", "--target-cpu", "x86-64-v3", "--untuned"]);
    assert!(!untuned.contains("come with the compiler"), "{untuned}");
    let explained = ok(dir, &[&["explain", "mobilenet_v2.onnx"], &machine[..]].concat());
    let schedule = "  schedule: comes with the compiler; on x86-64-v3, 1 thread: ";
    assert!(explained.contains(schedule), "{explained}");
    // Nothing is measured here, so nothing limits anything here, and no list is empty.
    assert!(!explained.contains("limited by") && !explained.contains("rules \n"), "{explained}");
}

/// Or it would do more than the machine can: Winograd's has a quarter of the products.
#[test]
fn an_algorithm_is_measured_by_its_own_operations() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["models", "conv28_128_128_k3", "-o", "."]);
    ok(dir, &["compile", "conv28_128_128_k3.onnx", "--untuned"]);
    let explained = object(dir, &["explain", "conv28_128_128_k3.ansc", "--threads", "1", "--json"]);
    let kernels = explained["kernels"].as_array().unwrap();
    let flops = |kernel: &Value| kernel["flops"].as_f64().unwrap();
    let conv = kernels.iter().max_by(|a, b| flops(a).total_cmp(&flops(b))).unwrap();
    let (work, seconds) = (conv["work"].as_f64().unwrap(), conv["seconds"].as_f64().unwrap());
    assert!(work < 0.7 * flops(conv), "{conv}");
    let done = conv["roofline"]["flops_per_second"].as_f64().unwrap() * seconds;
    assert!((done / work - 1.0).abs() < 1e-6, "{conv}");
}

#[test]
fn every_verb_prints_one_object() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    compiled(dir, "batch=1");
    let open = [&["--dim", "batch=1", "--json"], &FIXED[..]].concat();
    for args in [&["sketches", "net.onnx"][..], &["explain", "net.onnx"], &["check", "net.onnx"]] {
        object(dir, &[args, &open].concat());
    }
    for verb in ["operators", "models"] {
        object(dir, &[verb, "--json"]);
    }
    for verb in ["explain", "inspect", "bench"] {
        object(dir, &[verb, "net.ansc", "--json"]);
    }
}

#[test]
fn sketches_are_told_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(dir, &["models", "GMM", "-o", "."]);
    let told = ok(dir, &["sketches", "GMM.onnx", "--subgraph", "0"]);
    assert!(told.contains("left open") && told.contains("split loop"), "{told}");
    assert!(!told.contains("get_block"), "{told}");
    assert!(ok(dir, &["sketches", "GMM.onnx", "--traces"]).contains("get_block"));
}
