//! A C program runs what `--emit bundle` wrote, without the runtime.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{ansc, refuses, small_model, str, text};
use ansc_models::Builder;
use ansc_models::proto::{Dim, ElemType};
use ansc_runtime::{Model, SessionOptions, Tensor};

/// Compiles a model to `DIR/NAME.o`.
fn bundle(model: &Path, object: &Path, more: &[&str]) {
    let mut args = vec!["compile", str(model), "--emit", "bundle", "-o", str(object)];
    args.extend(more);
    let compiled = ansc(&args);
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
}

fn run(program: &str, args: &[&str]) -> Vec<u8> {
    let out = Command::new(program).args(args).output().unwrap();
    assert!(out.status.success(), "{program} {args:?}: {} {}", out.status, text(&out.stderr));
    out.stdout
}

/// A statically linked program of this source and these objects.
fn program(dir: &Path, source: &str, objects: &[&Path]) -> PathBuf {
    let (c, program) = (dir.join("main.c"), dir.join("main"));
    std::fs::write(&c, source).unwrap();
    let include = format!("-I{}", dir.display());
    let mut args = vec!["-std=c11", "-O1", "-static", "-Wall", "-Wextra", "-Werror", &include];
    args.extend([str(&c), "-o", str(&program)]);
    args.extend(objects.iter().map(|o| str(o)));
    args.push("-lm");
    run("cc", &args);
    program
}

/// `main` that runs the bundle on `x[i] = (i % 7 - 3) * 0.25` and prints the bits of `y`.
fn source(name: &str, input: usize, output: usize) -> String {
    let upper = name.to_ascii_uppercase();
    format!(
        "#include <stdio.h>\n#include <string.h>\n#include \"{name}.h\"\n\
         static float x[{input}], y[{output}];\n\
         static _Alignas({upper}_WORKSPACE_ALIGN) unsigned char work[{upper}_WORKSPACE_BYTES];\n\
         int main(void) {{\n\
             for (int i = 0; i < {upper}_IN_x_LEN; i++) x[i] = (float)(i % 7 - 3) * 0.25f;\n\
             struct {name}_io io = {{ .in_x = x, .out_y = y }};\n\
             int status = {name}_run(&io, work);\n\
             for (int i = 0; i < {upper}_OUT_y_LEN; i++) {{\n\
                 unsigned bits; memcpy(&bits, &y[i], 4); printf(\"%u\\n\", bits); }}\n\
             return status; }}\n"
    )
}

fn x(shape: &[usize]) -> Tensor {
    let values = (0..shape.iter().product()).map(|i: usize| (i % 7) as f32 * 0.25 - 0.75);
    Tensor::from_slice(shape, &values.collect::<Vec<f32>>())
}

/// The bits of `y` as a session of one thread computes it.
fn session(model: &Path, dir: &Path, x: &Tensor) -> Vec<u32> {
    let artifact = dir.join("expected.ansc");
    let compiled = ansc(&["compile", str(model), "-o", str(&artifact)]);
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let options = SessionOptions { threads: 1, ..SessionOptions::default() };
    let mut session = Model::load(&artifact).unwrap().session_with(&options).unwrap();
    let y = session.run(&[("x", x)]).unwrap();
    y[0].1.as_slice::<f32>().iter().map(|v| v.to_bits()).collect()
}

/// `softmax(sin(tanh(x * w)))`: calls the C library.
fn functions(dir: &Path) -> PathBuf {
    let mut b = Builder::new("functions");
    let x = b.input("x", &[5, 13]);
    let w = b.weight(&[13, 11], 13, 1.0);
    let y = b.op("MatMul", &[&x, &w], &[]);
    let y = b.op("Tanh", &[&y], &[]);
    let y = b.op("Sin", &[&y], &[]);
    b.result("y", &[5, 11], "Softmax", &[&y], &[]);
    let path = dir.join("functions.onnx");
    std::fs::write(&path, b.finish().to_bytes()).unwrap();
    path
}

#[test]
fn a_static_program_computes_the_session_s_bits() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let models = [(small_model(dir), vec![1, 3, 16, 16], 8), (functions(dir), vec![5, 13], 55)];
    for (model, shape, outputs) in models {
        let x = x(&shape);
        let object = dir.join("net.o");
        bundle(&model, &object, &[]);
        let found = run(str(&program(dir, &source("net", x.len(), outputs), &[&object])), &[]);
        let found: Vec<u32> = text(&found).lines().map(|l| l.parse().unwrap()).collect();
        assert_eq!(found, session(&model, dir, &x), "{}", model.display());
    }
}

#[test]
fn the_header_is_c99_and_cpp() {
    let dir = tempfile::tempdir().unwrap();
    let object = dir.path().join("9-odd name*.o");
    bundle(&small_model(dir.path()), &object, &["--weights-beside"]);
    let header = object.with_extension("h");
    for language in [["-xc", "-std=c99"], ["-xc++", "-std=c++11"]] {
        let mut args = language.to_vec();
        args.extend(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", str(&header)]);
        run("cc", &args);
    }
    let symbols = text(&run("nm", &["-g", "--defined-only", str(&object)]));
    let names: Vec<&str> = symbols.lines().filter_map(|l| l.split_whitespace().last()).collect();
    assert_eq!(names, ["m9_odd_name__run"]);
    let weights = std::fs::metadata(object.with_extension("weights")).unwrap().len();
    let text = std::fs::read_to_string(&header).unwrap();
    assert!(text.contains(&format!("M9_ODD_NAME__WEIGHTS_BYTES {weights}\n")), "{text}");
}

#[test]
fn only_mathematics_stays_open() {
    let dir = tempfile::tempdir().unwrap();
    for (model, expected) in
        [(small_model(dir.path()), vec![]), (functions(dir.path()), vec!["sinf"])]
    {
        for target in ["native", "x86-64-v3", "aarch64"] {
            let object = dir.path().join("net.o");
            bundle(&model, &object, &["--target-cpu", target]);
            let undefined = text(&run("nm", &["-u", str(&object)]));
            let names: Vec<&str> =
                undefined.lines().filter_map(|l| l.split_whitespace().last()).collect();
            assert_eq!(names, expected, "{target}");
        }
    }
}

#[test]
fn two_bundles_share_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let [a, b] = ["a.o", "b.o"].map(|name| dir.join(name));
    let model = small_model(dir);
    bundle(&model, &a, &[]);
    bundle(&model, &b, &[]);
    let main = "#include \"a.h\"\n#include \"b.h\"\n\
        static float x[768], y[8], z[8];\n\
        static _Alignas(64) unsigned char work[A_WORKSPACE_BYTES + 64];\n\
        int main(void) {\n\
            for (int i = 0; i < 768; i++) x[i] = (float)i;\n\
            struct a_io one = { x, y };\n\
            struct b_io two = { x, z };\n\
            if (a_run(&one, work) || b_run(&two, work)) return 1;\n\
            if (a_run(&one, work + 4) != A_MISALIGNED) return 2;\n\
            float sum = 0;\n\
            for (int i = 0; i < 8; i++) { if (y[i] != z[i]) return 3; sum += y[i]; }\n\
            return sum == 0 ? 4 : 0; }\n";
    run(str(&program(dir, main, &[&a, &b])), &[]);
}

#[test]
fn the_caller_s_mode_of_floats_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let object = dir.join("net.o");
    bundle(&small_model(dir), &object, &[]);
    let main = "#include <fenv.h>\n#include \"net.h\"\n\
        static float x[768], y[8];\n\
        static _Alignas(64) unsigned char work[NET_WORKSPACE_BYTES];\n\
        int main(void) {\n\
            volatile float tiny = 1e-38f;\n\
            struct net_io io = { x, y };\n\
            fesetround(FE_UPWARD);\n\
            if (net_run(&io, work)) return 1;\n\
            if (fegetround() != FE_UPWARD) return 2;\n\
            return tiny * 0.5f == 0 ? 3 : 0; }\n";
    run(str(&program(dir, main, &[&object])), &[]);
}

#[test]
fn indices_out_of_range_end_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut b = Builder::new("gather");
    let indices = b.typed_input("i", ElemType::I64, &[Dim::Size(3)]);
    let table = b.weight(&[5, 2], 2, 1.0);
    b.result("y", &[3, 2], "Gather", &[&table, &indices], &[]);
    let model = dir.join("gather.onnx");
    std::fs::write(&model, b.finish().to_bytes()).unwrap();
    let object = dir.join("net.o");
    bundle(&model, &object, &[]);
    let main = "#include \"net.h\"\n\
        static float y[6];\n\
        static _Alignas(64) unsigned char work[NET_WORKSPACE_BYTES];\n\
        static int run(int64_t a, int64_t b, int64_t c) {\n\
            int64_t i[3] = { a, b, c };\n\
            struct net_io io = { i, y };\n\
            return net_run(&io, work); }\n\
        int main(void) {\n\
            if (run(0, 4, -5) != NET_OK || y[0] != y[4] || y[0] == y[2]) return 1;\n\
            if (run(5, 0, 0) != NET_INDEX_OUT_OF_RANGE) return 2;\n\
            if (run(0, 0, -6) != NET_INDEX_OUT_OF_RANGE) return 3;\n\
            return 0; }\n";
    run(str(&program(dir, main, &[&object])), &[]);
}

#[test]
fn what_needs_the_runtime_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut b = Builder::new("det");
    let x = b.input("x", &[4, 4]);
    b.result("y", &[0usize; 0], "Det", &[&x], &[]);
    let model = dir.join("det.onnx");
    std::fs::write(&model, b.finish().to_bytes()).unwrap();
    let object = dir.join("det.o");
    let args = ["compile", str(&model), "--emit", "bundle", "-o", str(&object)];
    refuses(
        &args,
        1,
        str(&model),
        &["node `", "Det is work of the runtime", "without `--emit bundle`"],
    );
    assert!(!object.exists());

    let usage = |more: &[&str], says: &str| {
        let mut args = vec!["compile", str(&model)];
        args.extend(more);
        let out = ansc(&args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(text(&out.stderr).contains(says), "{}", text(&out.stderr));
    };
    usage(&["--emit", "bundle", "--target", "cuda"], "GPUs need the runtime");
    usage(&["--emit", "bundle", "-o", "x.ansc"], "NAME.o");
    usage(&["--weights-beside"], "goes with `--emit bundle`");
}

#[test]
fn the_rust_example_runs_a_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let model = small_model(dir);
    bundle(&model, &dir.join("net.o"), &[]);
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/bundle-rust/Cargo.toml");
    let built = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--manifest-path", str(&manifest)])
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .env("BUNDLE_DIR", dir)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    let printed = text(&built.stdout);
    let numbers = printed.trim().trim_matches(['[', ']']).split(", ");
    let found: Vec<u32> = numbers.map(|n| n.parse::<f32>().unwrap().to_bits()).collect();
    let x = Tensor::from_slice(&[1, 3, 16, 16], &[0.5f32; 768]);
    assert_eq!(found, session(&model, dir, &x));
}
