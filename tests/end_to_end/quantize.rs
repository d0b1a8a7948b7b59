//! `ansc quantize` and `--precision int8|auto` through the command: what is written, what is
//! compiled, and what is refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{ansc, str, text};
use ansc_runtime::{Model, Tensor};
use serde_json::Value;

fn ok(args: &[&str]) -> String {
    let output = ansc(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(args)).unwrap()
}

/// Runs a command that must fail with this code; gives the error.
fn refused(code: i32, args: &[&str]) -> String {
    let output = ansc(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

/// A generated network, and samples of its input, each in the other of two forms.
fn network(dir: &Path, name: &str, input: &str, shape: &[usize], samples: usize) -> PathBuf {
    let made = Command::new(env!("CARGO_BIN_EXE_ansc"))
        .args(["models", "--reduced", "-o", ".", name])
        .current_dir(dir)
        .output();
    assert!(made.unwrap().status.success());
    let mut state = 1u64;
    for i in 0..samples {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
        let tensor = Tensor::from_slice(shape, &values);
        let data = dir.join("data");
        match i % 2 {
            0 => {
                let folder = data.join(format!("sample_{i}"));
                std::fs::create_dir_all(&folder).unwrap();
                ansc_runtime::npy::write(folder.join(format!("{input}.npy")), &tensor).unwrap();
            }
            _ => {
                ansc::npz::write(&data.join(format!("{i}.npz")), &[(input.into(), tensor)]).unwrap()
            }
        }
    }
    dir.join(format!("{name}.onnx"))
}

const IMAGE: &[usize] = &[1, 3, 64, 64];

fn mobilenet(dir: &Path) -> PathBuf {
    network(dir, "mobilenet_v2", "x", &input_shape(dir), 4)
}

/// The shape that the reduced network declares.
fn input_shape(dir: &Path) -> Vec<usize> {
    let made = Command::new(env!("CARGO_BIN_EXE_ansc"))
        .args(["models", "--reduced", "-o", ".", "mobilenet_v2"])
        .current_dir(dir)
        .output();
    assert!(made.unwrap().status.success());
    let model = dir.join("mobilenet_v2.onnx");
    let told = json(&["inspect", str(&model), "--json"]);
    let shape = told["inputs"][0]["shape"].as_array();
    shape.map_or(IMAGE.to_vec(), |s| s.iter().map(|d| d.as_u64().unwrap() as usize).collect())
}

/// Arguments that quantise a model with a bound of the error.
fn quantize<'a>(model: &'a Path, data: &'a Path, output: &'a Path, bound: &'a str) -> [&'a str; 9] {
    let [model, data, output] = [model, data, output].map(str);
    ["quantize", model, "--inputs", data, "-o", output, "--json", "--max-error", bound]
}

#[test]
fn a_quantised_model_compiles_to_products_of_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let model = mobilenet(dir.path());
    let (data, output) = (dir.path().join("data"), dir.path().join("q.onnx"));
    let report = json(&quantize(&model, &data, &output, "0.2"));
    let report = &report["report"];
    assert_eq!((report["samples"].as_u64(), report["held_back"].as_u64()), (Some(3), Some(1)));
    let products = report["products"]["int8"].as_u64().unwrap();
    assert!(products >= 30, "{report}");
    let error = report["held_back_error"].as_f64().unwrap();
    assert!((1e-4..0.2).contains(&error), "{error}");
    let sizes = [&model, &output].map(|path| std::fs::metadata(path).unwrap().len());
    assert!(sizes[1] * 3 < sizes[0], "{sizes:?}");
    // Other programs read it, and so does the compiler.
    let artifact = dir.path().join("q.ansc");
    ok(&["compile", str(&output), "-o", str(&artifact), "--untuned"]);
    let said = ok(&["verify", str(&output), str(&artifact)]);
    assert!(said.starts_with("the model computes with int8"), "{said}");
}

#[test]
fn the_compiler_calibrates_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let model = mobilenet(dir.path());
    let (data, artifact) = (dir.path().join("data"), dir.path().join("m.ansc"));
    let options = ["--precision", "int8", "--input-dir", str(&data), "--max-error", "0.2"];
    let compile = [&["compile", str(&model), "-o", str(&artifact), "--untuned"], &options[..]];
    let said = ok(&compile.concat());
    assert!(said.contains("in int8; error of the outputs"), "{said}");
    let manifest = Model::read_manifest(&artifact).unwrap();
    assert_eq!(manifest.precision.to_string(), "int8");
    assert!(manifest.quantization.is_some_and(|q| q.nodes.len() > 50));
    assert!(ok(&["inspect", str(&artifact)]).contains("int8"));
    let said = ok(&["verify", str(&model), str(&artifact), "--tolerance", "0.2"]);
    assert!(said.starts_with("precision int8: errors up to 2.0e-1 are allowed"), "{said}");
    let strict = ["verify", str(&model), str(&artifact), "--tolerance", "1e-4"];
    assert_eq!(ansc(&strict).status.code(), Some(1));
}

#[test]
fn calibrations_differ_and_keep_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let model = mobilenet(dir.path());
    let (data, output) = (dir.path().join("data"), dir.path().join("q.onnx"));
    let base = quantize(&model, &data, &output, "0.5");
    let with = |more: &[&str]| json(&[&base[..], more].concat())["report"].clone();
    let error = |report: &Value| report["error"].as_f64().unwrap();
    let plain = with(&[]);
    let others: Vec<f64> = [
        &["--calibration", "percentile=99.9"][..],
        &["--calibration", "entropy"],
        &["--per-channel", "false"],
        &["--activations", "i8"],
    ]
    .iter()
    .map(|more| error(&with(more)))
    .collect();
    assert!(others.iter().all(|e| *e < 0.5), "{others:?}");
    assert!(others[..3].iter().all(|e| *e != error(&plain)), "{others:?}");
    let kept = with(&["--keep", "/Conv_conv_2"]);
    let count = |report: &Value, name: &str| report["products"][name].as_u64().unwrap_or(0);
    assert_eq!(count(&kept, "int8") + 1, count(&plain, "int8"));
    assert_eq!(count(&kept, "f32"), 1);
}

#[test]
fn the_worst_products_go_back_to_floats() {
    let dir = tempfile::tempdir().unwrap();
    let model = mobilenet(dir.path());
    let (data, output) = (dir.path().join("data"), dir.path().join("q.onnx"));
    let quantized = |bound: &str| ansc(&quantize(&model, &data, &output, bound));
    let all = quantized("0.5");
    let all: Value = serde_json::from_slice(&all.stdout).unwrap();
    let error = all["report"]["error"].as_f64().unwrap();
    // Half of the error: some stay, and some go.
    let bound = 0.5 * error;
    let some = quantized(&bound.to_string());
    let some: Value = serde_json::from_slice(&some.stdout).unwrap();
    let report = &some["report"];
    let count = |name: &str| report["products"][name].as_u64().unwrap_or(0);
    assert!(count("int8") > 0 && count("f32") > 0, "{report}");
    assert!(report["error"].as_f64().unwrap() <= bound);
    let layers = report["layers"].as_array().unwrap();
    assert_eq!(layers[0]["precision"], "f32", "{}", layers[0]);
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = mobilenet(dir.path());
    let data = dir.path().join("data");
    let (model, data) = (str(&model), str(&data));
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for (code, args, expected) in [
        (2, &["quantize", model][..], "add `--inputs DIR`"),
        (2, &["compile", model, "--precision", "int8"], "add `--input-dir DIR`"),
        (2, &["compile", model, "--precision", "auto"], "`--precision auto` is calibrated"),
        (2, &["compile", model, "--input-dir", data], "add `--precision int8` or `auto`"),
        (2, &["compile", model, "--precision", "stem=int8"], "int8 is for the whole model"),
        (2, &["quantize", model, "--calibration", "best"], "is no calibration"),
        (1, &["quantize", model, "--inputs", str(&empty)], "holds no sample"),
        (1, &["quantize", model, "--inputs", data, "--keep", "/Conv_conv_"], "such are"),
        (1, &["quantize", model, "--inputs", data, "--max-error", "1e-7"], "remedy"),
    ] {
        let error = refused(code, args);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}
