//! A C program runs what the compiler made.

mod common;

use std::path::Path;
use std::process::Command;

use ansc_runtime::{Model, Tensor};
use common::{ansc, small_model, str, text};

#[test]
fn the_c_example_runs_a_compiled_model() {
    let dir = tempfile::tempdir().unwrap();
    let (artifact, program) = (dir.path().join("small.ansc"), dir.path().join("program"));
    let compiled = ansc(&["compile", str(&small_model(dir.path())), "-o", str(&artifact)]);
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));

    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime");
    // Cargo puts the library for C programs beside this test.
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let cc = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-o", str(&program)])
        .arg(runtime.join("examples/c/run.c"))
        .arg(format!("-I{}", runtime.join("include").display()))
        .arg(format!("-L{}", libraries.display()))
        .arg("-lansc_runtime")
        .output()
        .unwrap();
    assert!(cc.status.success(), "{}", text(&cc.stderr));
    let run = Command::new(&program).arg(&artifact).env("LD_LIBRARY_PATH", &libraries).output();
    let run = run.unwrap();
    assert!(run.status.success(), "{}", text(&run.stderr));

    let values: Vec<f32> = [0.5, 0.25].into_iter().cycle().take(3 * 16 * 16).collect();
    let x = Tensor::from_slice(&[1, 3, 16, 16], &values);
    let outputs = Model::load(&artifact).unwrap().session().unwrap().run(&[("x", &x)]).unwrap();
    let found: Vec<f32> = text(&run.stdout)
        .lines()
        .last()
        .unwrap()
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    let expected = outputs[0].1.as_slice::<f32>();
    assert_eq!(found.len(), expected.len());
    // The program prints six digits.
    assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() <= 1e-5 * e.abs()), "{found:?}");
}
