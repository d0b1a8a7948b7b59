//! The command line, as a script sees it: exit codes, files, and one JSON object on standard
//! output.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use ansc_runtime::{Tensor, npy};
use prost::Message;
use serde_json::Value;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

use crate::common::{ansc_in as ansc, json_in as json, ok_in as ok};

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
fn verifiers_run_unless_they_are_turned_off() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    ok(dir, &["models", "mlp", "-o", "."]);
    let compile = ["compile", "mlp.onnx", "--time-passes"];
    let times = |text: &str| text.lines().filter(|l| l.trim().starts_with("verify ")).count();
    assert_eq!(times(&ok(dir, &compile)), 1);
    assert_eq!(times(&ok(dir, &[&compile[..], &["--no-verify"]].concat())), 0);
    // An option that would do nothing is no way to say so.
    let output = ansc(dir, &["compile", "mlp.onnx", "--strategy", "random"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// As with `ansc lab .. | head -0`: measuring takes a signal away, and the report is not a panic.
#[test]
fn who_reads_no_more_ends_a_command() {
    let directory = tempfile::tempdir().unwrap();
    let lab = ["lab", "GMM", "--strategies", "random", "--trials", "2", "--per-round", "2"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_ansc"));
    let command = command.args(lab).current_dir(directory.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !words.contains("panicked"), "{}: {words}", output.status);
}

#[test]
fn a_compilation_tells_its_slowest_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    ok(dir, &["models", "mlp", "-o", "."]);
    let said = ok(dir, &["compile", "mlp.onnx", "--untuned", "--time-passes"]);
    assert!(said.contains("  slowest kernel: matmul"), "{said}");
    let (report, _) = json(dir, &["compile", "mlp.onnx", "--untuned", "--json"]);
    let slowest = &report["report"]["slowest_kernel"];
    for spent in ["schedule", "codegen"] {
        assert!(slowest[spent].as_f64().unwrap() > 0.0, "{slowest}");
    }
}

#[test]
fn inputs_may_be_pipes_but_have_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    ok(dir, &["models", "mlp", "-o", "."]);
    ok(dir, &["compile", "mlp.onnx", "--untuned"]);
    let (report, _) = json(dir, &["inspect", "mlp.ansc", "--json"]);
    let input = &report["inputs"][0];
    let shape: Vec<usize> = serde_json::from_value(input["shape"].clone()).unwrap();
    npy::write(dir.join("in.npy"), &Tensor::zeros(ansc_runtime::DType::F32, &shape)).unwrap();
    let name = input["name"].as_str().unwrap();
    let run = |command: &str| {
        let script = format!("{command} | \"$0\" run mlp.ansc --input {name}=/dev/stdin");
        let ansc = env!("CARGO_BIN_EXE_ansc");
        Command::new("sh").current_dir(dir).args(["-c", &script, ansc]).output().unwrap()
    };
    let whole = run("cat in.npy");
    assert!(whole.status.success(), "{whole:?}");
    for (command, message) in [
        ("cat in.npy /dev/zero", "goes on after the"),
        ("head -c 200 in.npy", "72 were given"),
        ("cat /dev/zero", "not a .npy file"),
    ] {
        let output = run(command);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {text}");
        assert!(text.starts_with("error: /dev/stdin: "), "{command}: {text}");
        assert!(text.contains(message), "{command}: {text}");
    }
    let made = Command::new("mkfifo").arg(dir.join("fifo")).status().unwrap();
    assert!(made.success());
    let pipe = |named: &str| format!("{name}={named}");
    for args in [
        &["run", "mlp.ansc", "--input", &pipe("/dev/zero")][..],
        &["run", "mlp.ansc", "--input", &pipe("fifo")],
        &["compile", "mlp.onnx", "--value", &pipe("/dev/zero")],
        &["inspect", "fifo"],
        &["bench", "fifo"],
        &["check", "fifo"],
        &["explain", "fifo"],
        &["report", "fifo"],
        &["records", "ls", "fifo"],
        &["records", "import", "new.db", "/dev/zero"],
    ] {
        let output = ansc(dir, args);
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
        assert!(text.contains("pipe") || text.contains("regular file"), "{args:?}: {text}");
    }
}

#[test]
fn there_is_a_bound_on_threads() {
    let directory = tempfile::tempdir().unwrap();
    for verb in ["run", "bench", "report", "compile", "tune", "explain", "lab"] {
        let output = ansc(directory.path(), &[verb, "x", "--threads", "99999"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{verb}: {text}");
        assert!(text.contains("4096 at most"), "{verb}: {text}");
    }
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

#[test]
fn schedules_for_gpus_are_verified_on_a_cpu() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    ok(dir, &["models", "mlp", "-o", "."]);
    ok(dir, &["compile", "mlp.onnx", "--target", "cuda-on-cpu", "-o", "form.ansc"]);
    ok(dir, &["verify", "mlp.onnx", "form.ansc"]);
    let output = ansc(dir, &["tune", "mlp.onnx", "--target", "cuda-on-cpu"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn listings_for_gpus_are_of_their_kernels() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    ok(dir, &["models", "mlp", "-o", "."]);
    let listing = |option| {
        let output = ansc(dir, &["explain", "mlp.onnx", "--target", "cuda", option]);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, loops) = listing("--loops");
    assert!(code == Some(0) && loops.contains("grid") && loops.contains("barrier"), "{loops}");
    let (code, ptx) = listing("--asm");
    assert!(code == Some(0) && ptx.contains(".target sm_80") && ptx.contains(".entry"), "{ptx}");
    assert_eq!(listing("--llvm").0, Some(2));
}

/// Where there is a GPU, the last part does not apply.
#[test]
fn artifacts_for_gpus_are_made_and_inspected_where_there_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    ok(dir, &["models", "mlp", "-o", "."]);
    let cuda = ["compile", "mlp.onnx", "--target", "cuda"];
    ok(dir, &[&cuda[..], &["--sm", "90,80", "-o", "gpu.ansc"]].concat());
    let (report, code) = json(dir, &["inspect", "gpu.ansc", "--json"]);
    assert_eq!((code, &report["target"]["cpu"]), (0, &Value::from("sm_80,sm_90")));
    let texts = report["gpu"]["texts"].as_array().unwrap();
    for (text, sm) in texts.iter().zip([80, 90]) {
        assert_eq!(text["sm"], sm);
        let ptx = text["ptx"].as_str().unwrap();
        assert_eq!(ptx.matches(".target").count(), 1);
        for launch in
            report["gpu"]["kernels"].as_array().unwrap().iter().flat_map(|k| k.as_array().unwrap())
        {
            assert!(ptx.contains(&format!(".entry {}(", launch["symbol"].as_str().unwrap())));
        }
    }
    let output = ansc(dir, &[&cuda[..], &["--sm", "42"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("known compute capabilities"));
    if ansc_runtime::cuda::device().is_ok() {
        return;
    }
    for verb in ["run", "bench"] {
        let output = ansc(dir, &[verb, "gpu.ansc"]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains("NVIDIA GPU (sm_80,sm_90)"), "{error}");
    }
    let tuned = ansc(dir, &["tune", "mlp.onnx", "--target", "cuda", "--trials", "1"]);
    let error = String::from_utf8(tuned.stderr).unwrap();
    assert_eq!((tuned.status.code(), error.lines().count()), (Some(3), 1), "{error}");
    assert!(error.contains("tuning for a GPU needs one"), "{error}");
}

fn size(directory: &Path, file: &str) -> u64 {
    std::fs::metadata(directory.join(file)).unwrap().len()
}

/// The bytes of the weights that an artifact makes when it is loaded.
fn made_at_load(directory: &Path, artifact: &str) -> usize {
    let model = ansc_runtime::Model::load(directory.join(artifact)).unwrap();
    model.manifest().preparation.as_ref().map_or(0, |p| p.bytes)
}

/// This layer's weights are transformed, from 3 x 3 to at least 6 x 6 elements: neither file holds
/// the result, and only the fast one makes it.
#[test]
fn files_hold_weights_as_they_are_and_small_ones_make_none_of_them_larger() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    ok(dir, &["models", "conv28_128_128_k3", "-o", "."]);
    let model = "conv28_128_128_k3.onnx";
    ok(dir, &["compile", model, "--threads", "1", "-o", "fast.ansc"]);
    ok(dir, &["compile", model, "--threads", "1", "--small", "-o", "small.ansc"]);
    let (code, weights) = (100_000, size(dir, model));
    assert!(size(dir, "small.ansc") < weights + code);
    assert!(size(dir, "fast.ansc") < weights + code);
    assert_eq!(made_at_load(dir, "small.ansc"), 0);
    assert!(made_at_load(dir, "fast.ansc") as u64 > 3 * weights);
    for artifact in ["fast.ansc", "small.ansc"] {
        ok(dir, &["verify", model, artifact]);
    }
}

/// Whether any kernel of an artifact has a schedule that a search found.
fn is_tuned(directory: &Path, artifact: &str) -> bool {
    let model = ansc_runtime::Model::load(directory.join(artifact)).unwrap();
    model.manifest().kernels.iter().any(|kernel| kernel.tuning.is_some())
}

#[test]
fn schedules_that_come_with_the_compiler_can_be_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    ok(dir, &["models", "mobilenet_v2", "-o", "."]);
    let compile = ["compile", "mobilenet_v2.onnx", "--target-cpu", "x86-64-v3"];
    ok(dir, &[&compile[..], &["--threads", "1", "-o", "a.ansc"]].concat());
    ok(dir, &[&compile[..], &["--untuned", "-o", "b.ansc"]].concat());
    assert!(is_tuned(dir, "a.ansc") && !is_tuned(dir, "b.ansc"));
    let conflict = ansc(dir, &["compile", "mobilenet_v2.onnx", "--untuned", "--trials", "3"]);
    assert_eq!(conflict.status.code(), Some(2));
}

#[test]
fn the_version_says_what_it_is() {
    let here = Path::new(".");
    let line = concat!("ansc ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!((ok(here, &["--version"]), ok(here, &["-V"])), (line.to_owned(), line.to_owned()));
    let verbose = ok(here, &["--version", "--verbose"]);
    assert_eq!(verbose, ok(here, &["--verbose", "--version"]));
    let rest = verbose.strip_prefix(line).unwrap_or_else(|| panic!("{verbose}"));
    let lines = rest.lines().map(|line| line.split_once(": ").unwrap());
    let said: BTreeMap<&str, &str> = lines.collect();
    let llvm = if cfg!(feature = "llvm22") { "22." } else { "19." };
    assert!(said["LLVM"].starts_with(llvm), "{verbose}");
    assert!(said["cargo features"].contains("llvm"), "{verbose}");
    assert_eq!(said["artifact format"], ansc_runtime::manifest::FORMAT_VERSION.to_string());
    assert!(said["host"].starts_with(std::env::consts::ARCH), "{verbose}");
    #[cfg(target_arch = "x86_64")]
    for (name, has) in [
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ("avx512fp16", std::is_x86_feature_detected!("avx512fp16")),
    ] {
        assert_eq!(said["processor features"].split(' ').any(|f| f == name), has, "{verbose}");
        // One that is off has a reason.
        let off = |line: &str| line.starts_with("processor features off: ") && line.ends_with(')');
        let named = |line: &str| line.split(' ').any(|word| word == name);
        assert_eq!(rest.lines().any(|line| off(line) && named(line)), !has, "{verbose}");
    }
    let is_clone = Path::new(env!("CARGO_MANIFEST_DIR")).join(".git").exists();
    let git = Command::new("git").args(["rev-parse", "HEAD"]).output();
    match git.ok().filter(|git| is_clone && git.status.success()) {
        Some(git) => {
            let hash = said["commit"].split(',').next().unwrap();
            assert!(String::from_utf8_lossy(&git.stdout).starts_with(hash), "{verbose}");
        }
        None => assert_eq!(said["commit"], "unknown, built without git"),
    }
    // Alone it would do nothing.
    for args in [&["--verbose"][..], &["--version", "check", "m.onnx"], &["--"], &[]] {
        assert_eq!(ansc(here, args).status.code(), Some(2), "{args:?}");
    }
}

/// The verbs that `ansc --help` lists.
fn verbs() -> Vec<String> {
    let help = ok(Path::new("."), &["--help"]);
    let list = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let names: Vec<String> = names.map(str::to_owned).collect();
    assert!(names.len() > 10 && names.contains(&"check".to_owned()), "{help}");
    names
}

#[test]
fn shells_complete_every_verb_and_no_hidden_one() {
    let here = Path::new(".");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = ok(here, &["completions", shell]);
        for verb in verbs() {
            assert!(script.contains(&verb), "{shell}: {verb}");
        }
        assert!(script.contains("until-gain"), "{shell}");
        assert!(
            !script.contains("candidates\n") && !script.contains("ansc__candidates"),
            "{shell}"
        );
    }
    assert_eq!(ansc(here, &["completions", "csh"]).status.code(), Some(2));
    // Bash takes what is made for it, and completes by it.
    let script = "eval \"$(\"$0\" completions bash)\" && COMP_WORDS=(ansc chec) COMP_CWORD=1 && \
                  _ansc ansc chec ansc && echo \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_ansc")]).output();
    let bash = bash.unwrap();
    assert_eq!(String::from_utf8_lossy(&bash.stdout), "check\n", "{bash:?}");
}

#[test]
fn every_verb_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let page = ok(dir, &["man"]);
    assert!(page.contains(".TH ansc 1") && page.contains("ansc\\-check(1)"), "{page}");
    let written = ok(dir, &["man", "--output-dir", "man1"]);
    let files: Vec<&str> = written.lines().collect();
    for verb in verbs() {
        let file = format!("man1/ansc-{verb}.1");
        assert!(files.contains(&file.as_str()), "{written}");
        let page = std::fs::read_to_string(dir.join(&file)).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"), "{page}");
    }
    assert!(files.contains(&"man1/ansc-records-merge.1"), "{written}");
    assert_eq!(std::fs::read_to_string(dir.join("man1/ansc.1")).unwrap(), page);
    assert!(!written.contains("ansc-candidates") && !page.contains("ansc\\-candidates"));
    std::fs::write(dir.join("file"), "").unwrap();
    assert_eq!(ansc(dir, &["man", "--output-dir", "file"]).status.code(), Some(1));
}

#[test]
fn two_halves_of_a_model_give_what_the_whole_gives() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    ok(dir, &["models", "mlp", "-o", "."]);
    let model = ModelProto::decode(&std::fs::read(dir.join("mlp.onnx")).unwrap()[..]).unwrap();
    let graph = model.graph.unwrap();
    let middle = graph.node[graph.node.len() / 2].output[0].as_str();
    let shape = ok(dir, &["inspect", "mlp.onnx", "--json"]);
    let shape: Value = serde_json::from_str(&shape).unwrap();
    let input = &shape["inputs"][0];
    let name = input["name"].as_str().unwrap();
    let shape: Vec<usize> = serde_json::from_value(input["shape"].clone()).unwrap();
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| (i % 7) as f32 / 7.0).collect();
    npy::write(dir.join("in.npy"), &Tensor::from_slice(&shape, &values)).unwrap();

    let run = |artifact: &str, cut: &[&str], input: &str| -> String {
        let compile = ["compile", "mlp.onnx", "--untuned", "-o", artifact];
        ok(dir, &[&compile[..], cut].concat());
        ok(dir, &[&["verify", "mlp.onnx", artifact][..], cut].concat());
        let out = ["--output-dir", artifact.split('.').next().unwrap(), "--json"];
        let (written, code) = json(dir, &[&["run", artifact, "--input", input][..], &out].concat());
        assert_eq!(code, 0, "{written}");
        written["outputs"][0]["file"].as_str().unwrap().to_owned()
    };
    let whole = run("whole.ansc", &[], &format!("{name}=in.npy"));
    let first = run("first.ansc", &["--outputs", middle], &format!("{name}=in.npy"));
    let second = run("second.ansc", &["--inputs", middle], &format!("{middle}={first}"));
    let read = |file: &str| npy::read(dir.join(file)).unwrap().to_f64_vec();
    let (found, expected) = (read(&second), read(&whole));
    assert_eq!(found.len(), expected.len());
    let close = |(f, e): (&f64, &f64)| (f - e).abs() <= 1e-5 * e.abs().max(1.0);
    assert!(found.iter().zip(&expected).all(close), "{found:?} {expected:?}");
    assert!(size(dir, "second.ansc") < size(dir, "whole.ansc"));

    let (report, code) = json(dir, &["check", "mlp.onnx", "--inputs", "nothing", "--json"]);
    assert_eq!((code, &report["compiles"]), (1, &Value::Bool(false)));
}
