//! Artifacts: reproducible, sealed, and loadable; sections are where the manifest's readers look.

use std::path::Path;

use ansc_codegen::{Target, artifact, compile_program};
use ansc_graph::{Compute, Expr, Stage, TensorType, UnOp};
use ansc_runtime::DType;
use ansc_runtime::manifest::{
    FORMAT_VERSION, MANIFEST_SECTION, Manifest, Provenance, SEAL_HASH_AT, SEAL_LEN, SEAL_MAGIC,
    SEAL_SECTION, Specialisation, WEIGHTS_SECTION, seal_hash,
};

fn manifest(target: &Target, weight_bytes: usize) -> Manifest {
    Manifest {
        compiler: "test".into(),
        model: Provenance { name: "m".into(), sha256: String::new() },
        target: target.info(),
        weight_bytes,
        accurate: false,
        precision: Default::default(),
        quantization: None,
        dims: Default::default(),
        preparation: None,
        kernels: vec![],
        specialisations: vec![Specialisation::default()],
    }
}

fn object(target: &Target) -> Vec<u8> {
    object_of(target, UnOp::Erf, DType::F64)
}

fn object_of(target: &Target, op: UnOp, dtype: DType) -> Vec<u8> {
    let ty = TensorType::new(dtype, [4]);
    let body = Expr::unary(op, Expr::load(0, vec![Expr::var(0)]));
    let compute = Compute::single(vec![ty.clone()], Stage::map("e", ty, body));
    let program = ansc_sketch::finish(ansc_sketch::lower("e", &compute));
    compile_program(&program, "kernel", target).unwrap().object
}

fn write(path: &Path, target: &Target) -> Vec<u8> {
    let weights: [(usize, &[u8]); 2] = [(0, &[1; 100]), (128, &[2; 5000])];
    artifact::write(path, target, &[&object(target)], &weights, &manifest(target, 5128)).unwrap();
    std::fs::read(path).unwrap()
}

/// Offset and length of a section, by binutils.
fn section(path: &Path, name: &str) -> (usize, usize) {
    let out = std::process::Command::new("readelf").args(["-SW"]).arg(path).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let line = text.lines().find(|l| l.contains(&format!("{name} "))).unwrap_or_else(|| {
        panic!("no {name} in\n{text}");
    });
    let fields: Vec<&str> = line.split_whitespace().skip_while(|f| *f != name).collect();
    let hex = |s: &str| usize::from_str_radix(s, 16).unwrap();
    (hex(fields[3]), hex(fields[4]))
}

#[test]
fn an_artifact_is_sealed_and_loads() {
    let target = Target::native().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.so");
    let file = write(&path, &target);
    let (at, len) = section(&path, WEIGHTS_SECTION);
    assert_eq!((at % 4096, len), (0, 5128));
    assert_eq!((file[at], file[at + 99], file[at + 100], file[at + 128]), (1, 1, 0, 2));
    let (at, len) = section(&path, MANIFEST_SECTION);
    let read: Manifest = serde_json::from_slice(&file[at..at + len]).unwrap();
    assert_eq!(read, manifest(&target, 5128));
    let (at, len) = section(&path, SEAL_SECTION);
    assert_eq!(len, SEAL_LEN);
    assert_eq!(file[at..at + 8], SEAL_MAGIC);
    assert_eq!(file[at + 8..at + 12], FORMAT_VERSION.to_le_bytes());
    let mut unsealed = file.clone();
    unsealed[at + SEAL_HASH_AT..at + SEAL_LEN].fill(0);
    assert_eq!(file[at + SEAL_HASH_AT..at + SEAL_LEN], seal_hash(&unsealed));
    ansc_runtime::Model::load(&path).unwrap();
    // SAFETY: the library was just made and has no initialisers.
    let library = unsafe { libloading::Library::new(&path) }.unwrap();
    // SAFETY: the symbol is only looked up.
    assert!(unsafe { library.get::<ansc_runtime::manifest::KernelFn>(b"kernel_0") }.is_ok());
}

#[test]
fn the_same_model_gives_the_same_bytes_on_every_target() {
    for name in ["native", "x86-64-v2", "x86-64-v4", "aarch64"] {
        let target = Target::parse(name).unwrap();
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [a, b] = dirs.each_ref().map(|d| write(&d.path().join("m.so"), &target));
        assert!(a == b, "{name}");
        let path = dirs[0].path().to_str().unwrap().as_bytes();
        assert!(!a.windows(path.len()).any(|w| w == path), "{name}: a path leaks");
    }
}

#[test]
fn misplaced_weights_are_refused_and_leave_nothing() {
    let target = Target::native().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.so");
    let overlapping: [(usize, &[u8]); 2] = [(0, &[1; 100]), (64, &[2; 8])];
    let too_long: [(usize, &[u8]); 1] = [(0, &[1; 100])];
    for (weights, bytes) in [(&overlapping[..], 500), (&too_long[..], 99)] {
        let error = artifact::write(&path, &target, &[], weights, &manifest(&target, bytes));
        assert!(error.is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

/// Processors without instructions for rounding call functions for it.
#[test]
fn what_rounds_is_linked_for_the_least_processor() {
    let target = Target::parse("x86-64").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.so");
    for op in [UnOp::Floor, UnOp::Ceil, UnOp::Round, UnOp::Trunc] {
        for dtype in [DType::F16, DType::F32, DType::F64] {
            let object = object_of(&target, op, dtype);
            artifact::write(&path, &target, &[&object], &[], &manifest(&target, 0))
                .unwrap_or_else(|e| panic!("{op:?} {dtype}: {e}"));
            ansc_runtime::Model::load(&path).unwrap();
        }
    }
}
