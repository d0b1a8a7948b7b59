//! The cost of rounding: a convolution as it is compiled by default and with `--accurate`, against
//! sums of 64 bits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{Random, ansc, str, text};
use ansc::choice::{Origin, Schedules, Tuned, target_name};
use ansc::pipeline::{self, Options, Silent};
use ansc_codegen::Target;
use ansc_frontend::import::{self, ImportOptions};
use ansc_graph::Op;
use ansc_models::Builder;
use ansc_models::proto::Attribute;
use ansc_runtime::manifest::Manifest;
use ansc_runtime::{Model, Tensor};
use ansc_sketch::algorithm::Algorithm;
use ansc_sketch::task::Sums;
use ansc_sketch::{Task, Trace};
use ansc_tuner::records::{Key, Record, Sqlite};
use ansc_tuner::{Candidate, Outcome, Records};
use rand::SeedableRng;
use rand::rngs::StdRng;

const CHANNELS: usize = 64;
const SIZE: usize = 28;
/// One of so many output channels is compared.
const EVERY: usize = 8;

fn network(dir: &Path) -> PathBuf {
    let mut b = Builder::new("net");
    let x = b.input("x", &[1, CHANNELS, SIZE, SIZE]);
    let w = b.weight(&[CHANNELS, CHANNELS, 3, 3], 9 * CHANNELS, 2.0);
    let pads = [("pads", Attribute::Ints(vec![1, 1, 1, 1]))];
    b.result("y", &[1, CHANNELS, SIZE, SIZE], "Conv", &[&x, &w], &pads);
    let path = dir.join("net.onnx");
    std::fs::write(&path, b.finish().to_bytes()).unwrap();
    path
}

fn weights(model: &Path) -> Vec<f64> {
    let graph = import::load(model, &ImportOptions::default()).unwrap();
    let constants = graph.node_ids().into_iter().find_map(|id| match &graph.node(id).op {
        Op::Const(tensor) if tensor.shape() == [CHANNELS, CHANNELS, 3, 3] => Some(tensor.clone()),
        _ => None,
    });
    constants.expect("the weights are a constant").to_f64_vec()
}

fn ok(arguments: &[&str]) -> String {
    let done = ansc(arguments);
    assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    text(&done.stdout)
}

fn compiled(model: &Path, options: &[&str]) -> PathBuf {
    let artifact = model.with_file_name("net.ansc");
    ok(&[&["compile", str(model), "-o", str(&artifact)], options].concat());
    artifact
}

/// How the artifact's convolution is computed.
fn algorithm(manifest: &Manifest) -> String {
    let all: Vec<&String> = manifest.kernels.iter().filter_map(|k| k.algorithm.as_ref()).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

/// Distributed as the sum of twelve even ones, nearly normally.
fn normal(random: &mut Random) -> f32 {
    let unit = |random: &mut Random| (random.next() >> 40) as f32 / (1 << 24) as f32;
    (0..12).map(|_| unit(random)).sum::<f32>() - 6.0
}

fn input(seed: u64, element: impl Fn(f32, usize) -> f32) -> Vec<f32> {
    let random = &mut Random(seed);
    (0..CHANNELS * SIZE * SIZE).map(|i| element(normal(random), i)).collect()
}

/// The factors of the products that add up to one element of the result, in order.
fn products<'a>(
    x: &'a [f32],
    w: &'a [f64],
    [k, y, z]: [usize; 3],
) -> impl Iterator<Item = (f32, f32)> + 'a {
    let windows = (0..CHANNELS).flat_map(|c| (0..9).map(move |at| (c, at / 3, at % 3)));
    windows.filter_map(move |(c, r, s)| {
        let inside = |at: usize| (1..=SIZE).contains(&at).then(|| at - 1);
        let (row, column) = (inside(y + r)?, inside(z + s)?);
        let weight = w[((k * CHANNELS + c) * 3 + r) * 3 + s];
        Some((x[(c * SIZE + row) * SIZE + column], weight as f32))
    })
}

fn places() -> impl Iterator<Item = [usize; 3]> {
    let rows = (0..SIZE).flat_map(|y| (0..SIZE).map(move |z| (y, z)));
    (0..CHANNELS).step_by(EVERY).flat_map(move |k| rows.clone().map(move |(y, z)| [k, y, z]))
}

/// Sums of 32 bits, one product after another.
fn plain(x: &[f32], w: &[f64]) -> Vec<f32> {
    places().map(|at| products(x, w, at).map(|(x, w)| x * w).sum()).collect()
}

fn run(artifact: &Path, x: &[f32]) -> Vec<f32> {
    let x = Tensor::from_slice(&[1, CHANNELS, SIZE, SIZE], x);
    let y = Model::load(artifact).unwrap().session().unwrap().run(&[("x", &x)]).unwrap();
    let y = y[0].1.to_f64_vec();
    places().map(|[k, row, column]| y[(k * SIZE + row) * SIZE + column] as f32).collect()
}

/// The 99th percentile of errors, each divided by the sum of the magnitudes of its products.
fn error(found: &[f32], x: &[f32], w: &[f64]) -> f64 {
    let one = |(at, found): ([usize; 3], &f32)| {
        let wide = || products(x, w, at).map(|(x, w)| f64::from(x) * f64::from(w));
        let (exact, size) = (wide().sum::<f64>(), wide().map(f64::abs).sum::<f64>());
        (f64::from(*found) - exact).abs() / size
    };
    let mut all: Vec<f64> = places().zip(found).map(one).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() * 99 / 100]
}

#[test]
fn errors_stay_below_what_the_documentation_states() {
    let dir = tempfile::tempdir().unwrap();
    let model = network(dir.path());
    let w = weights(&model);
    let by_default = compiled(&model, &[]);
    assert!(algorithm(&Model::read_manifest(&by_default).unwrap()).starts_with("winograd"));
    let accurate = dir.path().join("accurate.ansc");
    std::fs::rename(compiled(&model, &["--accurate"]), &accurate).unwrap();
    let by_default = compiled(&model, &[]);
    let outlier = |x: f32, i: usize| if i.is_multiple_of(997) { 1e4_f32.copysign(x) } else { x };
    let loud = |x: f32, i: usize| if i < SIZE * SIZE { 1e3 * x } else { x };
    for (name, x, most) in [
        ("normal", input(1, |x, _| x), 2.5),
        ("outliers", input(2, outlier), 50.0),
        ("lognormal", input(3, |x, _| (2.0 * x).exp()), 3.5),
        ("a loud channel", input(4, loud), 4.5),
    ] {
        let least = error(&plain(&x, &w), &x, &w);
        let [accurate, fast] = [&accurate, &by_default].map(|a| error(&run(a, &x), &x, &w));
        println!("{name}: plain sums {least:.1e}, accurate {accurate:.1e}, default {fast:.1e}");
        assert!(accurate <= 0.6 * least, "{name}: {accurate:e}, plain sums {least:e}");
        assert!(fast <= most * least, "{name}: {fast:e}, plain sums {least:e}");
        assert!(fast > accurate, "{name}: Winograd's convolution would cost nothing");
    }
}

#[test]
fn what_is_not_finite_stays_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let model = network(dir.path());
    let w = weights(&model);
    let accurate = dir.path().join("accurate.ansc");
    std::fs::rename(compiled(&model, &["--accurate"]), &accurate).unwrap();
    let by_default = compiled(&model, &[]);
    let middle = (CHANNELS / 2 * SIZE + SIZE / 2) * SIZE + SIZE / 2;
    let one = |value: f32| move |x: f32, i: usize| if i == middle { value } else { x };
    for (name, x, spread) in [
        ("3e37", input(1, |x, _| 3e37_f32.copysign(x)), 0),
        ("NaN", input(2, one(f32::NAN)), 9),
        ("infinity", input(3, one(f32::INFINITY)), 9),
    ] {
        let finite = |y: Vec<f32>| y.into_iter().map(f32::is_finite).collect::<Vec<bool>>();
        let expected = finite(plain(&x, &w));
        assert_eq!(expected.iter().filter(|f| !**f).count(), spread * CHANNELS / EVERY, "{name}");
        assert!(finite(run(&accurate, &x)) == expected, "{name}");
        // By default more may be lost, but nothing is made up.
        let fast = finite(run(&by_default, &x));
        assert!(fast.iter().zip(&expected).all(|(fast, expected)| *expected || !fast), "{name}");
    }
}

/// The task beside the one that moves channels to the end.
fn convolution(model: &Path, options: &Options) -> Arc<Task> {
    let mut all = pipeline::tasks(model, options).unwrap().into_iter().map(|t| t.task);
    all.find(|task| task.computed_by(None).is_some()).expect("a convolution")
}

/// Records in which Winograd's convolutions are the fastest by far, and something direct is faster
/// than what nobody tuned.
fn records(path: &Path, model: &Path, target: &Target) {
    let task = |sums: Sums| {
        let schedules = Schedules { sums, ..Schedules::untuned(target) };
        let options =
            Options { schedules, ..Options::new(ImportOptions::default(), target.clone()) };
        convolution(model, &options)
    };
    let (all, direct) = (task(Sums::Any), task(Sums::Direct));
    let key = Key { task: all.key(), target: target_name(target), threads: 1 };
    let record = |task: &Arc<Task>, trace: &Trace, seconds: f64| {
        let made = |seed| Candidate::of(task, trace, &mut StdRng::seed_from_u64(seed));
        let made = (0..20).find_map(made).expect("some decisions fit");
        let (key, outcome) = (key.clone(), Outcome::Seconds(vec![seconds; 4]));
        let (program, version) = (made.program, "0".into());
        Record { key, trace: made.trace, outcome, program, version, time: 0, machine: None }
    };
    let mut records =
        vec![record(&all, &all.untuned(), 1.0), record(&direct, &direct.untuned(), 1.0)];
    for sketch in all.sketches() {
        match sketch.trace.algorithm() {
            Some(a) if !a.is_direct() => records.push(record(&all, &sketch.trace, 0.1)),
            Some(Algorithm::Im2col) => records.push(record(&direct, &sketch.trace, 0.5)),
            _ => {}
        }
    }
    let mut file = Sqlite::open(path).unwrap();
    file.add(&records).unwrap();
}

#[test]
fn accurate_artifacts_hold_no_winograd() {
    let dir = tempfile::tempdir().unwrap();
    let model = network(dir.path());
    let file = dir.path().join("records.db");
    records(&file, &model, &Target::native().unwrap());
    let tuned = ["--records", str(&file), "--threads", "1"];
    for (options, direct) in [
        (&[][..], "direct"),
        (&["--untuned"], "direct"),
        (&["--small"], "direct"),
        (&tuned, "im2col"),
    ] {
        let winograd = Model::read_manifest(compiled(&model, options)).unwrap();
        assert!(algorithm(&winograd).starts_with("winograd") && !winograd.accurate, "{options:?}");
        let options = [options, &["--accurate"]].concat();
        let artifact = compiled(&model, &options);
        let manifest = Model::read_manifest(&artifact).unwrap();
        assert_eq!((algorithm(&manifest).as_str(), manifest.accurate), (direct, true));
        assert_eq!(manifest.kernels.iter().any(|k| k.tuning.is_some()), direct == "im2col");
        assert!(manifest.preparation.is_none(), "{options:?}");
    }
}

#[test]
fn algorithms_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let model = network(dir.path());
    let named = |arguments: &[&str]| -> Vec<String> {
        let found: serde_json::Value = serde_json::from_str(&ok(arguments)).unwrap();
        let kernels = found.get("kernels").unwrap_or(&found).as_array().unwrap();
        kernels.iter().filter_map(|k| Some(k.get("algorithm")?.as_str()?.to_owned())).collect()
    };
    let model = str(&model);
    assert_eq!(named(&["explain", model, "--json"]), ["winograd_4"]);
    assert_eq!(named(&["explain", model, "--json", "--accurate"]), ["direct"]);
    assert!(ok(&["explain", model]).contains("algorithm: Winograd F(4x4,3x3)"));
    let artifact = compiled(Path::new(model), &["--accurate"]);
    for verb in ["explain", "inspect"] {
        assert_eq!(named(&[verb, str(&artifact), "--json"]), ["direct"], "{verb}");
    }
    assert!(ok(&["explain", str(&artifact)]).contains("algorithm: direct"));
    assert!(ok(&["inspect", str(&artifact)]).contains("direct sums only"));
    // It is compiled once more, by the same algorithms.
    ok(&["verify", model, str(&artifact), "--layers"]);
}

/// Whoever fills in the schedules: what is not allowed does not replay.
#[test]
fn schedules_of_winograd_give_way() {
    let dir = tempfile::tempdir().unwrap();
    let model = network(dir.path());
    let target = Target::native().unwrap();
    let mut options = Options::new(ImportOptions::default(), target);
    let task = convolution(&model, &options);
    let trace = task.untuned();
    assert!(!Sums::Direct.allow(trace.algorithm()));
    let origin = Origin { machine: "here".into(), threads: 1, shipped: false, elsewhere: false };
    let tuned = Tuned { trace, seconds: 1.0, untuned_seconds: None, against: None, origin };
    options.schedules.tuned.insert(task.key(), tuned);
    for (sums, expected) in [(Sums::Any, "winograd_4"), (Sums::Direct, "direct")] {
        options.schedules.sums = sums;
        let artifact = dir.path().join("net.ansc");
        pipeline::compile(&model, &artifact, &options, &Silent).unwrap();
        assert_eq!(algorithm(&Model::read_manifest(&artifact).unwrap()), expected);
    }
}
