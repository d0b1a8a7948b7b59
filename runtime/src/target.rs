//! Can this machine run the code of an artifact?
//!
//! In: the target that the compiler wrote down, in LLVM's names. Out: what is missing here. A
//! feature of an unknown name counts as missing: better a refusal than an illegal instruction.

use crate::cuda::{self, CudaError};
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
        /// What the driver says, or that there is none.
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
    /// The processor lacks features that the code uses.
    #[error("is compiled for the CPU `{cpu}`, but this one lacks {}; compile with another --target-cpu", missing.join(", "))]
    Features {
        /// The processor that it was compiled for.
        cpu: String,
        /// LLVM's names of the missing features.
        missing: Vec<String>,
    },
}

/// Checks that this machine can run code for `target`.
pub fn check(target: &TargetInfo) -> Result<(), TargetError> {
    if is_gpu(target) {
        let needed = target.cpu.clone();
        return cuda::open().map(drop).map_err(|source| TargetError::Gpu { needed, source });
    }
    if !is_this_machine(&target.triple) {
        return Err(TargetError::Machine { needed: target.triple.clone() });
    }
    let missing: Vec<String> = target
        .features
        .iter()
        .filter(|f| !f.starts_with('-'))
        .map(|f| f.strip_prefix('+').unwrap_or(f))
        .filter(|f| has_feature(f) != Some(true))
        .map(str::to_owned)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(TargetError::Features { cpu: target.cpu.clone(), missing })
}

/// Whether the code is for a GPU.
pub(crate) fn is_gpu(target: &TargetInfo) -> bool {
    target.triple.starts_with("nvptx64")
}

fn is_this_machine(triple: &str) -> bool {
    let mut parts = triple.split('-');
    let arch = parts.next() == Some(std::env::consts::ARCH);
    arch && parts.any(|part| part == std::env::consts::OS)
}

/// Features that code for tensors never depends on: they concern the operating system, memory
/// types or transactions. A list of the host's features by LLVM holds them too.
#[cfg(target_arch = "x86_64")]
const IRRELEVANT: &[&str] = &[
    "cldemote",
    "clflushopt",
    "clwb",
    "clzero",
    "enqcmd",
    "fsgsbase",
    "hreset",
    "invpcid",
    "kl",
    "movdir64b",
    "movdiri",
    "mwaitx",
    "pconfig",
    "pku",
    "prefetchi",
    "prfchw",
    "ptwrite",
    "rdpid",
    "rdpru",
    "rdrnd",
    "rdseed",
    "rtm",
    "sahf",
    "serialize",
    "sgx",
    "shstk",
    "tsxldtrk",
    "uintr",
    "usermsr",
    "waitpkg",
    "wbnoinvd",
    "widekl",
    "xsave",
    "xsavec",
    "xsaveopt",
    "xsaves",
];

/// Whether the processor has a feature, by its LLVM name; `None` if the name is unknown.
#[cfg(target_arch = "x86_64")]
pub fn has_feature(name: &str) -> Option<bool> {
    macro_rules! detected {
        ($($llvm:literal => $rust:tt),* $(,)?) => {
            match name {
                $($llvm => Some(std::arch::is_x86_feature_detected!($rust)),)*
                "64bit" | "cmov" | "cx8" | "fxsr" | "mmx" | "x87" => Some(true),
                _ => IRRELEVANT.contains(&name).then_some(true),
            }
        };
    }
    detected! {
        "sse" => "sse", "sse2" => "sse2", "sse3" => "sse3", "ssse3" => "ssse3",
        "sse4.1" => "sse4.1", "sse4.2" => "sse4.2", "crc32" => "sse4.2", "sse4a" => "sse4a",
        "avx" => "avx", "avx2" => "avx2", "fma" => "fma", "f16c" => "f16c",
        "bmi" => "bmi1", "bmi2" => "bmi2", "lzcnt" => "lzcnt", "popcnt" => "popcnt",
        "movbe" => "movbe", "adx" => "adx", "cx16" => "cmpxchg16b", "tbm" => "tbm",
        "aes" => "aes", "pclmul" => "pclmulqdq", "sha" => "sha", "gfni" => "gfni",
        "vaes" => "vaes", "vpclmulqdq" => "vpclmulqdq",
        "avx512f" => "avx512f", "evex512" => "avx512f", "avx512cd" => "avx512cd",
        "avx512bw" => "avx512bw", "avx512dq" => "avx512dq", "avx512vl" => "avx512vl",
        "avx512ifma" => "avx512ifma", "avx512vbmi" => "avx512vbmi",
        "avx512vbmi2" => "avx512vbmi2", "avx512vnni" => "avx512vnni",
        "avx512bitalg" => "avx512bitalg", "avx512vpopcntdq" => "avx512vpopcntdq",
        "avx512bf16" => "avx512bf16", "avx512fp16" => "avx512fp16",
        "avx512vp2intersect" => "avx512vp2intersect",
        "avxvnni" => "avxvnni", "avxifma" => "avxifma", "avxneconvert" => "avxneconvert",
        "avxvnniint8" => "avxvnniint8", "avxvnniint16" => "avxvnniint16",
    }
}

/// Whether the processor has a feature, by its LLVM name; `None` if the name is unknown.
#[cfg(target_arch = "aarch64")]
pub fn has_feature(name: &str) -> Option<bool> {
    macro_rules! detected {
        ($($llvm:literal => $rust:tt),* $(,)?) => {
            match name {
                $($llvm => Some(std::arch::is_aarch64_feature_detected!($rust)),)*
                "v8a" => Some(true),
                _ => None,
            }
        };
    }
    detected! {
        "neon" => "neon", "fp-armv8" => "fp", "fullfp16" => "fp16", "fp16fml" => "fhm",
        "bf16" => "bf16", "i8mm" => "i8mm", "dotprod" => "dotprod", "rdm" => "rdm",
        "lse" => "lse", "crc" => "crc", "aes" => "aes", "sha2" => "sha2", "sha3" => "sha3",
        "complxnum" => "fcma", "jsconv" => "jsconv", "rcpc" => "rcpc",
        "sve" => "sve", "sve2" => "sve2",
    }
}

/// Whether the processor has a feature, by its LLVM name; `None` if the name is unknown.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn has_feature(_name: &str) -> Option<bool> {
    None
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
        assert_eq!(missing, &["warpdrive", "flux"]);
        assert!(error.to_string().contains("lacks warpdrive, flux"));
    }

    /// The kernel's own view of the processor is the independent reference.
    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn detection_agrees_with_the_kernel() {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags: Vec<&str> =
            info.lines().find(|l| l.starts_with("flags")).unwrap().split_whitespace().collect();
        for name in ["sse2", "ssse3", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "gfni"] {
            assert_eq!(has_feature(name), Some(flags.contains(&name)), "{name}");
        }
    }
}
