//! One specialisation for a range of sizes: it computes what an artifact for each size does.

use std::path::{Path, PathBuf};

use crate::common::{ansc, str, text};
use ansc_models::Builder;
use ansc_models::proto::{Attribute, Dim, ElemType};
use ansc_runtime::{Model, Session, SessionOptions, Tensor, View, ViewMut};

const BATCH: Dim = Dim::Named("batch");
const LENGTH: Dim = Dim::Named("length");

fn saved(builder: Builder, dir: &Path) -> PathBuf {
    let path = dir.join("net.onnx");
    std::fs::write(&path, builder.finish().to_bytes()).unwrap();
    path
}

/// Attention over `x: [batch, length, 24]`, a mean over the length, and the scores themselves.
fn attention(dir: &Path) -> PathBuf {
    attention_that(true, dir)
}

/// The same, which may keep its scores to itself.
fn attention_that(shows: bool, dir: &Path) -> PathBuf {
    let mut b = Builder::new("net");
    let x = b.typed_input("x", ElemType::F32, &[BATCH, LENGTH, Dim::Size(24)]);
    let [q, k, v] = [0, 1, 2].map(|_| {
        let w = b.weight(&[24, 24], 24, 1.0);
        b.op("MatMul", &[&x, &w], &[])
    });
    let k = b.op("Transpose", &[&k], &[("perm", Attribute::Ints(vec![0, 2, 1]))]);
    let scores = b.op("MatMul", &[&q, &k], &[]);
    let shares = match shows {
        true => {
            b.result("shares", &[BATCH, LENGTH, LENGTH], "Softmax", &[&scores], &[]);
            "shares".to_owned()
        }
        false => b.op("Softmax", &[&scores], &[]),
    };
    let sum = b.op("MatMul", &[&shares, &v], &[]);
    let sum = b.op("Add", &[&sum, &x], &[]);
    let axes = [("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(0))];
    b.result("y", &[BATCH, Dim::Size(24)], "ReduceMean", &[&sum], &axes);
    saved(b, dir)
}

/// Convolutions and pools of `x: [batch, 3, length, 16]`.
fn image(dir: &Path) -> PathBuf {
    let mut b = Builder::new("net");
    let x = b.typed_input("x", ElemType::F32, &[BATCH, Dim::Size(3), LENGTH, Dim::Size(16)]);
    let pads = Attribute::Ints(vec![1, 1, 1, 1]);
    let strides = Attribute::Ints(vec![2, 2]);
    let w = b.weight(&[16, 3, 3, 3], 27, 1.0);
    let y = b.op("Conv", &[&x, &w], &[("pads", pads.clone()), ("strides", strides.clone())]);
    let y = b.op("Relu", &[&y], &[]);
    let window = [("kernel_shape", Attribute::Ints(vec![3, 3])), ("pads", pads.clone())];
    let y = b.op("MaxPool", &[&y], &window);
    let w = b.weight(&[16, 16, 3, 3], 144, 1.0);
    let y = b.op("Conv", &[&y, &w], &[("pads", pads)]);
    let y = b.op("GlobalAveragePool", &[&y], &[]);
    let y = b.op("Flatten", &[&y], &[]);
    let w = b.weight(&[16, 10], 16, 1.0);
    b.result("y", &[BATCH, Dim::Size(10)], "MatMul", &[&y, &w], &[]);
    saved(b, dir)
}

/// One step of a decoder: a new row of `x`, and those of the steps before it. The mask has an
/// element for each of them.
fn step(dir: &Path) -> PathBuf {
    let mut b = Builder::new("net");
    let (past, all) = (Dim::Named("past"), Dim::Named("past + 1"));
    let x = b.typed_input("x", ElemType::F32, &[BATCH, Dim::Size(1), Dim::Size(8)]);
    let past = b.typed_input("past", ElemType::F32, &[BATCH, past, Dim::Size(8)]);
    let mask = b.typed_input("mask", ElemType::F32, &[BATCH, Dim::Size(1), all]);
    let axis = [("axis", Attribute::Int(1))];
    let rows = [BATCH, Dim::Named("all"), Dim::Size(8)];
    b.result("present", &rows, "Concat", &[&past, &x], &axis);
    let turned = [("perm", Attribute::Ints(vec![0, 2, 1]))];
    let k = b.op("Transpose", &["present"], &turned);
    let scores = b.op("MatMul", &[&x, &k], &[]);
    let scores = b.op("Add", &[&scores, &mask], &[]);
    let shares = b.op("Softmax", &[&scores], &[]);
    b.result("y", &[BATCH, Dim::Size(1), Dim::Size(8)], "MatMul", &[&shares, "present"], &[]);
    saved(b, dir)
}

fn session(model: &Path, dims: &[String], threads: usize) -> Session {
    let output = model.with_file_name("net.ansc");
    let mut args = vec!["compile", str(model), "-o", str(&output)];
    args.extend(dims.iter().flat_map(|dim| ["--dim", dim]));
    let done = ansc(&args);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let options = SessionOptions { threads, ..SessionOptions::default() };
    Model::load(output).unwrap().session_with(&options).unwrap()
}

fn values(shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(shape, &values)
}

/// Runs a model for ranges at many sizes, and compares with artifacts for each size.
fn check(
    model: &Path,
    ranges: [&str; 2],
    sizes: &[(usize, usize)],
    shape: fn(usize, usize) -> Vec<usize>,
) {
    let dims = [format!("batch={}", ranges[0]), format!("length={}", ranges[1])];
    for threads in [1, 3] {
        let mut wide = session(model, &dims, threads);
        for &(batch, length) in sizes {
            let one = [format!("batch={batch}"), format!("length={length}")];
            let mut exact = session(model, &one, threads);
            let x = values(&shape(batch, length));
            let expected = exact.run(&[("x", &x)]).unwrap();
            let found = wide.run(&[("x", &x)]).unwrap();
            for ((name, e), (_, f)) in expected.iter().zip(&found) {
                assert_eq!(e.shape(), f.shape(), "{name} at {one:?}");
                for (e, f) in e.as_slice::<f32>().iter().zip(f.as_slice::<f32>()) {
                    let close = (e - f).abs() <= 2e-5 * (1.0 + e.abs());
                    assert!(close, "{name} at {one:?}: {e} became {f}");
                }
            }
        }
    }
}

#[test]
fn attention_of_any_length() {
    let dir = tempfile::tempdir().unwrap();
    let model = attention(dir.path());
    // Later runs find in memory what earlier, larger ones left there.
    let sizes = [(5, 70), (1, 1), (5, 2), (2, 70), (3, 16), (4, 17), (1, 63), (2, 33), (5, 31)];
    check(&model, ["1..5", "1..70"], &sizes, |batch, length| vec![batch, length, 24]);
}

/// Both products of many rows are one kernel, which needs no memory for scores.
#[test]
fn long_attention_of_any_length() {
    let dir = tempfile::tempdir().unwrap();
    let model = attention_that(false, dir.path());
    let sizes = [(2, 600), (1, 1), (2, 18), (1, 330), (2, 512), (1, 333), (2, 599)];
    check(&model, ["1..2", "1..600"], &sizes, |batch, length| vec![batch, length, 24]);
    let artifact = dir.path().join("net.ansc");
    let whole = ["compile", str(&model), "-o", str(&artifact), "--dim", "batch=2", "--json"];
    let said = ansc(&[&whole[..], &["--dim", "length=600"]].concat()).stdout;
    let report: serde_json::Value = serde_json::from_slice(&said).unwrap();
    let bytes = report["report"]["arena_bytes"].as_u64().unwrap();
    assert!(bytes < 600 * 600 * 4, "{bytes}");
}

#[test]
fn images_of_any_height() {
    let dir = tempfile::tempdir().unwrap();
    let model = image(dir.path());
    let sizes = [(4, 41), (1, 5), (2, 16), (3, 17), (1, 40), (4, 6)];
    check(&model, ["1..4", "5..41"], &sizes, |batch, length| vec![batch, 3, length, 16]);
}

#[test]
fn decoding_after_any_number_of_steps() {
    let dir = tempfile::tempdir().unwrap();
    let model = step(dir.path());
    let dims = ["batch=2".to_owned(), "past=1..40".to_owned()];
    let mut wide = session(&model, &dims, 2);
    let mut past = values(&[2, 1, 8]);
    for n in 1..40_usize {
        let x = values(&[2, 1, 8]);
        let mask: Vec<f32> =
            (0..2 * (n + 1)).map(|i| if i % 3 == 1 { -1e9 } else { 0.0 }).collect();
        let mask = Tensor::from_slice(&[2, 1, n + 1], &mask);
        let inputs = [("x", &x), ("past", &past), ("mask", &mask)];
        let found = wide.run(&inputs).unwrap();
        assert_eq!(found[0].1.shape(), [2, n + 1, 8]);
        if n % 7 == 1 {
            let mut exact = session(&model, &[dims[0].clone(), format!("past={n}")], 2);
            let expected = exact.run(&inputs).unwrap();
            assert_eq!(expected[0], found[0]);
            let each = |i: &[(String, Tensor)]| i[1].1.as_slice::<f32>().to_vec();
            for (e, f) in each(&expected).into_iter().zip(each(&found)) {
                assert!((e - f).abs() <= 2e-5, "{e} became {f} after {n}");
            }
        }
        past = found[0].1.clone();
    }
    let bad = values(&[2, 1, 5]);
    let x = values(&[2, 1, 8]);
    assert!(wide.run(&[("x", &x), ("past", &past), ("mask", &bad)]).is_err());
}

/// Values behind which the memory that a process may read ends.
struct BeforeTheEnd {
    begin: *mut libc::c_void,
    bytes: usize,
    at: usize,
    count: usize,
}

impl BeforeTheEnd {
    fn of(values: &[f32]) -> BeforeTheEnd {
        const PAGE: usize = 4096;
        let room = size_of_val(values).next_multiple_of(PAGE);
        let bytes = room + PAGE;
        let (may, how) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory; its last page may not be touched, and no value lies there.
        unsafe {
            let begin = libc::mmap(std::ptr::null_mut(), bytes, may, how, -1, 0);
            assert_ne!(begin, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(begin.add(room), PAGE, libc::PROT_NONE), 0);
            let at = room - size_of_val(values);
            let to = begin.add(at).cast::<f32>();
            std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len());
            BeforeTheEnd { begin, bytes, at, count: values.len() }
        }
    }

    fn values(&self) -> &[f32] {
        // SAFETY: they were written there, and the memory is this value's own.
        unsafe { std::slice::from_raw_parts(self.begin.add(self.at).cast(), self.count) }
    }
}

impl Drop for BeforeTheEnd {
    fn drop(&mut self) {
        // SAFETY: it was mapped, and nothing refers to it any more.
        unsafe { libc::munmap(self.begin, self.bytes) };
    }
}

/// Large rows that earlier runs left are not copied before they are joined, and nothing behind
/// them is read.
#[test]
fn large_inputs_are_read_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut b = Builder::new("net");
    let past = Dim::Named("past");
    let x = b.typed_input("x", ElemType::F32, &[Dim::Size(3), Dim::Size(1), Dim::Size(64)]);
    let past = b.typed_input("past", ElemType::F32, &[Dim::Size(3), past, Dim::Size(64)]);
    let rows = [Dim::Size(3), Dim::Named("all"), Dim::Size(64)];
    let axis = [("axis", Attribute::Int(1))];
    b.result("present", &rows, "Concat", &[&past, &x], &axis);
    let (first, turned) = ([Dim::Size(3), Dim::Size(64)], ("perm", Attribute::Ints(vec![0, 2, 1])));
    let k = b.op("Transpose", &["present"], &[turned]);
    let scores = b.op("MatMul", &[&x, &k], &[]);
    let shares = b.op("Softmax", &[&scores], &[]);
    let sum = b.op("MatMul", &[&shares, "present"], &[]);
    let axes = [("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(0))];
    b.result("y", &first, "ReduceMax", &[&sum], &axes);
    let model = saved(b, dir.path());
    let mut wide = session(&model, &["past=1..700".to_owned()], 2);
    for n in [1, 300, 511, 512, 513, 699, 700] {
        let mut exact = session(&model, &[format!("past={n}")], 2);
        let (x, past) = (values(&[3, 1, 64]), values(&[3, n, 64]));
        let inputs = [("x", &x), ("past", &past)];
        let expected = exact.run(&inputs).unwrap();
        let before_the_end = BeforeTheEnd::of(past.as_slice());
        let view = View::of_slice(past.shape(), before_the_end.values()).unwrap();
        let given = [("x", View::from(&x)), ("past", view)];
        let mut found: Vec<(String, Tensor)> =
            expected.iter().map(|(name, t)| (name.clone(), values(t.shape()))).collect();
        let mut outputs: Vec<(&str, ViewMut<'_>)> =
            found.iter_mut().map(|(name, t)| (&name[..], ViewMut::from(t))).collect();
        wide.run_into(&given, &mut outputs).unwrap();
        drop(outputs);
        assert_eq!(expected[0], found[0], "{n}");
        let each = |i: &[(String, Tensor)]| i[1].1.as_slice::<f32>().to_vec();
        for (e, f) in each(&expected).into_iter().zip(each(&found)) {
            assert!((e - f).abs() <= 2e-5, "{e} became {f} after {n}");
        }
    }
    let wide = dir.path().join("wide.ansc");
    ansc(&["compile", str(&model), "-o", str(&wide), "--dim", "past=513..700"]);
    let said = ansc(&["inspect", str(&wide), "--json"]).stdout;
    assert_eq!(text(&said).matches("\"dense\":true").count(), 1, "{}", text(&said));
}

#[test]
fn verbs_know_of_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let model = attention(dir.path());
    let artifact = dir.path().join("net.ansc");
    let path = str(&artifact);
    let done =
        ansc(&["compile", str(&model), "-o", path, "--dim", "batch=2", "--dim", "length=1,4..20"]);
    let said = text(&done.stdout);
    assert!(
        said.contains("length=1; length=4; length=5..8; length=9..16; length=17..20"),
        "{said}"
    );
    let report = ansc(&["verify", str(&model), path]);
    let said = text(&report.stdout);
    assert!(report.status.success(), "{said}");
    for size in ["length=1 ", "length=4 ", "length=5 ", "length=16 ", "length=20 "] {
        assert!(said.contains(size), "{size}: {said}");
    }
    let report = ansc(&["verify", str(&model), path, "--dim", "length=11"]);
    let said = text(&report.stdout);
    assert!(report.status.success() && said.contains("ok   length=11 y"), "{said}");
    assert_eq!(said.matches("length=").count(), 2, "{said}");
    let bench = |length: &str| -> serde_json::Value {
        let size = ["--dim", "batch=2", "--dim", length];
        let bench = ansc(&[&["bench", path, "--runs", "2", "--json"][..], &size].concat());
        serde_json::from_slice(&bench.stdout).unwrap()
    };
    let (seven, eight) = (bench("length=7"), bench("length=8"));
    assert_eq!(seven["specialisation"], "length=7");
    // Kernels count what they do for the largest size of their range.
    assert!(seven["latency"]["gflops"].is_null() && eight["latency"]["gflops"].is_number());
    let folder = dir.path().join("out");
    let run = ansc(&["run", path, "--dim", "length=18", "--output-dir", str(&folder)]);
    assert!(text(&run.stdout).contains("[2, 18, 18]"), "{}", text(&run.stdout));
    let refused = |args: &[&str], code: i32, cause: &str| {
        let output = ansc(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(cause), "{args:?}: no `{cause}` in {said}");
    };
    refused(&["bench", path, "--dim", "length=21"], 1, "but for length=1; length=4;");
    refused(&["bench", path, "--dim", "batch=3"], 1, "compiled for batch=2, not for batch=3");
    refused(&["compile", str(&model), "--dim", "length=5..2"], 2, "begins above its end");
    let gpu = ["compile", str(&model), "--dim", "batch=2", "--dim", "length=2..9", "--target"];
    refused(&[&gpu[..], &["cuda"]].concat(), 2, "a GPU knows no ranges of sizes");
}

#[test]
fn reports_show_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let model = attention(dir.path());
    let artifact = dir.path().join("net.ansc");
    let path = str(&artifact);
    let compile = |more: &[&str]| {
        let args =
            ["compile", str(&model), "-o", path, "--dim", "batch=1..3", "--dim", "length=1,4..90"];
        text(&ansc(&[&args[..], more].concat()).stdout)
    };
    let json: serde_json::Value = serde_json::from_str(&compile(&["--json"])).unwrap();
    let names = json["report"]["specialisations"].as_array().unwrap();
    assert_eq!((names.len(), &names[9]), (10, &"batch=2..3 length=65..90".into()));
    let said = compile(&[]);
    let first = "for batch=1 length=1; batch=1 length=4; batch=1 length=5..16; \
                 batch=1 length=17..64; and 6 more\n";
    assert!(said.contains(first), "{said}");

    let inspected = ansc(&["inspect", path]);
    let said = text(&inspected.stdout);
    for part in [
        "for batch=1 length=1:\ninput x: f32 [1, 1, 24]\noutput shares: f32 [1, 1, 1]\n",
        "for batch=2..3 length=17..64:\ninput x: f32 [2..3, 17..64, 24]\n\
         output shares: f32 [2..3, 17..64, 17..64]\noutput y: f32 [2..3, 24]\n",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let json = ansc(&["inspect", path, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let last = &json["specialisations"][9];
    assert_eq!(last["sizes"][1], serde_json::json!({"name": "length", "low": 65, "high": 90}));
    let x = serde_json::json!([{"size": 0}, {"size": 1}, {"constant": 24}]);
    assert_eq!((&last["inputs"][0]["extents"], &last["inputs"][0]["shape"][1]), (&x, &90.into()));
}
