use ansc_runtime::DType;
use ansc_runtime::manifest::{
    BufferId, BufferInfo, KernelInfo, Manifest, Plan, Provenance, Specialisation, Step, Storage,
    TargetInfo, Tuning,
};

use super::*;
use crate::outcome::Outcome;
use crate::records::{InMemory, MachineRecord, ModelRecord, Occurrence};

fn record(task: &str, program: u64, outcome: Outcome) -> Record {
    let trace = r#"[{"op": "sample_categorical", "candidates": [4, 1], "weights": [0.5, 0.5], "out": 0, "decision": D},
        {"op": "complete"}]"#;
    let untuned = if program == 0 { "0" } else { "1" };
    Record {
        key: Key { task: task.into(), target: "x86_64 <native>".into(), threads: 2 },
        trace: serde_json::from_str(&trace.replace('D', untuned)).unwrap(),
        outcome,
        program,
        version: "0.1.0".into(),
        time: 0,
        machine: None,
    }
}

fn seconds(all: &[f64]) -> Outcome {
    Outcome::Seconds(all.to_vec())
}

fn records() -> InMemory {
    let mut records = InMemory::default();
    let known = TaskRecord {
        key: "a".repeat(32),
        name: "conv<\"1\" & 2>\u{7}".into(),
        compute: "compute(..)".into(),
        flops: 4_000_000,
    };
    records.add_task(&known).unwrap();
    let a = |program, outcome| record(&known.key, program, outcome);
    let b = |program, outcome| record(&"b".repeat(32), program, outcome);
    records
        .add(&[
            a(0, seconds(&[4e-3, 4e-3])),
            b(7, Outcome::Failed(Failure::Crash)),
            a(1, seconds(&[1e-3])),
            a(2, Outcome::Failed(Failure::Build)),
            a(3, seconds(&[2e-3])),
            // The second was luck.
            a(1, seconds(&[3e-3, 3e-3])),
            b(8, Outcome::Failed(Failure::Crash)),
            a(4, seconds(&[9e-3])),
        ])
        .unwrap();
    records
}

#[test]
fn numbers() {
    let summary = summarise(&records()).unwrap();
    assert_eq!(summary.measurements, 8);
    assert_eq!(summary.failures, BTreeMap::from([(Failure::Build, 1), (Failure::Crash, 2)]));
    let [machine] = &summary.machines[..] else { panic!("{summary:?}") };
    assert_eq!(machine.best_seconds, 2e-3);
    let compared = Compared { untuned_seconds: 4e-3, best_seconds: 2e-3 };
    assert_eq!(machine.compared, Some(compared));
    let [a, b] = &machine.tasks[..] else { panic!("{machine:?}") };
    assert_eq!((a.untuned_seconds, a.best_seconds, a.measurements), (Some(4e-3), Some(2e-3), 6));
    assert_eq!((a.gflops(), a.ratio()), (Some(2.0), Some(0.5)));
    let curve: Vec<_> = a.curve.iter().map(|p| (p.measurements, p.seconds)).collect();
    assert_eq!(curve, [(1, 4e-3), (2, 3e-3), (4, 2e-3), (6, 2e-3)]);
    assert_eq!((b.title(), b.best_seconds, b.curve.len()), ("bbbbbbbbbbbb", None, 0));
}

#[test]
fn the_page_is_well_formed() {
    for records in [records(), InMemory::default()] {
        let page = html::page(&summarise(&records).unwrap(), "a & b.db");
        assert!(page.starts_with("<!doctype html>") && page.contains("a &amp; b.db"));
        assert!(!page.contains("NaN") && !page.contains("inf\"") && !page.contains("<script"));
        assert!(!page.contains("http") && !page.contains('\u{7}'), "{page}");
        // One unit.
        assert!(!page.contains("µs"), "{page}");
        well_formed(page.trim_start_matches("<!doctype html>"));
    }
}

/// Input -> a -> (arena) -> b -> output, where b also reads a copy of what a wrote.
fn manifest() -> Manifest {
    let buffer = |name: &str, storage| BufferInfo {
        name: name.into(),
        dtype: DType::F32,
        shape: vec![8],
        storage,
    };
    let kernel = |name: &str, reads, tuning| KernelInfo {
        name: name.into(),
        nodes: vec![format!("/{name} <&>")],
        flops: 1000,
        work: None,
        bytes: 64,
        args: vec![],
        reads,
        launches: vec![],
        algorithm: None,
        precision: None,
        tuning,
    };
    let tuning = Tuning {
        trace: serde_json::json!([]),
        steps: vec!["split loop 0 of mm into 2 x 4".into()],
        rules: vec!["tile".into()],
        seconds: 1e-6,
        untuned_seconds: None,
        measured_on: "x86_64-unknown-linux-gnu znver3 avx avx2".into(),
        threads: 2,
        shipped: true,
    };
    let b = |all: &[u32]| all.iter().map(|&i| BufferId(i)).collect::<Vec<_>>();
    let steps = vec![
        Step::Kernel { kernel: 0, args: b(&[0, 1]) },
        Step::Copy { from: BufferId(1), to: BufferId(2) },
        Step::Kernel { kernel: 1, args: b(&[1, 2, 3]) },
    ];
    Manifest {
        compiler: "ansc 0".into(),
        model: Provenance { name: "m<1>.onnx".into(), sha256: String::new() },
        target: TargetInfo { triple: "x86_64".into(), cpu: "native".into(), features: vec![] },
        weight_bytes: 0,
        accurate: false,
        precision: Default::default(),
        quantization: None,
        dims: Default::default(),
        preparation: None,
        kernels: vec![kernel("a", 1, Some(tuning)), kernel("b", 2, None)],
        specialisations: vec![Specialisation {
            arena_bytes: 128,
            arena_bytes_without_reuse: 128,
            buffers: vec![
                buffer("x", Storage::Input(0)),
                buffer("t", Storage::Arena { offset: 0 }),
                buffer("u", Storage::Arena { offset: 64 }),
                buffer("y", Storage::Output(0)),
            ],
            plan: Plan { steps },
            ..Specialisation::default()
        }],
    }
}

#[test]
fn the_page_of_an_artifact() {
    let limits = Limits { flops_per_second: 1e11, bytes_per_second: 1e10 };
    let manifest = manifest();
    let one = &manifest.specialisations[0];
    let artifact = artifact::Artifact::new(&manifest, one, &[3.0, 1.0], 2, Some(limits), vec![]);
    assert_eq!(artifact.edges, [(0, 1)]);
    assert_eq!((artifact.kernels[0].share, artifact.seconds), (0.75, 4.0));
    let page = artifact::page(&artifact, "a & b.ansc");
    for part in
        ["a &amp; b.ansc", "m&lt;1&gt;.onnx", "split loop 0", "class=\"edge\"", "class=\"dot\""]
    {
        assert!(page.contains(part), "{part}\n{page}");
    }
    well_formed(page.trim_start_matches("<!doctype html>"));
    // The times of another machine are said to be its own, and the nodes of the model come first.
    assert!(page.contains("comes with the compiler; on znver3, 2 threads: 0.001000 ms"), "{page}");
    assert!(page.contains("/a &lt;&amp;&gt; (a)"), "{page}");
}

/// Whether a manifest names the algorithm, or has it in words as those of older compilers.
#[test]
fn tiles_are_under_a_roof_of_their_own() {
    let limits = Limits { flops_per_second: 1e11, bytes_per_second: 1e10 };
    let roof = |algorithm: &str| {
        let mut manifest = manifest();
        manifest.kernels[0].algorithm = Some(algorithm.into());
        let one = &manifest.specialisations[0];
        let plain = artifact::Artifact::new(&manifest, one, &[3.0, 1.0], 2, Some(limits), vec![]);
        let tiled = plain.clone().with_tiles(Some(1e13));
        assert_eq!(plain.kernels[1], tiled.kernels[1]);
        plain.kernels[0] != tiled.kernels[0]
    };
    assert!(roof("tiles") && roof("tiles of a matrix unit"));
    assert!(!roof("im2col") && !roof("direct"));
    assert_eq!(artifact::algorithm_in_words("winograd_4"), "Winograd F(4x4,3x3)");
    assert_eq!(artifact::algorithm_in_words("direct"), "direct");
}

/// Kernels of sizes that did not run have no time, and are not shown.
#[test]
fn one_size_of_several() {
    let mut manifest = manifest();
    manifest.kernels.insert(0, KernelInfo { name: "other".into(), ..manifest.kernels[0].clone() });
    let one = &mut manifest.specialisations[0];
    one.name = "batch=4".into();
    for step in &mut one.plan.steps {
        if let Step::Kernel { kernel, .. } = step {
            *kernel += 1;
        }
    }
    let one = manifest.specialisations[0].clone();
    let shown = artifact::Artifact::new(&manifest, &one, &[0.0, 3.0, 1.0], 2, None, vec![]);
    let names: Vec<_> = shown.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!((names, &shown.edges[..]), (vec!["a", "b"], &[(0, 1)][..]));
    let page = artifact::page(&shown, "a.ansc");
    assert!(page.contains("the size that ran: batch=4"), "{page}");
    // Without the limits of the machine that runs the kernels, nothing is said of them.
    assert!(!page.contains("of what the machine can") && !page.contains("Roofline"), "{page}");
}

#[test]
fn models_are_the_sums_of_their_tasks() {
    let mut records = records();
    let occurrences = [("a", 3), ("b", 1), ("c", 2)];
    let tasks = occurrences.map(|(task, count)| Occurrence { task: task.repeat(32), count });
    let model = ModelRecord { name: "m".into(), tasks: tasks.to_vec() };
    records.add_model(&model).unwrap();
    let limits = Limits { flops_per_second: 1e11, bytes_per_second: 1e10 };
    let target = "x86_64 <native>".to_owned();
    records.set_machine(&MachineRecord { target, threads: 2, limits }).unwrap();
    let summary = summarise(&records).unwrap();
    let machine = &summary.machines[0];
    assert_eq!(machine.limits, Some(limits));
    let [model] = &machine.models[..] else { panic!("{machine:?}") };
    // Nothing is known of two of the three.
    assert_eq!((model.untuned_seconds, model.best_seconds, model.missing), (12e-3, 6e-3, 2));
    assert_eq!(model.parts[0].count, 3);
    well_formed(html::page(&summary, "r.db").trim_start_matches("<!doctype html>"));
}

/// Every element that is opened is closed, in order; no stray `<`, `&` or attribute without quotes.
fn well_formed(page: &str) {
    const VOID: [&str; 1] = ["meta"];
    let mut open: Vec<&str> = vec![];
    let mut rest = page;
    while let Some(begin) = rest.find('<') {
        let end = begin + rest[begin..].find('>').expect("a tag ends");
        let tag = &rest[begin + 1..end];
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        assert!(!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()), "<{tag}>");
        assert!(tag.matches('"').count().is_multiple_of(2), "<{tag}>");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{}", &page[..page.len() - rest.len() + end]);
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
}

#[test]
fn ticks_are_round() {
    let table: [(f64, &[f64]); 5] = [
        (1.0, &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (7.3, &[0.0, 2.0, 4.0, 6.0]),
        (130.0, &[0.0, 50.0, 100.0]),
        (0.9, &[0.0, 0.2, 0.4, 0.6, 0.8]),
        (1000.0, &[0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]),
    ];
    for (most, expected) in table {
        let found = svg::ticks(most);
        let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(close),
            "{found:?}"
        );
    }
}
