//! NVIDIA's assembler, where there is one: it has the last word on whether PTX is right.
//!
//! Looked for in `ANSC_PTXAS`, in `target/ptxas` (put there by `scripts/ptxas`), and on the path.

use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Assembles the text and tells what each kernel takes; `None`, with a line that says so, without
/// an assembler.
pub(crate) fn assemble(what: &str, sm: u32, text: &str) -> Option<Vec<Usage>> {
    let Some(ptxas) = find() else {
        println!("skipped: no ptxas for {what} (sm_{sm}); scripts/ptxas fetches one");
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
    Some(usages(&messages))
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
