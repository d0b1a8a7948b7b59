//! Features of x86 processors, from CPUID and from the states that the operating system enables.
//!
//! In: a feature by LLVM's name, and a [`Machine`]. Out: why code may not use it, if it may not.
//! The processor's name plays no part: virtual machines hide features of the processor that they
//! name.

use std::sync::OnceLock;

use super::why::Why;

/// A register of a leaf of CPUID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    /// Leaf 1.
    Ecx1,
    Edx1,
    /// Leaf 7, subleaf 0.
    Ebx7,
    Ecx7,
    Edx7,
    /// Leaf 7, subleaf 1.
    Eax71,
    Edx71,
    /// Leaf 0x8000_0001.
    EcxExtended,
}

const WORDS: usize = 8;

/// The answers of CPUID and XGETBV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    words: [u32; WORDS],
    /// States that the operating system saves, from XCR0; none where it does not use XSAVE.
    states: u64,
}

/// Registers that features work on, beyond those that each process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Always,
    Ymm,
    Zmm,
    Tiles,
}

impl State {
    /// Bits of XCR0 that must be set.
    fn bits(self) -> u64 {
        match self {
            State::Always => 0,
            State::Ymm => 0b110,
            State::Zmm => 0b1110_0110,
            State::Tiles => 0b11 << 17,
        }
    }

    /// The feature that stands for the registers: without it no other one with them works.
    fn feature(self) -> Option<&'static str> {
        match self {
            State::Always => None,
            State::Ymm => Some("avx"),
            State::Zmm => Some("avx512f"),
            State::Tiles => Some("amx-tile"),
        }
    }
}

/// Feature, the bit that announces it, the registers.
const FEATURES: &[(&str, Word, u32, State)] = {
    use State::*;
    use Word::*;
    &[
        ("sse", Edx1, 25, Always),
        ("sse2", Edx1, 26, Always),
        ("sse3", Ecx1, 0, Always),
        ("pclmul", Ecx1, 1, Always),
        ("ssse3", Ecx1, 9, Always),
        ("fma", Ecx1, 12, Ymm),
        ("cx16", Ecx1, 13, Always),
        ("sse4.1", Ecx1, 19, Always),
        ("sse4.2", Ecx1, 20, Always),
        ("crc32", Ecx1, 20, Always),
        ("movbe", Ecx1, 22, Always),
        ("popcnt", Ecx1, 23, Always),
        ("aes", Ecx1, 25, Always),
        ("avx", Ecx1, 28, Ymm),
        ("f16c", Ecx1, 29, Ymm),
        ("bmi", Ebx7, 3, Always),
        ("avx2", Ebx7, 5, Ymm),
        ("bmi2", Ebx7, 8, Always),
        ("avx512f", Ebx7, 16, Zmm),
        ("evex512", Ebx7, 16, Zmm),
        ("avx512dq", Ebx7, 17, Zmm),
        ("adx", Ebx7, 19, Always),
        ("avx512ifma", Ebx7, 21, Zmm),
        ("avx512cd", Ebx7, 28, Zmm),
        ("sha", Ebx7, 29, Always),
        ("avx512bw", Ebx7, 30, Zmm),
        ("avx512vl", Ebx7, 31, Zmm),
        ("avx512vbmi", Ecx7, 1, Zmm),
        ("avx512vbmi2", Ecx7, 6, Zmm),
        ("gfni", Ecx7, 8, Always),
        ("vaes", Ecx7, 9, Ymm),
        ("vpclmulqdq", Ecx7, 10, Ymm),
        ("avx512vnni", Ecx7, 11, Zmm),
        ("avx512bitalg", Ecx7, 12, Zmm),
        ("avx512vpopcntdq", Ecx7, 14, Zmm),
        ("avx512vp2intersect", Edx7, 8, Zmm),
        ("amx-bf16", Edx7, 22, Tiles),
        ("avx512fp16", Edx7, 23, Zmm),
        ("amx-tile", Edx7, 24, Tiles),
        ("amx-int8", Edx7, 25, Tiles),
        ("avxvnni", Eax71, 4, Ymm),
        ("avx512bf16", Eax71, 5, Zmm),
        ("amx-fp16", Eax71, 21, Tiles),
        ("avxifma", Eax71, 23, Ymm),
        ("avxvnniint8", Edx71, 4, Ymm),
        ("avxneconvert", Edx71, 5, Ymm),
        ("amx-complex", Edx71, 8, Tiles),
        ("avxvnniint16", Edx71, 10, Ymm),
        ("lzcnt", EcxExtended, 5, Always),
        ("sse4a", EcxExtended, 6, Always),
        ("tbm", EcxExtended, 21, Always),
    ]
};

/// Every processor of 64 bits has these.
const BASE: &[&str] = &["64bit", "cmov", "cx8", "fxsr", "mmx", "x87"];

/// Features that code for tensors never depends on: they concern the operating system, memory
/// types or transactions. A list of the host's features by LLVM holds them too.
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

impl Machine {
    /// This one.
    pub(super) fn here() -> &'static Machine {
        static HERE: OnceLock<Machine> = OnceLock::new();
        HERE.get_or_init(Machine::read)
    }

    fn read() -> Machine {
        use std::arch::x86_64::CpuidResult;
        let none = CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
        let (basic, extended) = (cpuid(0, 0).eax, cpuid(0x8000_0000, 0).eax);
        let one = cpuid(1, 0);
        let seven = if basic >= 7 { cpuid(7, 0) } else { none };
        let seven_one = if basic >= 7 && seven.eax >= 1 { cpuid(7, 1) } else { none };
        let more = if extended > 0x8000_0000 { cpuid(0x8000_0001, 0) } else { none };
        let mut machine = Machine::default();
        let words = [
            (Word::Ecx1, one.ecx),
            (Word::Edx1, one.edx),
            (Word::Ebx7, seven.ebx),
            (Word::Ecx7, seven.ecx),
            (Word::Edx7, seven.edx),
            (Word::Eax71, seven_one.eax),
            (Word::Edx71, seven_one.edx),
            (Word::EcxExtended, more.ecx),
        ];
        words.iter().for_each(|(word, value)| machine.words[*word as usize] = *value);
        // Without this bit (OSXSAVE) the instruction is illegal.
        machine.states = if one.ecx >> 27 & 1 == 1 { xcr0() } else { 0 };
        machine
    }

    fn announces(&self, word: Word, bit: u32) -> bool {
        self.words[word as usize] >> bit & 1 == 1
    }

    /// Why code may not use `feature`. If all else is well and it works on tiles, `permission` asks
    /// the kernel.
    pub(super) fn lacks(
        &self,
        feature: &str,
        permission: impl FnOnce() -> Result<(), i32>,
    ) -> Option<Why> {
        if BASE.contains(&feature) || IRRELEVANT.contains(&feature) {
            return None;
        }
        let Some((_, word, bit, state)) = find(feature) else { return Some(Why::Unknown) };
        let beneath = state.feature().and_then(find);
        if ![Some((feature, word, bit, state)), beneath]
            .iter()
            .flatten()
            .all(|&(_, word, bit, _)| self.announces(word, bit))
        {
            return Some(Why::Processor);
        }
        if self.states & state.bits() != state.bits() {
            return Some(Why::System);
        }
        match state {
            State::Tiles => permission().err().map(|errno| Why::Permission { errno }),
            _ => None,
        }
    }
}

fn find(feature: &str) -> Option<(&'static str, Word, u32, State)> {
    FEATURES.iter().find(|(name, ..)| *name == feature).copied()
}

fn cpuid(leaf: u32, subleaf: u32) -> std::arch::x86_64::CpuidResult {
    #[allow(unused_unsafe, reason = "the function is safe from Rust 1.94 on")]
    // SAFETY: every processor of 64 bits has the instruction.
    unsafe {
        std::arch::x86_64::__cpuid_count(leaf, subleaf)
    }
}

/// Needs OSXSAVE.
fn xcr0() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller has seen OSXSAVE, and register 0 exists wherever the instruction does.
    unsafe {
        std::arch::asm!(
            "xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags)
        );
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::State::{Tiles, Ymm, Zmm};
    use super::*;

    /// A machine that announces these features, under an operating system that enables these
    /// states.
    fn machine(features: &[&str], states: &[State]) -> Machine {
        let mut machine = Machine::default();
        for feature in features {
            let (_, word, bit, _) = find(feature).unwrap();
            machine.words[word as usize] |= 1 << bit;
        }
        machine.states = states.iter().map(|state| state.bits()).fold(0, |all, bits| all | bits);
        machine
    }

    fn granted() -> Result<(), i32> {
        Ok(())
    }

    fn unasked() -> Result<(), i32> {
        panic!("there is nothing to ask for")
    }

    #[test]
    fn a_feature_needs_its_bit() {
        let old = machine(&["sse4.2", "popcnt"], &[]);
        assert_eq!(old.lacks("sse4.2", unasked), None);
        assert_eq!(old.lacks("avx", unasked), Some(Why::Processor));
        assert_eq!(old.lacks("cx8", unasked), None, "every processor has it");
        assert_eq!(old.lacks("warpdrive", unasked), Some(Why::Unknown));
    }

    #[test]
    fn vectors_need_their_registers() {
        let all = ["avx", "avx2", "fma", "avx512f", "avx512bf16", "avx512fp16"];
        let without = machine(&all, &[]);
        assert_eq!(without.lacks("avx2", unasked), Some(Why::System));
        let half = machine(&all, &[Ymm]);
        assert_eq!(half.lacks("fma", unasked), None);
        assert_eq!(half.lacks("avx512fp16", unasked), Some(Why::System));
        let full = machine(&all, &[Ymm, Zmm]);
        assert_eq!(full.lacks("avx512fp16", unasked), None);
        assert_eq!(full.lacks("avx512bf16", unasked), None);
        // A virtual machine that hides AVX-512 may forget what builds on it.
        let hidden = machine(&["avx", "avx512fp16"], &[Ymm, Zmm]);
        assert_eq!(hidden.lacks("avx512fp16", unasked), Some(Why::Processor));
    }

    #[test]
    fn tiles_need_permission_last_of_all() {
        let refused = || Err(libc::ENOSPC);
        let all = ["amx-tile", "amx-bf16"];
        let bare = machine(&["amx-bf16"], &[Tiles]);
        assert_eq!(bare.lacks("amx-bf16", unasked), Some(Why::Processor), "amx-tile is hidden");
        assert_eq!(machine(&all, &[Zmm]).lacks("amx-bf16", unasked), Some(Why::System));
        let full = machine(&all, &[Zmm, Tiles]);
        assert_eq!(full.lacks("amx-bf16", granted), None);
        assert_eq!(full.lacks("amx-int8", unasked), Some(Why::Processor));
        let errno = libc::ENOSPC;
        assert_eq!(full.lacks("amx-tile", refused), Some(Why::Permission { errno }));
    }

    #[test]
    fn no_feature_has_two_rows() {
        for (i, (name, ..)) in FEATURES.iter().enumerate() {
            assert!(FEATURES[..i].iter().all(|(other, ..)| other != name), "{name}");
        }
    }

    /// The standard library's view of the processor is the independent reference.
    #[test]
    fn bits_agree_with_the_standard_library() {
        macro_rules! agree {
            ($($llvm:literal $rust:tt),* $(,)?) => {$(
                let here = Machine::here().lacks($llvm, granted).is_none();
                assert_eq!(here, std::arch::is_x86_feature_detected!($rust), $llvm);
            )*};
        }
        agree!(
            "sse3" "sse3", "pclmul" "pclmulqdq", "ssse3" "ssse3", "fma" "fma", "cx16" "cmpxchg16b",
            "sse4.1" "sse4.1", "sse4.2" "sse4.2", "movbe" "movbe", "popcnt" "popcnt", "aes" "aes",
            "avx" "avx", "f16c" "f16c", "bmi" "bmi1", "avx2" "avx2", "bmi2" "bmi2", "adx" "adx",
            "sha" "sha", "gfni" "gfni", "vaes" "vaes", "vpclmulqdq" "vpclmulqdq",
            "avx512f" "avx512f", "avx512dq" "avx512dq", "avx512ifma" "avx512ifma",
            "avx512cd" "avx512cd", "avx512bw" "avx512bw", "avx512vl" "avx512vl",
            "avx512vbmi" "avx512vbmi", "avx512vbmi2" "avx512vbmi2", "avx512vnni" "avx512vnni",
            "avx512bitalg" "avx512bitalg", "avx512vpopcntdq" "avx512vpopcntdq",
            "avx512vp2intersect" "avx512vp2intersect", "avx512fp16" "avx512fp16",
            "avxvnni" "avxvnni", "avx512bf16" "avx512bf16", "avxifma" "avxifma",
            "avxvnniint8" "avxvnniint8", "avxneconvert" "avxneconvert",
            "avxvnniint16" "avxvnniint16", "lzcnt" "lzcnt", "sse4a" "sse4a", "tbm" "tbm",
        );
    }

    /// The kernel's own view of the processor.
    #[test]
    #[cfg(target_os = "linux")]
    fn bits_agree_with_the_kernel() {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags: Vec<&str> =
            info.lines().find(|l| l.starts_with("flags")).unwrap().split_whitespace().collect();
        let named = [
            ("avx2", "avx2"),
            ("avx512f", "avx512f"),
            ("avx512fp16", "avx512_fp16"),
            ("avx512bf16", "avx512_bf16"),
            ("avxvnni", "avx_vnni"),
            ("amx-tile", "amx_tile"),
            ("amx-bf16", "amx_bf16"),
            ("amx-int8", "amx_int8"),
        ];
        for (name, flag) in named {
            let lacks = Machine::here().lacks(name, granted);
            assert_eq!(lacks.is_none(), flags.contains(&flag), "{name}: {lacks:?}");
        }
    }
}
