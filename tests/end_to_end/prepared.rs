//! Artifacts do not hold what Winograd's convolutions read: it is made of the weights when they are
//! loaded.

use std::path::{Path, PathBuf};

use crate::common::{ansc, str, text};
use ansc_models::Builder;
use ansc_models::proto::{Attribute, Dim, ElemType};
use ansc_runtime::Model;
use ansc_runtime::manifest::Storage;

const CHANNELS: usize = 64;

/// Two convolutions, with weights of their own, for `x: [batch, 64, 32, 32]`.
fn network(dir: &Path) -> PathBuf {
    let mut b = Builder::new("net");
    let dims = [Dim::Named("batch"), Dim::Size(CHANNELS), Dim::Size(32), Dim::Size(32)];
    let mut y = b.typed_input("x", ElemType::F32, &dims);
    for _ in 0..2 {
        let w = b.weight(&[CHANNELS, CHANNELS, 3, 3], 9 * CHANNELS, 1.0);
        y = b.op("Conv", &[&y, &w], &[("pads", Attribute::Ints(vec![1, 1, 1, 1]))]);
    }
    b.result("y", &dims, "Relu", &[&y], &[]);
    let path = dir.join("net.onnx");
    std::fs::write(&path, b.finish().to_bytes()).unwrap();
    path
}

fn ok(arguments: &[&str]) -> Vec<u8> {
    let done = ansc(arguments);
    assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    done.stdout
}

#[test]
fn artifacts_hold_weights_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (model, artifact) = (network(dir.path()), dir.path().join("net.ansc"));
    ok(&["compile", str(&model), "-o", str(&artifact), "--untuned", "--dim", "batch=1,2"]);
    let manifest = Model::read_manifest(&artifact).unwrap();
    let weights = 2 * 4 * 9 * CHANNELS * CHANNELS;
    assert!(
        (weights..weights + 4096).contains(&manifest.weight_bytes),
        "{}",
        manifest.weight_bytes
    );
    let preparation = manifest.preparation.expect("Winograd's convolution is the fastest");
    assert!(preparation.bytes > weights * 3 / 2, "{}", preparation.bytes);
    // Each is made once, for both sizes.
    assert_eq!(preparation.plan.plan.steps.len(), 2);
    for one in &manifest.specialisations {
        let is_prepared = |storage| matches!(storage, Storage::Prepared { .. });
        let read = one.buffers.iter().filter(|buffer| is_prepared(buffer.storage));
        assert_eq!(read.count(), 2, "{}", one.name);
    }
    ok(&["verify", str(&model), str(&artifact), "--layers"]);
    let listed = ok(&["inspect", str(&artifact)]);
    assert!(text(&listed).contains("that are made of them when loading"), "{}", text(&listed));
}

/// The softmax of a product of two constants, for which the compiler's interpreter takes too long,
/// and what each run adds to it.
fn tables(dir: &Path) -> PathBuf {
    const ROWS: usize = 1200;
    const COLUMNS: usize = 1280;
    let mut b = Builder::new("tables");
    let x = b.input("x", &[ROWS, COLUMNS]);
    let [a, w] = [[ROWS, COLUMNS], [COLUMNS, COLUMNS]].map(|shape| b.weight(&shape, COLUMNS, 1.0));
    let table = b.op("MatMul", &[&a, &w], &[]);
    let rows = b.op("Softmax", &[&table], &[]);
    let dims = [ROWS, COLUMNS].map(Dim::Size);
    b.result("rows", &dims, "Identity", &[&rows], &[]);
    b.result("y", &dims, "Add", &[&x, &rows], &[]);
    let path = dir.join("tables.onnx");
    std::fs::write(&path, b.finish().to_bytes()).unwrap();
    path
}

#[test]
fn products_of_constants_are_computed_once() {
    let dir = tempfile::tempdir().unwrap();
    let (model, artifact) = (tables(dir.path()), dir.path().join("tables.ansc"));
    ok(&["compile", str(&model), "-o", str(&artifact), "--untuned"]);
    let manifest = Model::read_manifest(&artifact).unwrap();
    let preparation = manifest.preparation.expect("two products are left to loading");
    assert_eq!(preparation.plan.plan.steps.len(), 2);
    // The product itself is not kept, only its softmax.
    let kept = 4 * 1200 * 1280;
    assert_eq!((preparation.bytes, preparation.plan.arena_bytes), (kept, kept));
    assert_eq!(manifest.kernels.len(), 1, "each run only adds");
    assert_eq!(manifest.specialisations[0].arena_bytes, 0);
    ok(&["verify", str(&model), str(&artifact), "--layers"]);
    // A bundle prepares nothing: its runs compute all.
    let bundle = dir.path().join("tables.o");
    ok(&["compile", str(&model), "--emit", "bundle", "-o", str(&bundle)]);
}
