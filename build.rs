//! Tells the compiler what it is built from, which `src/version.rs` prints.

use std::env;
use std::path::Path;
use std::process::Command;

/// All that is compiled into the command, and nothing else: a change of a page is no other
/// compiler.
const SOURCES: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "build.rs",
    "src",
    "codegen",
    "frontend",
    "graph",
    "models",
    "runtime",
    "sketch",
    "tuner",
];

fn main() {
    println!("cargo::rustc-env=ANSC_COMMIT={}", commit());
    println!("cargo::rustc-env=ANSC_CARGO_FEATURES={}", features());
    // Without git, or in an archive of the sources, there is nothing to watch but the sources.
    let of_git = ["HEAD", "logs/HEAD"].map(|file| git(&["rev-parse", "--git-path", file]));
    let watched = SOURCES.iter().map(|path| path.to_string()).chain(of_git.into_iter().flatten());
    // Cargo takes a file that does not exist for one that has changed.
    for path in watched.filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
}

/// As in `0123456789ab`, with a word if the sources are others than the commit's.
fn commit() -> String {
    // The repository around an unpacked archive is not this one's.
    let is_ours = git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    let hash = git(&["rev-parse", "--short=12", "HEAD"]).filter(|_| is_ours);
    let Some(hash) = hash else { return "unknown, built without git".into() };
    let changes = git(&[&["status", "--porcelain", "--"], SOURCES].concat());
    match changes {
        Some(changes) if changes.is_empty() => hash,
        _ => format!("{hash}, with changes"),
    }
}

/// Runs git, and gives its output; `None` if there is no git, or it fails.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn features() -> String {
    let all = env::var("CARGO_CFG_FEATURE").unwrap_or_default();
    let named: Vec<&str> = all.split(',').filter(|f| !f.is_empty() && *f != "default").collect();
    if named.is_empty() { "none".into() } else { named.join(" ") }
}
