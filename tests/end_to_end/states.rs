//! Tensors that a session keeps from run to run: it computes what a model does whose caller hands
//! them on.

use std::path::{Path, PathBuf};

use crate::common::{ansc, str, text};
use ansc_models::Builder;
use ansc_models::proto::{Attribute, Dim, ElemType};
use ansc_runtime::{Model, RunError, Session, SessionOptions, Tensor};

const BATCH: Dim = Dim::Named("batch");
const ROWS: Dim = Dim::Named("rows");

/// Attention with a cache of keys, which are the values too: two heads share each of them, as
/// exporters write it.
fn decoder(dir: &Path) -> PathBuf {
    let mut b = Builder::new("net");
    let x = b.typed_input("x", ElemType::F32, &[BATCH, ROWS, Dim::Size(32)]);
    let cache = |rows: &'static str| [BATCH, Dim::Size(2), Dim::Named(rows), Dim::Size(8)];
    let past = b.typed_input("past", ElemType::F32, &cache("past"));
    let heads = |b: &mut Builder, heads: i64| {
        let w = b.weight(&[32, 8 * heads as usize], 32, 1.0);
        let y = b.op("MatMul", &[&x, &w], &[]);
        let shape = b.ints(&[0, 0, heads, 8]);
        let y = b.op("Reshape", &[&y, &shape], &[]);
        b.op("Transpose", &[&y], &[("perm", Attribute::Ints(vec![0, 2, 1, 3]))])
    };
    let (q, k) = (heads(&mut b, 4), heads(&mut b, 2));
    b.result("present", &cache("all"), "Concat", &[&past, &k], &[("axis", Attribute::Int(2))]);
    let two = b.ints(&[2]);
    let k = b.op("Unsqueeze", &["present", &two], &[]);
    let twice = b.ints(&[1, 1, 2, 1, 1]);
    let k = b.op("Expand", &[&k, &twice], &[]);
    let four = b.ints(&[0, 4, -1, 8]);
    let k = b.op("Reshape", &[&k, &four], &[]);
    let turned = [("perm", Attribute::Ints(vec![0, 1, 3, 2]))];
    let scores = b.op("Transpose", &[&k], &turned);
    let scores = b.op("MatMul", &[&q, &scores], &[]);
    let shares = b.op("Softmax", &[&scores], &[]);
    b.result("y", &[BATCH, Dim::Size(4), ROWS, Dim::Size(8)], "MatMul", &[&shares, &k], &[]);
    let path = dir.join("net.onnx");
    std::fs::write(&path, b.finish().to_bytes()).unwrap();
    path
}

const DIMS: [&str; 3] = ["batch=1..2", "rows=1..9", "past=0..20"];

fn compiled(model: &Path, name: &str, more: &[&str]) -> PathBuf {
    let output = model.with_file_name(name);
    let mut args = vec!["compile", str(model), "-o", str(&output)];
    args.extend(DIMS.iter().flat_map(|dim| ["--dim", dim]));
    args.extend(more);
    let done = ansc(&args);
    assert!(done.status.success(), "{}", text(&done.stderr));
    output
}

fn session(artifact: &Path, threads: usize) -> Session {
    let options = SessionOptions { threads, ..SessionOptions::default() };
    Model::load(artifact).unwrap().session_with(&options).unwrap()
}

fn values(shape: &[usize], seed: usize) -> Tensor {
    let count = shape.iter().product::<usize>();
    let value = |i: usize| (((i + seed) * 37) % 101) as f32 / 50.0 - 1.0;
    Tensor::from_slice(shape, &(0..count).map(value).collect::<Vec<f32>>())
}

fn check(name: &str, expected: &Tensor, found: &Tensor) {
    assert_eq!(expected.shape(), found.shape(), "{name}");
    for (e, f) in expected.as_slice::<f32>().iter().zip(found.as_slice::<f32>()) {
        assert!((e - f).abs() <= 2e-5 * (1.0 + e.abs()), "{name}: {e} became {f}");
    }
}

#[test]
fn a_session_hands_on_what_a_caller_would() {
    let dir = tempfile::tempdir().unwrap();
    let model = decoder(dir.path());
    let keeping = compiled(&model, "state.ansc", &["--state", "past=present"]);
    let handing = compiled(&model, "plain.ansc", &[]);
    for threads in [1, 3] {
        let mut keeps = session(&keeping, threads);
        let mut hands = session(&handing, threads);
        assert_eq!((keeps.inputs().len(), keeps.outputs().len()), (1, 1));
        for batch in [1, 2, 1] {
            let mut past = Tensor::try_zeros(ansc_runtime::DType::F32, &[batch, 2, 0, 8]).unwrap();
            keeps.reset();
            for (i, rows) in [5, 1, 1, 9, 2, 1].into_iter().enumerate() {
                let x = values(&[batch, rows, 32], 10 * i);
                let expected = hands.run(&[("x", &x), ("past", &past)]).unwrap();
                let found = keeps.run(&[("x", &x)]).unwrap();
                assert_eq!(expected[0].0, "present");
                past = expected[0].1.clone();
                check("y", &expected[1].1, &found[0].1);
                check("present", &past, &keeps.state("past").unwrap());
                // Rows that are forgotten leave nothing behind.
                if i == 3 {
                    keeps.truncate(7).unwrap();
                    past = keeps.state("past").unwrap();
                    assert_eq!(past.shape(), [batch, 2, 7, 8]);
                }
            }
        }
        // There is room for 29 rows.
        let x = values(&[1, 9, 32], 0);
        let error = (0..3).find_map(|_| keeps.run(&[("x", &x)]).err());
        assert!(matches!(error, Some(RunError::Full { .. })), "{error:?}");
    }
}

#[test]
fn verbs_know_of_states() {
    let dir = tempfile::tempdir().unwrap();
    let model = decoder(dir.path());
    let artifact = compiled(&model, "net.ansc", &["--state", "past=present"]);
    let (net, path) = (str(&model), str(&artifact));
    let shown = text(&ansc(&["inspect", path]).stdout);
    let line = "state past: f32 [1, 2, 0..28, 8] -> present: [1, 2, 1..29, 8]";
    assert!(shown.contains(line), "{shown}");
    let verified = ansc(&["verify", net, path]);
    let said = text(&verified.stdout);
    assert!(verified.status.success(), "{said}");
    assert!(said.contains("ok   batch=2 rows=9 past=20 present: relative"), "{said}");
    let sizes = ["--dim", "batch=2", "--dim", "rows=3", "--dim", "past=11"];
    let layers = ansc(&[&["verify", net, path, "--layers"][..], &sizes].concat());
    assert!(layers.status.success(), "{}", text(&layers.stderr));
    let out = dir.path().join("out");
    let run = ansc(&[&["run", path, "--output-dir", str(&out)][..], &sizes].concat());
    assert!(text(&run.stdout).contains("present.npy: f32 [2, 2, 14, 8]"), "{}", text(&run.stdout));
    let bench = ansc(&[&["bench", path, "--runs", "3", "--per-kernel"][..], &sizes].concat());
    assert!(text(&bench.stdout).contains("past=11: p50"), "{}", text(&bench.stderr));
    let tuned = dir.path().join("tuned.db");
    let tune = ["tune", net, "--trials", "1", "--records", str(&tuned), "--state", "past=present"];
    let tune =
        ansc(&[&tune[..], &["--dim", "batch=1", "--dim", "rows=1", "--dim", "past=4"]].concat());
    assert!(text(&tune.stdout).contains("--state past=present"), "{}", text(&tune.stderr));
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = decoder(dir.path());
    let sizes = ["--dim", "batch=1", "--dim", "rows=1", "--dim", "past=4"];
    let refused = |more: &[&str]| {
        let done = ansc(&[&["compile", str(&model)][..], &sizes, more].concat());
        assert!(!done.status.success());
        text(&done.stderr)
    };
    let cases: [(&[&str], &str); 6] = [
        (&["--state", "past"], "`past` is not INPUT=OUTPUT"),
        (&["--state", "old*=new*"], "no input has such a name; the model has x, past"),
        (&["--state", "past=new"], "the model has no output `new`; it has present, y"),
        (&["--state", "past=y"], "a run that finds f32[1, 2, 4, 8] in `past` leaves"),
        (&["--state", "past=present", "--target", "cuda"], "an artifact for a GPU keeps no state"),
        (&["--state", "past=present", "--emit", "bundle"], "a bundle keeps no state"),
    ];
    for (more, expected) in cases {
        let said = refused(more);
        assert!(said.contains(expected), "{expected}: {said}");
    }
}
