//! Can this machine run the code of an artifact?
//!
//! In: the target that the compiler wrote down, in LLVM's names. Out: what is missing here. A
//! feature of an unknown name counts as missing: better a refusal than an illegal instruction.
//! Where the kernel must first be asked for permission, it is asked here.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod permission;
mod why;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use why::{Missing, Why, by_reason};

use crate::driver::{self, CudaError};
use crate::manifest::TargetInfo;

/// Why the machine cannot run an artifact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Compiled for another architecture or operating system.
    #[error("is compiled for `{needed}`, but this machine is {arch}-{os}", arch = std::env::consts::ARCH, os = std::env::consts::OS)]
    Machine {
        /// The target triple of the artifact.
        needed: String,
    },
    /// Compiled for a GPU, which is not there or does not work.
    #[error("is compiled for an NVIDIA GPU ({needed}), but {source}")]
    Gpu {
        /// The generations of GPUs that the code is for.
        needed: String,
        /// The driver's own error, or that there is no driver.
        source: CudaError,
    },
    /// Compiled for newer GPUs.
    #[error(
        "is compiled for an NVIDIA GPU ({needed}), but the {device} is sm_{sm}; compile with --sm {sm}"
    )]
    OldGpu {
        /// The generations of GPUs that the code is for.
        needed: String,
        /// The name of the GPU at hand.
        device: String,
        /// Its generation.
        sm: u32,
    },
    /// The code uses features that it may not use here.
    #[error(
        "is compiled for the CPU `{cpu}`, but this one lacks {}; compile with --target-cpu {}",
        why::listed(missing),
        base()
    )]
    Features {
        /// The processor that it was compiled for.
        cpu: String,
        /// The features, and why they may not be used.
        missing: Vec<Missing>,
    },
}

/// Checks that this machine can run code for `target`.
pub fn check(target: &TargetInfo) -> Result<(), TargetError> {
    if target.gpus().is_some() {
        let needed = target.cpu.clone();
        return driver::open().map(drop).map_err(|source| TargetError::Gpu { needed, source });
    }
    if !is_this_machine(&target.triple) {
        return Err(TargetError::Machine { needed: target.triple.clone() });
    }
    let needed = target.features.iter().filter(|f| !f.starts_with('-'));
    let missing = missing(needed.map(|f| f.strip_prefix('+').unwrap_or(f)));
    if missing.is_empty() {
        return Ok(());
    }
    Err(TargetError::Features { cpu: target.cpu.clone(), missing })
}

/// Those of the features, by LLVM's names, that code may not use here.
pub fn missing<'a>(features: impl IntoIterator<Item = &'a str>) -> Vec<Missing> {
    let lacks = |f: &str| lacks(f).map(|why| Missing { feature: f.to_owned(), why });
    features.into_iter().filter_map(lacks).collect()
}

/// Why code may not use a feature here, by LLVM's name; `None` if it may. For features of AMX this
/// asks the kernel for permission, which the whole process then has.
#[cfg(target_arch = "x86_64")]
pub fn lacks(feature: &str) -> Option<Why> {
    x86::Machine::here().lacks(feature, permission::ask)
}

/// Why code may not use a feature here, by LLVM's name; `None` if it may.
#[cfg(target_arch = "aarch64")]
pub fn lacks(feature: &str) -> Option<Why> {
    aarch64::lacks(feature)
}

/// No artifact is for another architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn lacks(_feature: &str) -> Option<Why> {
    Some(Why::Unknown)
}

/// The levels of x86 processors above `x86-64`, and the features that each adds to the one before,
/// by LLVM's names.
pub const X86_LEVELS: [(&str, &[&str]); 3] = [
    ("x86-64-v2", &["sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"]),
    ("x86-64-v3", &["avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"]),
    ("x86-64-v4", &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
];

/// The highest level whose code runs here.
fn base() -> &'static str {
    if cfg!(not(target_arch = "x86_64")) {
        return std::env::consts::ARCH;
    }
    let runs = |features: &[&str]| features.iter().all(|f| lacks(f).is_none());
    let levels = X86_LEVELS.iter().take_while(|(_, features)| runs(features));
    levels.last().map_or("x86-64", |(name, _)| name)
}

fn is_this_machine(triple: &str) -> bool {
    let mut parts = triple.split('-');
    let arch = parts.next() == Some(std::env::consts::ARCH);
    arch && parts.any(|part| part == std::env::consts::OS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(triple: &str, features: &[&str]) -> TargetInfo {
        let features = features.iter().map(|f| (*f).to_owned()).collect();
        TargetInfo { triple: triple.to_owned(), cpu: "test".to_owned(), features }
    }

    #[test]
    fn other_machines_are_refused() {
        let here = format!("{}-unknown-{}-gnu", std::env::consts::ARCH, std::env::consts::OS);
        assert_eq!(check(&target(&here, &[])), Ok(()));
        for other in ["riscv64-unknown-linux-gnu", "x86_64-pc-windows-msvc", "aarch64", ""] {
            let error = check(&target(other, &[])).unwrap_err();
            assert_eq!(error, TargetError::Machine { needed: other.to_owned() });
        }
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn missing_and_unknown_features_are_named() {
        let triple = "x86_64-unknown-linux-gnu";
        assert_eq!(check(&target(triple, &["+sse2", "cx8", "-warpdrive"])), Ok(()));
        let error = check(&target(triple, &["sse2", "+warpdrive", "flux"])).unwrap_err();
        let TargetError::Features { missing, .. } = &error else { panic!("{error}") };
        let unknown = |f: &str| Missing { feature: f.to_owned(), why: Why::Unknown };
        assert_eq!(missing, &[unknown("warpdrive"), unknown("flux")]);
        let text = error.to_string();
        assert!(text.contains("lacks warpdrive, flux (this runtime knows no such"), "{text}");
        assert!(text.contains("compile with --target-cpu x86-64"), "{text}");
    }

    /// Tiles may be used exactly where the kernel, asked here once more, has nothing against it.
    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn permission_is_had_where_tiles_are_listed() {
        const ARCH_GET_XCOMP_PERM: libc::c_long = 0x1022;
        let tiles = lacks("amx-tile");
        let mut states = 0u64;
        // SAFETY: the request writes 8 bytes, which `states` has.
        let done =
            unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &raw mut states) };
        let permitted = done == 0 && states >> 18 & 1 == 1;
        assert_eq!(tiles.is_none(), permitted, "{tiles:?}");
    }
}
