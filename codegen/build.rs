//! Says how to install LLVM where it is missing. The crate that binds it would only say that there
//! is none.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A version of LLVM that a feature of cargo asks for.
struct Llvm {
    feature: &'static str,
    major: u32,
    /// The variable that names a folder where LLVM is installed.
    prefix: &'static str,
}

const VERSIONS: [Llvm; 2] = [
    Llvm { feature: "llvm22", major: 22, prefix: "LLVM_SYS_221_PREFIX" },
    Llvm { feature: "llvm19", major: 19, prefix: "LLVM_SYS_191_PREFIX" },
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for llvm in &VERSIONS {
        println!("cargo::rerun-if-env-changed={}", llvm.prefix);
    }
    // Homebrew has places of its own, which the binding knows.
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os != "linux") {
        return;
    }
    let is_asked_for = |llvm: &&Llvm| {
        env::var_os(format!("CARGO_FEATURE_{}", llvm.feature.to_uppercase())).is_some()
    };
    match VERSIONS.iter().find(is_asked_for) {
        None => println!("cargo::error=choose an LLVM: --features llvm22, or llvm19"),
        Some(asked) if !asked.is_here() => println!("cargo::error={}", asked.advice()),
        Some(_) => {}
    }
}

impl Llvm {
    /// As the binding searches: a folder that is named, or the programs on the path.
    fn is_here(&self) -> bool {
        let folder = env::var_os(self.prefix).map(|prefix| PathBuf::from(prefix).join("bin"));
        let folder = folder.unwrap_or_default();
        let n = self.major;
        let names = [
            format!("llvm-config-{n}"),
            format!("llvm-config{n}"),
            format!("llvm{n}-config"),
            format!("llvm-config-{n}.1"),
            format!("llvm-config{n}1"),
            "llvm-config".to_owned(),
        ];
        names.iter().any(|name| version(&folder.join(name)) == Some(n))
    }

    fn advice(&self) -> String {
        let (n, prefix) = (self.major, self.prefix);
        let packages =
            format!("llvm-{n}-dev libpolly-{n}-dev libzstd-dev libxml2-dev zlib1g-dev libffi-dev");
        let missing = format!(
            "LLVM {n} with its static libraries is missing (no llvm-config of version {n}). \
             On Debian or Ubuntu: sudo apt-get install {packages}. \
             If it is installed elsewhere, set {prefix} to the folder that has bin/llvm-config."
        );
        let others = VERSIONS.iter().filter(|other| other.major != n);
        let instead = others.map(|other| {
            let have = if other.is_here() { "is here" } else { "does as well" };
            let feature = other.feature;
            format!(
                " LLVM {} {have}: --no-default-features --features {feature},cuda.",
                other.major
            )
        });
        missing + &instead.collect::<String>()
    }
}

/// The major version that a program `llvm-config` says.
fn version(program: &Path) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').next()?.trim().parse().ok()
}
