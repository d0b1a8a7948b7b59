//! The runtime stays small to depend on.

use std::process::Command;

#[test]
fn the_runtime_knows_no_compiler() {
    let args =
        ["tree", "--offline", "-p", "ansc-runtime", "-e", "normal,build", "--prefix", "none"];
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(args)
        .args(["--manifest-path", manifest])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"serde_json"), "{tree}");
    let is_compiler = |name: &&&str| {
        let ours = name.starts_with("ansc-") && **name != "ansc-runtime";
        ours || ["llvm", "inkwell", "tract", "prost"].iter().any(|part| name.contains(part))
    };
    assert_eq!(names.iter().find(is_compiler), None);
}
