//! `ansc --version` says which compiler this is, for a report of a defect.

use ansc_codegen::Target;
use ansc_codegen::target::{Arch, llvm_version};
use ansc_runtime::manifest::FORMAT_VERSION;
use ansc_runtime::target::{self, Why};

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
    format!("{}\n{lines}{}", line(), off())
}

/// A line for each reason why code for this machine does without features that it could use
/// elsewhere.
///
/// ```text
/// processor features off: amx-tile amx-bf16 amx-int8 (CPUID does not announce this)
/// ```
fn off() -> String {
    let arch = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };
    let missing = target::missing(Target::known(arch));
    let line = |(why, features): (Why, Vec<&str>)| {
        format!("processor features off: {} ({why})\n", features.join(" "))
    };
    target::by_reason(&missing).into_iter().map(line).collect()
}
