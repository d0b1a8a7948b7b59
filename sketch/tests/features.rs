//! The numbers that cost models see of a few programs: `features/*.txt`.
//!
//! A file holds a program, a line `=>`, and for each row the numbers that are not zero.
//! `ANSC_BLESS=1` rewrites what is below the line; models that were trained before do not fit then.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use ansc_sketch::Program;
use ansc_sketch::features::{features, names};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/features");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn describe(program: &Program) -> String {
    let names = names();
    let mut text = String::new();
    for (index, row) in features(program).rows.iter().enumerate() {
        writeln!(text, "row {index}").unwrap();
        for (name, value) in names.iter().zip(row).filter(|(_, value)| **value != 0.0) {
            writeln!(text, "{name} {value:.4}").unwrap();
        }
    }
    text
}

#[test]
fn numbers_of_programs_stay_as_they_are() {
    let mut stale = String::new();
    for path in files() {
        let text = std::fs::read_to_string(&path).unwrap();
        let (source, expected) = text.split_once("\n=>\n").expect("a line `=>`");
        let found = describe(&Program::parse(source).unwrap());
        if std::env::var_os("ANSC_BLESS").is_some() {
            std::fs::write(&path, format!("{source}\n=>\n{found}")).unwrap();
        } else if found != expected {
            writeln!(stale, "{}:\n{found}", path.display()).unwrap();
        }
    }
    assert!(stale.is_empty(), "run with ANSC_BLESS=1 if this is right\n{stale}");
}
