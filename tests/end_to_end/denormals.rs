//! Numbers below the smallest normal one, from models: what becomes of them, and what they cost.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{ansc, str, text};
use ansc_models::Builder;
use ansc_models::proto::{Attribute, ElemType};
use ansc_runtime::{DType, Model, Session, SessionOptions, Tensor};

/// A model of one input and one output, compiled for a processor.
fn compiled(dir: &Path, builder: Builder, cpu: &str) -> Model {
    let (model, artifact) = (dir.join("model.onnx"), dir.join("model.ansc"));
    std::fs::write(&model, builder.finish().to_bytes()).unwrap();
    let arguments =
        ["compile", str(&model), "-o", str(&artifact), "--untuned", "--target-cpu", cpu];
    let done = ansc(&arguments);
    assert!(done.status.success(), "{}", text(&done.stderr));
    Model::load(&artifact).unwrap()
}

fn session(model: &Model, keep_denormals: bool) -> Session {
    let options = SessionOptions { threads: 1, keep_denormals, ..SessionOptions::default() };
    model.session_with(&options).unwrap()
}

fn result(model: &Model, keep_denormals: bool, inputs: &[(&str, &Tensor)]) -> Vec<f64> {
    session(model, keep_denormals).run(inputs).unwrap()[0].1.to_f64_vec()
}

/// All of them, by instructions where the processor has them and by arithmetic where it has not.
#[test]
fn those_of_half_floats_are_normal_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
    let x = Tensor::from_bytes(DType::F16, &[bits.len()], &bytes).unwrap();
    let baseline = if cfg!(target_arch = "x86_64") { "x86-64" } else { "native" };
    for cpu in ["native", baseline] {
        let mut b = Builder::new("widen");
        let shape = [bits.len().into()];
        b.typed_input("x", ElemType::F16, &shape);
        let to = [("to", Attribute::Int(1))];
        b.result("y", &shape, "Cast", &["x"], &to);
        let model = compiled(dir.path(), b, cpu);
        let y = result(&model, false, &[("x", &x)]);
        for (bits, (y, x)) in bits.iter().zip(y.iter().zip(x.to_f64_vec())) {
            assert!(*y == x || y.is_nan() && x.is_nan(), "{bits:#x} on {cpu}: {y}, not {x}");
        }
    }
}

/// Functions of the C library give the result of zero for a denormal number, unless these are kept.
#[test]
fn functions_of_the_c_library_are_given_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let mut b = Builder::new("power");
    b.input("x", &[3]);
    b.input("p", &[3]);
    b.result("y", &[3], "Pow", &["x", "p"], &[]);
    let model = compiled(dir.path(), b, "native");
    let p = Tensor::from_slice(&[3], &[0.5f32, -0.5, 0.25]);
    let power = |x: f32, keep| {
        result(&model, keep, &[("x", &Tensor::from_slice(&[3], &[x; 3])), ("p", &p)])
    };
    assert_eq!(power(1e-40, false), [0.0, f64::INFINITY, 0.0]);
    let kept = power(1e-40, true);
    let exact = [1e-20, 1e20, 1e-10];
    assert!(kept.iter().zip(exact).all(|(y, exact)| (y / exact - 1.0).abs() < 1e-3), "{kept:?}");
    let mut b = Builder::new("logarithm");
    b.typed_input("x", ElemType::F64, &[1.into()]);
    let y = b.op("Log", &["x"], &[]);
    b.result("y", &[1usize], "Cast", &[&y], &[("to", Attribute::Int(1))]);
    let model = compiled(dir.path(), b, "native");
    let x = Tensor::from_slice(&[1], &[1e-310f64]);
    assert_eq!(result(&model, false, &[("x", &x)]), [f64::NEG_INFINITY]);
    let kept = result(&model, true, &[("x", &x)])[0];
    assert!((kept - 1e-310f64.ln()).abs() < 1e-3, "{kept}");
}

/// The exponential function gives zero where its result would not be normal, and all of them where
/// they are kept.
#[test]
fn the_exponential_function_ends_in_zero() {
    let dir = tempfile::tempdir().unwrap();
    let x: Vec<f32> = (0..4096).map(|i| -80.0 - i as f32 / 128.0).collect();
    let mut b = Builder::new("exponential");
    b.input("x", &[x.len()]);
    b.result("y", &[x.len()], "Exp", &["x"], &[]);
    let model = compiled(dir.path(), b, "native");
    let input = Tensor::from_slice(&[x.len()], &x);
    let [flushed, kept] = [false, true].map(|keep| result(&model, keep, &[("x", &input)]));
    let (smallest, unit) = (f64::from(f32::MIN_POSITIVE), f64::from(f32::from_bits(1)));
    for ((x, flushed), kept) in x.iter().zip(flushed).zip(kept) {
        let exact = f64::from(*x).exp();
        let error = (kept - exact).abs();
        assert!(error <= exact * 2e-7 + unit * 0.6, "e^{x} is {kept}, not {exact}");
        let expected = if kept < smallest { 0.0 } else { kept };
        assert_eq!(flushed, expected, "e^{x}");
    }
}

/// Attention of 12 windows of 49 places with 32 values each.
fn attention() -> Builder {
    let mut b = Builder::new("attention");
    b.input("scores", &[12, 49, 49]);
    b.input("mask", &[12, 49, 49]);
    b.input("values", &[12, 49, 32]);
    let masked = b.op("Add", &["scores", "mask"], &[]);
    let weights = b.op("Softmax", &[&masked], &[("axis", Attribute::Int(-1))]);
    b.result("y", &[12, 49, 32], "MatMul", &[&weights, "values"], &[]);
    b
}

fn numbers(shape: &[usize]) -> Tensor {
    let n = shape.iter().product::<usize>();
    let all: Vec<f32> = (0..n).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(shape, &all)
}

/// The columns that a mask hides, as one of a shifted window does. They come first, so that sums
/// begin with them.
const MASKED: usize = 24;

/// Each row has one high score in sight, so that what is as high and masked with -100 has a
/// probability of 4e-44.
fn scores() -> Tensor {
    let score = |column: usize| if column == 48 || column < MASKED { 4.0f32 } else { -4.0 };
    let all: Vec<f32> = (0..12 * 49 * 49).map(|i| score(i % 49)).collect();
    Tensor::from_slice(&[12, 49, 49], &all)
}

/// A mask of -100 makes half of the probabilities denormal. It takes no more time than a mask of
/// zeros: at most 1.05 times as much, and here some noise. `ANSC_ROUNDS=2000` and `--nocapture`
/// give the figure.
#[test]
fn a_mask_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let model = compiled(dir.path(), attention(), "native");
    let (scores, values) = (scores(), numbers(&[12, 49, 32]));
    let mask = |low: f32| {
        let all: Vec<f32> =
            (0..12 * 49 * 49).map(|i| if i % 49 < MASKED { low } else { 0.0 }).collect();
        Tensor::from_slice(&[12, 49, 49], &all)
    };
    let masks = [mask(0.0), mask(-100.0)];
    let rounds = std::env::var("ANSC_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let ratio = |keep_denormals: bool| {
        let mut session = session(&model, keep_denormals);
        let mut times = [vec![], vec![]];
        for _ in 0..rounds {
            for (mask, times) in masks.iter().zip(&mut times) {
                let inputs = [("scores", &scores), ("mask", mask), ("values", &values)];
                let begun = Instant::now();
                session.run(&inputs).unwrap();
                times.push(begun.elapsed());
            }
        }
        let [open, masked] = times.map(median);
        println!("denormals kept: {keep_denormals}; no mask {open:?}, a mask of -100 {masked:?}");
        masked.as_secs_f64() / open.as_secs_f64()
    };
    let (flushed, kept) = (ratio(false), ratio(true));
    println!("a mask of -100 takes {flushed:.3} times as long; if denormals are kept, {kept:.3}");
    assert!(flushed < 1.5, "{flushed}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The reference has denormal numbers where the artifact has zeros.
#[test]
fn verify_takes_zeros_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut b = Builder::new("small");
    b.input("x", &[64]);
    let tiny = b.scalar(1e-39);
    b.result("y", &[64], "Mul", &["x", &tiny], &[]);
    compiled(dir.path(), b, "native");
    let (model, artifact) = (dir.path().join("model.onnx"), dir.path().join("model.ansc"));
    for extra in [&["--tolerance", "0"][..], &["--keep-denormals"], &["--layers"]] {
        let done = ansc(&[&["verify", str(&model), str(&artifact)], extra].concat());
        assert!(done.status.success(), "{extra:?}: {}{}", text(&done.stdout), text(&done.stderr));
    }
}
