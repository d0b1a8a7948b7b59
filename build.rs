//! Tells the compiler what it is built from, which `src/version.rs` prints, and a user without LLVM
//! how to get it.

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
    explain_missing_llvm();
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

/// The crate that links LLVM ends the build where there is none; this adds how to install it.
fn explain_missing_llvm() {
    let (version, prefix) = match env::var("CARGO_FEATURE_LLVM19") {
        Ok(_) => (19, "LLVM_SYS_191_PREFIX"),
        Err(_) => (22, "LLVM_SYS_221_PREFIX"),
    };
    println!("cargo::rerun-if-env-changed={prefix}");
    let runs = |program: &str| Command::new(program).arg("--version").output();
    let is_version = |program: String| {
        let text = runs(&program).map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&text).starts_with(&format!("{version}."))
    };
    if env::var_os(prefix).is_some()
        || ["llvm-config".to_owned(), format!("llvm-config-{version}")].into_iter().any(is_version)
    {
        return;
    }
    println!(
        "cargo::warning=LLVM {version} was not found. On Debian or Ubuntu: apt-get install \
         llvm-{version}-dev libpolly-{version}-dev libzstd-dev libxml2-dev zlib1g-dev libffi-dev \
         build-essential. If it lies elsewhere, set {prefix} to its folder."
    );
    if version == 22 {
        println!(
            "cargo::warning=With LLVM 19 in place of it: --no-default-features --features llvm19,cuda"
        );
    }
}
