//! Loading: what is not a sound artifact is refused with an error that says why.

mod common;

use std::fs;
use std::path::Path;

use ansc_runtime::manifest::{BufferId, Step, Storage, seal};
use ansc_runtime::{LoadError, LoadErrorKind, ManifestError, Model, TargetError, Tensor};
use common::{Builder, sample};

fn load(dir: &Path, bytes: &[u8]) -> Result<Model, LoadError> {
    let path = dir.join("changed.ansc");
    // A new file each time: code of the old one may still be mapped.
    let _ = fs::remove_file(&path);
    fs::write(&path, bytes).unwrap();
    Model::load(&path)
}

/// Where the seal begins.
fn seal_at(bytes: &[u8]) -> usize {
    bytes.windows(8).position(|w| w == b"ANSCSEAL").unwrap()
}

#[test]
fn every_changed_byte_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(sample().build(dir.path())).unwrap();
    for at in 0..bytes.len() {
        let flip = 1 << (at % 8);
        bytes[at] ^= flip;
        load(dir.path(), &bytes).expect_err("a damaged artifact");
        bytes[at] ^= flip;
    }
    load(dir.path(), &bytes).unwrap();
}

#[test]
fn every_truncation_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = fs::read(sample().build(dir.path())).unwrap();
    for len in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        load(dir.path(), &bytes[..len]).expect_err("a truncated artifact");
    }
    load(dir.path(), &[&bytes[..], &[0]].concat()).expect_err("a longer artifact");
}

#[test]
fn errors_name_the_file_and_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let good = fs::read(sample().build(dir.path())).unwrap();
    let at = seal_at(&good);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let error = load(dir.path(), &bytes).unwrap_err();
        assert!(error.to_string().contains("changed.ansc: "), "{error}");
        error.kind
    };
    assert!(matches!(with(&|b| b.clear()), LoadErrorKind::NotAnArtifact(_)));
    assert!(matches!(with(&|b| b[0] = 0), LoadErrorKind::NotAnArtifact(_)));
    assert!(matches!(with(&|b| b[16] = 2), LoadErrorKind::NotAnArtifact(_)), "an executable");
    assert!(matches!(with(&|b| b[at] = b'X'), LoadErrorKind::NotSealed));
    assert!(matches!(with(&|b| b[at + 8] = 77), LoadErrorKind::Version { found: 77 }));
    assert!(matches!(with(&|b| b[at + 16] ^= 1), LoadErrorKind::Damaged));
    assert!(matches!(with(&|b| *b.last_mut().unwrap() ^= 1), LoadErrorKind::Damaged));

    let missing = Model::load(dir.path().join("no.ansc")).unwrap_err();
    assert!(matches!(missing.kind, LoadErrorKind::Io(_)));
    let folder = Model::load(dir.path()).unwrap_err();
    assert!(matches!(folder.kind, LoadErrorKind::NotAnArtifact(_)));
    let library = Model::load(dir.path().join("unsealed.so")).unwrap_err();
    assert!(matches!(library.kind, LoadErrorKind::NotSealed));
}

#[test]
fn other_targets_are_refused() {
    let refused = |change: fn(&mut Builder)| {
        let mut b = sample();
        change(&mut b);
        let dir = tempfile::tempdir().unwrap();
        match Model::load(b.build(dir.path())).unwrap_err().kind {
            LoadErrorKind::Target(error) => error,
            other => panic!("{other}"),
        }
    };
    let error = refused(|b| b.manifest.target.triple = "sparc64-sun-solaris".to_owned());
    assert!(matches!(error, TargetError::Machine { .. }));
    let error = refused(|b| b.manifest.target.features = vec!["warpdrive".to_owned()]);
    assert!(matches!(error, TargetError::Features { .. }));
}

/// `scripts/test` runs it without the feature.
#[cfg(not(feature = "cuda"))]
#[test]
fn a_runtime_without_cuda_says_so() {
    use ansc_runtime::cuda::CudaError;

    let dir = tempfile::tempdir().unwrap();
    let mut builder = sample();
    builder.manifest.target.triple = "nvptx64-nvidia-cuda".to_owned();
    builder.manifest.target.cpu = "sm_80".to_owned();
    let error = Model::load(builder.build(dir.path())).unwrap_err();
    let is_typed = matches!(
        &error.kind,
        LoadErrorKind::Target(TargetError::Gpu { source: CudaError::NotBuilt, .. })
    );
    assert!(is_typed, "{error:?}");
    let text = error.to_string();
    assert!(text.contains("(sm_80), but this runtime was built without CUDA"), "{text}");
}

#[test]
fn kernels_must_be_functions_of_the_library() {
    for symbol in ["nowhere", "exit", "memcpy", ""] {
        let mut b = sample();
        b.manifest.kernels[0].launches[0].symbol = symbol.to_owned();
        let dir = tempfile::tempdir().unwrap();
        let error = Model::load(b.build(dir.path())).unwrap_err();
        assert!(matches!(&error.kind, LoadErrorKind::Symbol(s) if s == symbol), "{error}");
    }
}

#[test]
fn the_manifest_must_be_a_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(sample().build(dir.path())).unwrap();
    let at = bytes.windows(11).position(|w| w == b"{\"compiler\"").unwrap();
    bytes[at] = b'[';
    seal(&mut bytes).unwrap();
    let error = load(dir.path(), &bytes).unwrap_err();
    assert!(matches!(error.kind, LoadErrorKind::Manifest(ManifestError::Json(_))), "{error}");
}

/// A change of the manifest, and a part of the message that it must lead to.
type Unsound = (fn(&mut Builder), &'static str);

const UNSOUND: &[Unsound] = &[
    (|b| b.manifest.weight_bytes += 1, "weights: the section is shorter"),
    (|b| b.plan().arena_bytes = usize::MAX, "arena: larger"),
    (|b| b.plan().arena_bytes -= 64, "buffer 2 `scaled`: 32 bytes at 0 exceed the 0"),
    (|b| b.plan().buffers[2].storage = Storage::Arena { offset: 4 }, "not a multiple of 64"),
    (|b| b.plan().buffers[2].storage = Storage::Arena { offset: usize::MAX - 63 }, "exceed"),
    (|b| b.plan().buffers[2].shape = vec![usize::MAX, 2], "its size overflows"),
    (|b| b.plan().buffers[1].storage = Storage::Weight { offset: 64 }, "exceed"),
    (|b| b.plan().buffers[2].storage = Storage::Input(1), "a port that does not exist"),
    (|b| b.plan().buffers[2].storage = Storage::Output(1), "differs from that of port `sum`"),
    (|b| b.plan().inputs[0].shape = vec![8], "input `x`: its type differs"),
    (|b| b.plan().inputs[0].buffer = BufferId(99), "there is no buffer 99"),
    (|b| b.plan().inputs[0].buffer = BufferId(2), "not the caller's memory"),
    (|b| b.plan().inputs[0].bound = Some(BufferId(2)), "not a weight"),
    (|b| b.plan().outputs[1].name = "y".to_owned(), "output `y`: the name is used twice"),
    (|b| b.plan().outputs[1].buffer = BufferId(0), "output `sum`: its type differs"),
    (|b| b.manifest.kernels[0].launches[0].extent = u64::MAX, "extent of `scale` overflows"),
    (|b| b.manifest.kernels[0].launches[0].scratch = usize::MAX, "scratch memory of `scale`"),
    (|b| b.manifest.kernels[0].reads = 4, "kernel `scale`: it reads 4 of 3 arguments"),
    (|b| b.manifest.kernels[0].args[0] = 64, "argument 0, `x`, has 32 bytes, not 64"),
    (|b| args(b).truncate(2), "kernel `scale`: 2 arguments, where it takes 3"),
    (|b| args(b).push(BufferId(3)), "4 arguments, where it takes 3"),
    (|b| args(b)[2] = BufferId(4), "argument 2, `sum`, has 4 bytes, not 32"),
    (|b| args(b)[2] = BufferId(0), "`x` is written, but it is read-only"),
    (|b| args(b)[2] = BufferId(1), "`w` is written, but it is read-only"),
    (|b| args(b)[0] = BufferId(9), "there is no buffer 9"),
];

/// The arguments that the first step passes to its kernel.
fn args(b: &mut Builder) -> &mut Vec<BufferId> {
    match &mut b.plan().plan.steps[0] {
        Step::Kernel { args, .. } => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn unsound_manifests_are_refused() {
    for (i, (change, message)) in UNSOUND.iter().enumerate() {
        let mut b = sample();
        change(&mut b);
        assert_unsound(&b, message, i);
    }
}

fn assert_unsound(b: &Builder, message: &str, case: usize) {
    let dir = tempfile::tempdir().unwrap();
    let error = Model::load(b.build(dir.path())).expect_err(message);
    assert!(matches!(error.kind, LoadErrorKind::Manifest(_)), "case {case}: {error}");
    assert!(error.to_string().contains(message), "case {case}: {error}");
}

/// A model whose only result is this number.
fn constant(path: &Path, value: i64) {
    let mut b = Builder::new();
    let y = b.output("y", ansc_runtime::DType::I64, &[]);
    b.step("constant", 1, &[y], &format!("((int64_t**)b)[0][0] = {value};"));
    let dir = tempfile::tempdir().unwrap();
    let new = path.with_extension("new");
    fs::copy(b.build(dir.path()), &new).unwrap();
    fs::rename(new, path).unwrap();
}

fn result(model: &Model) -> Tensor {
    model.session().unwrap().run(&[]).unwrap().remove(0).1
}

#[test]
fn a_file_that_replaces_a_loaded_one_is_another_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.ansc");
    let load = |value: i64| {
        constant(&path, value);
        Model::load(&path).unwrap()
    };
    let models: Vec<Model> = (0..4).map(load).collect();
    for (model, expected) in models.iter().zip(0i64..) {
        assert_eq!(result(model), Tensor::scalar(expected));
    }
}

#[test]
fn an_artifact_in_memory_is_a_model_like_one_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let models: Vec<Model> = (0..4)
        .map(|value| {
            let path = dir.path().join("model.ansc");
            constant(&path, value);
            // The bytes and the file are gone before the model runs.
            let bytes = fs::read(&path).unwrap();
            fs::remove_file(&path).unwrap();
            Model::from_bytes(&bytes).unwrap()
        })
        .collect();
    for (model, expected) in models.iter().zip(0i64..) {
        assert_eq!(result(model), Tensor::scalar(expected));
    }
}

#[test]
fn an_artifact_in_memory_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(sample().build(dir.path())).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let error = Model::from_bytes(&bytes).unwrap_err();
    assert!(matches!(error.kind, LoadErrorKind::Damaged), "{error}");
    assert!(error.to_string().starts_with("the artifact in memory: is damaged"), "{error}");
    let empty = Model::from_bytes(&[]).unwrap_err();
    assert!(matches!(empty.kind, LoadErrorKind::NotAnArtifact(_)), "{empty}");
}

/// The second load of a file has a descriptor of its own, which the next file takes over while the
/// first is still loaded.
#[test]
fn a_descriptor_that_comes_again_is_another_model() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
    constant(&one, 1);
    constant(&two, 2);
    // Other tests open files in between: some of the rounds meet none.
    for _ in 0..50 {
        let stays = Model::load(&one).unwrap();
        drop(Model::load(&one).unwrap());
        let other = Model::load(&two).unwrap();
        assert_eq!(result(&stays), Tensor::scalar(1i64));
        assert_eq!(result(&other), Tensor::scalar(2i64));
    }
}

/// Not a check but a measurement: `cargo test --release -p ansc-runtime --test load -- --ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement"]
fn time_to_load_100_megabytes() {
    let mut b = sample();
    b.weight("large", &Tensor::zeros(ansc_runtime::DType::F32, &[25 << 20]));
    b.arena("large", ansc_runtime::DType::F32, &[10 << 20]);
    let dir = tempfile::tempdir().unwrap();
    let path = b.build(dir.path());
    let mut times: Vec<_> = (0..20)
        .map(|_| {
            let began = std::time::Instant::now();
            let session = Model::load(&path).unwrap().session().unwrap();
            let elapsed = began.elapsed();
            drop(session);
            elapsed
        })
        .collect();
    times.sort();
    println!(
        "load and session: fastest {:?}, median {:?}, slowest {:?}",
        times[0], times[10], times[19]
    );
}
