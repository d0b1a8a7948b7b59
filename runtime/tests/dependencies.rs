//! The runtime stays small to depend on.

use std::process::Command;

/// The names of the packages that the runtime is built from.
fn packages(features: &[&str]) -> Vec<String> {
    let args =
        ["tree", "--offline", "-p", "ansc-runtime", "-e", "normal,build", "--prefix", "none"];
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(args)
        .args(["--manifest-path", manifest])
        .args(features)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: Vec<String> =
        tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert!(names.iter().any(|name| name == "serde_json"), "{tree}");
    names
}

#[test]
fn the_runtime_knows_no_compiler() {
    let is_compiler = |name: &&String| {
        let ours = name.starts_with("ansc-") && *name != "ansc-runtime";
        ours || ["llvm", "inkwell", "tract", "prost"].iter().any(|part| name.contains(part))
    };
    assert_eq!(packages(&[]).iter().find(is_compiler), None);
}

#[test]
fn what_speaks_to_gpus_can_be_left_out() {
    let cudarc = "cudarc".to_owned();
    assert!(packages(&[]).contains(&cudarc));
    assert!(!packages(&["--no-default-features"]).contains(&cudarc));
}
