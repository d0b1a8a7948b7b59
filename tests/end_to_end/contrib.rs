//! Operators of com.microsoft against what ONNX Runtime made of the same inputs
//! (`tests/contrib/make.py`). Integers are equal to the last bit, floats nearly so.

use std::fs;
use std::path::Path;

use crate::common::{ansc, str, text};
use ansc_frontend::tensor_file;

#[test]
fn operators_compute_what_onnx_runtime_does() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contrib");
    let output = tempfile::tempdir().unwrap();
    let mut ran = 0;
    for folder in fs::read_dir(folders).unwrap().map(|entry| entry.unwrap().path()) {
        let model = folder.join("model.onnx");
        if !model.exists() {
            continue;
        }
        let artifact = output.path().join("m.ansc");
        let compiled = ansc(&["compile", str(&model), "-o", str(&artifact), "--untuned"]);
        assert!(compiled.status.success(), "{}: {}", folder.display(), text(&compiled.stderr));
        let first = tensor_file::read(&folder.join("output_0.pb")).unwrap();
        let tolerance = if first.dtype().is_float() { "1e-5" } else { "0" };
        let verify = [
            "verify",
            str(&model),
            str(&artifact),
            "--input-dir",
            str(&folder),
            "--tolerance",
            tolerance,
        ];
        let verified = ansc(&verify);
        let said = text(&verified.stdout) + &text(&verified.stderr);
        assert!(verified.status.success(), "{}: {said}", folder.display());
        ran += 1;
    }
    assert!(ran >= 21, "{ran}");
}
