//! Links the bundle that `ansc compile MODEL --emit bundle -o net.o` wrote; `BUNDLE_DIR` says where
//! it is.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-env-changed=BUNDLE_DIR");
    let dir = env::var_os("BUNDLE_DIR").expect("BUNDLE_DIR names the folder of net.o and net.h");
    let (object, header) = (PathBuf::from(&dir).join("net.o"), PathBuf::from(&dir).join("net.h"));
    println!("cargo::rerun-if-changed={}", object.display());
    println!("cargo::rustc-link-arg={}", object.display());
    println!("cargo::rustc-link-lib=m");
    // Sizes come from the header, so that they are those of the object.
    let text = std::fs::read_to_string(&header).expect("the header is beside the object");
    let mut constants = String::new();
    for line in text.lines() {
        if let ["#define", name, value] = line.split_whitespace().collect::<Vec<_>>()[..] {
            constants.push_str(&format!("pub const {name}: usize = {value};\n"));
        }
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("net.rs");
    std::fs::write(out, constants).expect("OUT_DIR can be written");
}
