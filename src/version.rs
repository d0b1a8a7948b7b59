//! `ansc --version` says which compiler this is, for a report of a defect.

use ansc_codegen::Target;
use ansc_codegen::target::llvm_version;
use ansc_runtime::manifest::FORMAT_VERSION;

/// As in `ansc 0.1.0`.
pub fn line() -> String {
    format!("ansc {}", env!("CARGO_PKG_VERSION"))
}

/// The line above, then a line for each thing that two compilers of one version can differ in.
pub fn verbose() -> String {
    let format = FORMAT_VERSION.to_string();
    let (host, cpu, features) = match Target::native() {
        Ok(host) => (host.triple, host.tune, host.features.join(" ")),
        Err(error) => (error.to_string(), "unknown".into(), String::new()),
    };
    let lines = [
        ("commit", env!("ANSC_COMMIT")),
        ("cargo features", env!("ANSC_CARGO_FEATURES")),
        ("LLVM", &llvm_version()),
        ("artifact format", &format),
        ("host", &host),
        ("processor", &cpu),
        ("processor features", if features.is_empty() { "none" } else { &features }),
    ];
    let lines: String = lines.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    format!("{}\n{lines}", line())
}
