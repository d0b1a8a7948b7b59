//! A build without LLVM says how to install it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs the build script with `feature`, where nothing but `path` is on the path.
fn build(script: &Path, feature: &str, path: &Path) -> String {
    let output = Command::new(script)
        .env_clear()
        .env("PATH", path)
        .env("CARGO_CFG_TARGET_OS", "linux")
        .env(format!("CARGO_FEATURE_{feature}"), "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| line.starts_with("cargo::error=")).collect()
}

/// A folder with a program that says it is `llvm-config` of this version.
fn llvm_config(folder: &Path, name: &str, version: &str) {
    fs::create_dir_all(folder).unwrap();
    let program = folder.join(name);
    fs::write(&program, format!("#!/bin/sh\necho {version}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_missing_llvm_is_named_with_the_command_that_installs_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let script = dir.join("build");
    let rustc = std::env::var("RUSTC").unwrap_or("rustc".to_owned());
    let rustc = Command::new(rustc)
        .args(["--edition", "2024", "-o"])
        .args([&script, &root.join("build.rs")])
        .output()
        .unwrap();
    assert!(rustc.status.success(), "{rustc:?}");

    // The scripts install the same packages.
    let shell = fs::read_to_string(root.join("../scripts/llvm.sh")).unwrap();
    let packages = shell.split("echo \"llvm-$1-dev").nth(1).unwrap().split('"').next().unwrap();
    let packages = format!("llvm-$1-dev{packages}");
    let nothing = dir.join("nothing");
    fs::create_dir(&nothing).unwrap();
    for (feature, version) in [("LLVM22", "22"), ("LLVM19", "19")] {
        let error = build(&script, feature, &nothing);
        assert!(error.contains(&format!("LLVM {version} with its static libraries is missing")));
        let install = format!("apt-get install {}.", packages.replace("$1", version));
        assert!(error.contains(&install), "{error}");
    }

    let old = dir.join("old");
    llvm_config(&old, "llvm-config", "19.1.7");
    assert_eq!(build(&script, "LLVM19", &old), "");
    let error = build(&script, "LLVM22", &old);
    assert!(error.contains("LLVM 19 is here: --no-default-features --features llvm19"), "{error}");
    let new = dir.join("new");
    llvm_config(&new, "llvm-config-22", "22.1.0");
    assert_eq!(build(&script, "LLVM22", &new), "");
    assert!(build(&script, "NOTHING", &new).contains("choose an LLVM"));
}
