//! `--precision` through the command: artifacts with operands of 16 bits, what is said about them,
//! and names of nodes.

use std::path::Path;
use std::process::Command;

use crate::common::{ansc, str, text};
use ansc_runtime::Model;
use ansc_runtime::manifest::Manifest;
use serde_json::Value;

/// Runs a command that must succeed; gives what it printed.
fn ok(args: &[&str]) -> String {
    let output = ansc(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a command that must fail as a wrong use of the command line; gives the error.
fn refused(args: &[&str]) -> String {
    let output = ansc(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    text(&output.stderr)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(args)).unwrap()
}

fn models(dir: &Path, names: &[&str]) {
    let made = Command::new(env!("CARGO_BIN_EXE_ansc"))
        .args(["models", "--reduced", "-o", "."])
        .args(names)
        .current_dir(dir)
        .output();
    assert!(made.unwrap().status.success());
}

/// A model compiled with these options.
fn compiled(dir: &Path, name: &str, options: &[&str]) -> (Manifest, String, String) {
    let model = dir.join(format!("{name}.onnx"));
    let artifact = dir.join(format!("{name}.ansc"));
    let (model, artifact) = (str(&model).to_owned(), str(&artifact).to_owned());
    ok(&[&["compile", &model, "-o", &artifact, "--untuned"], options].concat());
    (Model::read_manifest(&artifact).unwrap(), model, artifact)
}

#[test]
fn sixteen_bits_are_enough_and_half_as_many() {
    let dir = tempfile::tempdir().unwrap();
    models(dir.path(), &["resnet18", "minilm"]);
    for name in ["resnet18", "minilm"] {
        let (full, ..) = compiled(dir.path(), name, &[]);
        for precision in ["bf16", "f16"] {
            let (manifest, model, artifact) =
                compiled(dir.path(), name, &["--precision", precision]);
            assert_eq!(manifest.precision.to_string(), precision);
            let most = |of: f64| full.weight_bytes as f64 * of;
            // Embeddings of words are looked up, and stay as they are.
            let share = if name == "minilm" { 0.8 } else { 0.52 };
            assert!((manifest.weight_bytes as f64) < most(share), "{name}: {share}");
            let said = ok(&["verify", &model, &artifact]);
            let begins = format!("precision {precision}: errors up to ");
            assert!(said.starts_with(&begins), "{said}");
            // They are not those of f32 either.
            let strict = ansc(&["verify", &model, &artifact, "--tolerance", "1e-5"]);
            assert_eq!(strict.status.code(), Some(1));
            assert!(ok(&["inspect", &artifact]).contains(&format!("(reads {precision})")));
        }
    }
}

#[test]
fn layers_are_compared_with_full_precision() {
    let dir = tempfile::tempdir().unwrap();
    models(dir.path(), &["mobilenet_v2"]);
    let (manifest, model, artifact) =
        compiled(dir.path(), "mobilenet_v2", &["--precision", "bf16"]);
    let report = json(&["verify", &model, &artifact, "--layers", "--json"]);
    let layers = report["layers"].as_array().unwrap();
    assert!(layers.len() + 1 >= manifest.kernels.len(), "{} layers", layers.len());
    let own = |layer: &Value| layer["rounding"]["own"]["max_rel"].as_f64();
    let rounding: Vec<f64> = layers.iter().filter_map(own).collect();
    assert!(rounding.len() * 2 > layers.len());
    assert!(rounding.iter().all(|own| *own < 3.1e-2));
    // The option that it ends with is one that compiles, and helps.
    let said = ok(&["verify", &model, &artifact, "--layers"]);
    let node = said.split("`--precision ").nth(1).unwrap().split('`').next().unwrap();
    assert!(node.ends_with("=f32"), "{node}");
    let (mixed, ..) =
        compiled(dir.path(), "mobilenet_v2", &["--precision", "bf16", "--precision", node]);
    assert_eq!(mixed.precision.to_string(), format!("bf16, {node}"));
    let name = node.trim_end_matches("=f32");
    let kernel = mixed.kernels.iter().find(|k| k.nodes.iter().any(|n| n == name)).unwrap();
    assert_eq!(kernel.precision, None);
}

#[test]
fn one_node_alone_may_read_fewer_bits() {
    let dir = tempfile::tempdir().unwrap();
    models(dir.path(), &["resnet18"]);
    let (full, model, _) = compiled(dir.path(), "resnet18", &[]);
    assert!(full.precision.is_full() && full.kernels.iter().all(|k| k.precision.is_none()));
    let is_conv = |n: &&String| n.contains("Conv");
    let node = full.kernels[3].nodes.iter().find(is_conv).unwrap().clone();
    let (one, ..) = compiled(dir.path(), "resnet18", &["--precision", &format!("{node}=bf16")]);
    let reads: Vec<_> = one.kernels.iter().filter(|k| k.precision.is_some()).collect();
    assert!(reads.iter().any(|k| k.nodes.contains(&node)));
    assert!(reads.len() < 4, "{reads:?}");
    let near = node[..node.len() - 1].to_owned() + "X";
    let error = refused(&["compile", &model, "--precision", &format!("{near}=bf16")]);
    assert!(error.contains(&format!("the model has no node `{near}`")), "{error}");
    assert!(error.contains("similar names are") && error.contains("/Conv_conv_"), "{error}");
}

#[test]
fn what_is_no_precision_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    models(dir.path(), &["mlp"]);
    let model = dir.path().join("mlp.onnx");
    let compile = |options: &[&str]| refused(&[&["compile", str(&model)], options].concat());
    let error = compile(&["--precision", "bf61"]);
    assert!(error.contains("they are f32, tf32, bf16, f16"), "{error}");
    let error = compile(&["--precision", "tf32"]);
    assert!(error.contains("tensor cores of GPUs") && error.contains("--target cuda"), "{error}");
    let error = compile(&["--precision", "bf16", "--precision", "f16"]);
    assert!(error.contains("`--precision` is given twice"), "{error}");
    let error = compile(&["--precision", "a=bf16", "--precision", "a=f16"]);
    assert!(error.contains("`--precision a=..` is given twice"), "{error}");
}
