//! A C program runs what the compiler made.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{ansc, small_model, str, text};
use ansc_runtime::{Model, Tensor};

/// The folder of the libraries for C programs: cargo puts them beside this test.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Builds the example with these flags.
fn build_example(program: &Path, flags: &[String]) {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime");
    let cc = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-o", str(program)])
        .arg(runtime.join("examples/c/run.c"))
        .args(flags)
        .output()
        .unwrap();
    assert!(cc.status.success(), "{}", text(&cc.stderr));
}

/// The flags in a `.pc` file, as pkg-config gives them: variables are put in, and words parted.
fn flags_of(pc: &str) -> Vec<String> {
    let mut variables: Vec<(String, String)> = vec![];
    let mut flags = vec![];
    for line in pc.lines() {
        let filled = variables.iter().fold(line.to_owned(), |line, (name, value)| {
            line.replace(&format!("${{{name}}}"), value)
        });
        if let Some(words) = filled.strip_prefix("Cflags: ").or(filled.strip_prefix("Libs: ")) {
            flags.extend(words.split(' ').map(|word| word.replace('"', "")));
        } else if let Some((name, value)) = filled.split_once('=') {
            variables.push((name.to_owned(), value.to_owned()));
        }
    }
    flags
}

#[test]
fn a_c_program_is_built_with_what_is_installed() {
    let dir = tempfile::tempdir().unwrap();
    let (prefix, program) = (dir.path().join("prefix"), dir.path().join("program"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/install-runtime");
    let installed =
        Command::new(&script).arg(&prefix).env("ANSC_LIBRARIES", libraries()).output().unwrap();
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    let pc = std::fs::read_to_string(prefix.join("lib/pkgconfig/ansc.pc")).unwrap();
    assert!(pc.contains(&format!("\nVersion: {}\n", env!("CARGO_PKG_VERSION"))), "{pc}");
    assert!(!pc.contains('@'), "{pc}");
    build_example(&program, &flags_of(&pc));

    // Without an artifact it says that, by a function of the library.
    let run = Command::new(&program)
        .arg(dir.path().join("none.ansc"))
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .output()
        .unwrap();
    assert!(!run.status.success());
    assert!(text(&run.stderr).contains("none.ansc"), "{}", text(&run.stderr));

    let usage = Command::new(&script).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn the_c_example_runs_a_compiled_model() {
    let dir = tempfile::tempdir().unwrap();
    let (artifact, program) = (dir.path().join("small.ansc"), dir.path().join("program"));
    let compiled = ansc(&["compile", str(&small_model(dir.path())), "-o", str(&artifact)]);
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));

    let (runtime, libraries) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime"), libraries());
    let include = format!("-I{}", runtime.join("include").display());
    let library = format!("-L{}", libraries.display());
    build_example(&program, &[include, library, "-lansc_runtime".to_owned()]);
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
