//! Damaged and foreign artifacts: refused before anything of them runs.

use std::path::{Path, PathBuf};

use crate::common::{Random, refuses, small_model, str};
use ansc::pipeline::{self, Options, Silent};
use ansc_codegen::Target;
use ansc_frontend::import::ImportOptions;
use ansc_runtime::manifest::{SEAL_MAGIC, seal};
use ansc_runtime::{LoadErrorKind, Model};

fn compiled(dir: &Path) -> (PathBuf, Vec<u8>) {
    let artifact = dir.join("good.ansc");
    let options = Options::new(ImportOptions::default(), Target::parse("x86-64-v2").unwrap());
    pipeline::compile(&small_model(dir), &artifact, &options, &Silent).unwrap();
    let bytes = std::fs::read(&artifact).unwrap();
    assert!(Model::load(&artifact).is_ok());
    (artifact, bytes)
}

fn find(bytes: &[u8], pattern: &[u8]) -> usize {
    bytes.windows(pattern.len()).position(|w| w == pattern).expect("the artifact holds it")
}

#[test]
fn a_truncated_artifact_is_refused_at_every_length() {
    let dir = tempfile::tempdir().unwrap();
    let (_, bytes) = compiled(dir.path());
    let cut = dir.path().join("cut.ansc");
    for length in (0..bytes.len()).step_by(97) {
        std::fs::write(&cut, &bytes[..length]).unwrap();
        let error = Model::load(&cut).unwrap_err();
        assert!(error.to_string().starts_with(str(&cut)), "{length}: {error}");
    }
    for verb in ["bench", "run", "inspect"] {
        std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
        refuses(&[verb, str(&cut)], 1, str(&cut), &["artifact"]);
    }
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (_, mut bytes) = compiled(dir.path());
    let file = dir.path().join("flipped.ansc");
    let mut random = Random(1);
    let positions: Vec<usize> = (0..bytes.len()).step_by(61).collect();
    assert!(positions.len() > 100);
    for at in positions {
        let bit = 1 << random.below(8);
        bytes[at] ^= bit;
        std::fs::write(&file, &bytes).unwrap();
        assert!(Model::load(&file).is_err(), "byte {at}, bit {bit}");
        bytes[at] ^= bit;
    }
    let weights = bytes.len() / 3;
    bytes[weights] ^= 16;
    std::fs::write(&file, &bytes).unwrap();
    refuses(&["bench", str(&file)], 1, str(&file), &["damaged"]);
}

#[test]
fn a_foreign_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (file, mut bytes) = compiled(dir.path());
    let version = find(&bytes, &SEAL_MAGIC) + SEAL_MAGIC.len();
    bytes[version] = 77;
    std::fs::write(&file, &bytes).unwrap();
    refuses(
        &["bench", str(&file)],
        1,
        str(&file),
        &["format version 77", "compile the model again"],
    );
}

#[test]
fn a_foreign_processor_is_the_machines_fault() {
    let dir = tempfile::tempdir().unwrap();
    let (file, mut bytes) = compiled(dir.path());
    // The artifact is sealed again: the refusal must come from the check of features.
    let cpu = find(&bytes, b"\"features\":[") + b"\"features\":[".len();
    let feature = find(&bytes[cpu..], b"\"sse3\"") + cpu;
    bytes[feature..feature + 6].copy_from_slice(b"\"sse9\"");
    seal(&mut bytes).unwrap();
    std::fs::write(&file, &bytes).unwrap();
    assert!(matches!(Model::load(&file).unwrap_err().kind, LoadErrorKind::Target(_)));
    refuses(&["bench", str(&file)], 3, str(&file), &["sse9", "--target-cpu"]);
}

#[test]
fn other_files_are_no_artifacts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("other.ansc");
    std::fs::write(&file, "no artifact").unwrap();
    refuses(&["bench", str(&file)], 1, str(&file), &["not an artifact"]);
    let program = std::env::current_exe().unwrap();
    refuses(&["bench", str(&program)], 1, str(&program), &["artifact"]);
    let model = small_model(dir.path());
    refuses(&["run", str(&model)], 1, str(&model), &["not an artifact"]);
}
