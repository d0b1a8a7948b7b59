//! NVIDIA's assembler, where there is one: it has the last word on whether PTX is right.
//!
//! Looked for in `ANSC_PTXAS`, in `target/ptxas` (put there by `scripts/ptxas`), and on the path.
//! With `ANSC_NEEDS_PTXAS=1` a test fails where there is none; otherwise a note says that PTX was
//! not assembled.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

/// The resources of a multiprocessor that one kernel takes.
#[derive(Debug)]
pub(crate) struct Usage {
    pub(crate) kernel: String,
    pub(crate) registers: usize,
    pub(crate) shared: usize,
    /// Bytes of registers that did not fit.
    pub(crate) spilled: usize,
}

fn find() -> Option<PathBuf> {
    let named = std::env::var_os("ANSC_PTXAS").map(PathBuf::from);
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().take(2);
    let fetched = folders.map(|f| f.join("target/ptxas/ptxas"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("ptxas"));
    named.into_iter().chain(fetched).chain(on_path).find(|p| p.is_file())
}

/// Says that there is no assembler: as a failure where one is needed, otherwise once to whoever
/// runs the tests. Only what is written to the stream itself is shown for tests that pass.
fn miss(what: &str) {
    const REMEDY: &str = "scripts/ptxas fetches one, ANSC_PTXAS names another";
    let is_needed = std::env::var("ANSC_NEEDS_PTXAS").is_ok_and(|needs| needs == "1");
    assert!(!is_needed, "no ptxas to assemble {what}, and ANSC_NEEDS_PTXAS=1: {REMEDY}");
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let note = "note: no ptxas, so PTX is not assembled and spills are not looked for";
        writeln!(std::io::stderr(), "{note}; {REMEDY}").expect("a stream for errors");
    });
}

/// Assembles the text, which has kernels, and tells what each of them takes. `None` without an
/// assembler, unless that is a failure.
pub(crate) fn assemble(what: &str, sm: u32, text: &str) -> Option<Vec<Usage>> {
    let Some(ptxas) = find() else {
        miss(what);
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let (source, cubin) = (dir.path().join("k.ptx"), dir.path().join("k.cubin"));
    std::fs::write(&source, text).unwrap();
    let output = Command::new(ptxas)
        .args([format!("-arch=sm_{sm}").as_str(), "-v", "-o"])
        .args([&cubin, &source])
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}, sm_{sm}: {messages}\n{text}");
    let all = usages(&messages);
    assert!(!all.is_empty(), "{what}, sm_{sm}: no kernels: {messages}\n{text}");
    Some(all)
}

fn usages(messages: &str) -> Vec<Usage> {
    let mut all: Vec<Usage> = vec![];
    for line in messages.lines() {
        if let Some(kernel) = line.split("Compiling entry function '").nth(1) {
            let kernel = kernel.split('\'').next().unwrap_or_default().to_owned();
            all.push(Usage { kernel, registers: 0, shared: 0, spilled: 0 });
        } else if let Some(last) = all.last_mut() {
            if line.contains("spill") {
                last.spilled +=
                    number(line, " bytes spill stores") + number(line, " bytes spill loads");
            } else if line.contains("registers") {
                last.registers = number(line, " registers");
                last.shared = number(line, " bytes smem");
            }
        }
    }
    all
}

/// The number before `unit`.
fn number(line: &str, unit: &str) -> usize {
    let before = line.split(unit).next().filter(|_| line.contains(unit));
    let digits = before.and_then(|b| b.rsplit(|c: char| !c.is_ascii_digit()).next());
    digits.and_then(|d| d.parse().ok()).unwrap_or(0)
}
