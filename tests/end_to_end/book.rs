//! The book in `docs/` builds without a warning, its links lead somewhere, and its commands run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use mdbook_driver::MDBook;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages of the book, in no order.
fn pages() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("docs/src")).unwrap();
    let pages: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    assert!(pages.len() > 10);
    pages
}

/// The targets of `[text](target)` outside of blocks of code.
fn links(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut found = vec![];
    for line in text.lines() {
        in_code ^= line.starts_with("```");
        if in_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split(')').next().unwrap();
            found.push(target.to_owned());
        }
    }
    found
}

/// The anchor that mdBook and others make of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn anchors(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).unwrap();
    text.lines().filter(|l| l.starts_with('#')).map(|l| anchor(l.trim_start_matches('#'))).collect()
}

/// The problem with a link of `page`, if there is one.
fn broken(page: &Path, target: &str) -> Option<String> {
    if target.starts_with("http://") || target.starts_with("https://") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    if !file.exists() {
        return Some(format!("{}: {target} does not exist", page.display()));
    }
    let known = heading.is_empty() || anchors(&file).contains(heading);
    (!known).then(|| format!("{}: {target} has no such heading", page.display()))
}

/// Keeps what mdBook warns of.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Visit for Warnings {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{field}: {value:?}"));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn build(book: &Path, output: &Path) -> (Result<(), String>, Vec<String>) {
    let warnings = Warnings::default();
    let result = tracing::subscriber::with_default(warnings.clone(), || {
        let mut book = MDBook::load(book).map_err(|e| e.to_string())?;
        book.config.build.build_dir = output.to_owned();
        book.build().map_err(|e| e.to_string())
    });
    let warnings = warnings.0.lock().unwrap().clone();
    (result, warnings)
}

#[test]
fn the_book_builds_without_a_warning() {
    let output = tempfile::tempdir().unwrap();
    let (result, warnings) = build(&root().join("docs"), output.path());
    assert_eq!(result, Ok(()));
    assert!(warnings.is_empty(), "{warnings:#?}");
    assert!(output.path().join("quick-start.html").exists());
}

/// The test above would notice a warning.
#[test]
fn warnings_of_the_book_are_seen() {
    let (book, output) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(book.path().join("src")).unwrap();
    fs::write(book.path().join("src/SUMMARY.md"), "# s\n\n- [a](a.md)\n").unwrap();
    fs::write(book.path().join("src/a.md"), "# a\n\n<div>\n").unwrap();
    let (_, warnings) = build(book.path(), output.path());
    assert!(!warnings.is_empty());
}

#[test]
fn links_lead_somewhere() {
    let at_the_root = ["README.md", "ARCHITECTURE.md", "SECURITY.md", "benches/results/README.md"];
    let all = pages().into_iter().chain(at_the_root.map(|name| root().join(name)));
    let mut wrong = vec![];
    for page in all {
        let text = fs::read_to_string(&page).unwrap();
        wrong.extend(links(&text).iter().filter_map(|target| broken(&page, target)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = fs::read_to_string(root().join("docs/src/SUMMARY.md")).unwrap();
    let listed: BTreeSet<String> = links(&summary).into_iter().collect();
    let there = pages().into_iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned());
    let there: BTreeSet<String> = there.filter(|name| name != "SUMMARY.md").collect();
    assert_eq!(there, listed);
}

/// The lines `$ ansc ..` of blocks that are marked `console`.
fn commands(text: &str) -> Vec<String> {
    let blocks = text.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.flat_map(str::lines).filter_map(|l| l.strip_prefix("$ ")).map(str::to_owned).collect()
}

#[test]
fn commands_of_the_book_run() {
    let ansc = Path::new(env!("CARGO_BIN_EXE_ansc")).parent().unwrap();
    let path = format!("{}:{}", ansc.display(), std::env::var("PATH").unwrap());
    let mut ran = 0;
    for page in pages() {
        let dir = tempfile::tempdir().unwrap();
        for command in commands(&fs::read_to_string(&page).unwrap()) {
            let mut shell = Command::new("sh");
            shell.args(["-c", &command]).current_dir(dir.path()).env("PATH", &path);
            let output = shell.output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: `{command}`: {error}", page.display());
            ran += 1;
        }
    }
    assert!(ran >= 10, "{ran}");
}

/// The page about installing names packages, features and profiles that manifests and scripts have.
#[test]
fn installing_names_packages_features_and_profiles_that_exist() {
    let page = fs::read_to_string(root().join("docs/src/installing.md")).unwrap();
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let llvm = fs::read_to_string(root().join("scripts/llvm.sh")).unwrap();
    assert!(page.contains("--profile dist") && manifest.contains("[profile.dist]"));
    let flags = "--no-default-features --features llvm19,cuda,fleet";
    for (text, name) in [(&page, "the page"), (&llvm, "scripts/llvm.sh")] {
        assert!(text.contains(flags), "{name}");
    }
    for feature in ["llvm19", "llvm22", "cuda", "fleet"] {
        assert!(page.contains(&format!("`{feature}`")), "{feature}");
        assert!(manifest.contains(&format!("\n{feature} = [")), "{feature}");
    }
    let packages = llvm.lines().find_map(|l| l.trim().strip_prefix("echo \"llvm-$1-dev ")).unwrap();
    let packages = packages.trim_end_matches('"').replace("$1", "22");
    for package in packages.split(' ') {
        assert!(page.contains(package), "{package}");
    }
}
