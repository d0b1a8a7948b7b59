//! The same model and options give the same bytes, whatever the number of threads, the name of the
//! output, or the folder that the compiler is started in.

use std::path::Path;
use std::process::Command;

fn compile(model: &Path, output: &Path, threads: usize, folder: &Path) -> Vec<u8> {
    let status = Command::new(env!("CARGO_BIN_EXE_ansc"))
        .arg("compile")
        .arg(model)
        .arg("-o")
        .arg(output)
        .env("RAYON_NUM_THREADS", threads.to_string())
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", crate::common::text(&status.stderr));
    std::fs::read(output).unwrap()
}

#[test]
fn two_compilations_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("a longer name/b"));
    std::fs::create_dir_all(&a).unwrap();
    std::fs::create_dir_all(&b).unwrap();
    for name in ["mobilenet_v2", "lstm_tagger", "SFM"] {
        let model = a.join(format!("{name}.onnx"));
        std::fs::write(&model, ansc_models::find(name).unwrap().build().to_bytes()).unwrap();
        let first = compile(&model, &a.join("one.ansc"), 1, &a);
        let copy = b.join(format!("{name}.onnx"));
        std::fs::copy(&model, &copy).unwrap();
        for threads in [1, 7] {
            let again = compile(&copy, &b.join("another-name.ansc"), threads, &b);
            assert!(first == again, "{name} with {threads} threads");
        }
    }
}
