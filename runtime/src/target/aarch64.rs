//! Features of 64-bit ARM processors, as the operating system tells of them.

use super::why::Why;

/// Why code may not use `feature`, by LLVM's name.
pub(super) fn lacks(feature: &str) -> Option<Why> {
    macro_rules! detected {
        ($($llvm:literal => $rust:tt),* $(,)?) => {
            match feature {
                $($llvm => std::arch::is_aarch64_feature_detected!($rust),)*
                "v8a" => true,
                _ => return Some(Why::Unknown),
            }
        };
    }
    let has = detected! {
        "neon" => "neon", "fp-armv8" => "fp", "fullfp16" => "fp16", "fp16fml" => "fhm",
        "bf16" => "bf16", "i8mm" => "i8mm", "dotprod" => "dotprod", "rdm" => "rdm",
        "lse" => "lse", "crc" => "crc", "aes" => "aes", "sha2" => "sha2", "sha3" => "sha3",
        "complxnum" => "fcma", "jsconv" => "jsconv", "rcpc" => "rcpc",
        "sve" => "sve", "sve2" => "sve2",
    };
    (!has).then_some(Why::Processor)
}
