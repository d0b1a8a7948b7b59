//! The machine that code is generated for.
//!
//! A target names its features one by one, so that an artifact can say exactly what it needs: code is
//! generated for a base level of the architecture plus these features, and the processor's name only
//! tunes the choice of instructions.

use std::ffi::{CStr, c_int};
use std::sync::Once;

use ansc_runtime::manifest::TargetInfo;
use inkwell::OptimizationLevel;
use inkwell::targets::{
    CodeModel, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine, TargetTriple,
};

use crate::error::CodegenError;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    pub triple: String,
    pub arch: Arch,
    /// The name the user gave, or that of the machine at hand.
    pub cpu: String,
    /// The processor that instructions are scheduled for, by LLVM's name.
    pub tune: String,
    /// LLVM names of the features that the code may use, sorted.
    pub features: Vec<String>,
    /// Bytes of one vector register.
    pub vector_bytes: usize,
    /// Vector registers.
    pub vector_registers: usize,
    /// Whether the C library's mathematical functions can be called.
    pub libm: bool,
}

/// GPU generations by compute capability, and the least version of PTX that knows each.
const SMS: &[(u32, &str)] =
    &[(70, "ptx63"), (75, "ptx63"), (80, "ptx70"), (86, "ptx71"), (89, "ptx78"), (90, "ptx78")];

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Arch {
    X86_64,
    Aarch64,
    /// NVIDIA GPUs, by PTX.
    Nvptx,
}

const V2: &[&str] = &["sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"];
const V3: &[&str] = &["avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"];
const V4: &[&str] = &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"];
/// Beyond the levels, where a processor has them.
const EXTRA: &[&str] = &["avx512vnni", "avxvnni"];

/// x86 processors by LLVM name: level (2 to 4) and features beyond it.
const X86_CPUS: &[(&str, u32, &[&str])] = &[
    ("x86-64", 1, &[]),
    ("x86-64-v2", 2, &[]),
    ("x86-64-v3", 3, &[]),
    ("x86-64-v4", 4, &[]),
    ("nehalem", 2, &[]),
    ("westmere", 2, &[]),
    ("sandybridge", 2, &["avx"]),
    ("ivybridge", 2, &["avx", "f16c"]),
    ("haswell", 3, &[]),
    ("broadwell", 3, &[]),
    ("skylake", 3, &[]),
    ("alderlake", 3, &["avxvnni"]),
    ("raptorlake", 3, &["avxvnni"]),
    ("meteorlake", 3, &["avxvnni"]),
    ("skylake-avx512", 4, &[]),
    ("cascadelake", 4, &["avx512vnni"]),
    ("cooperlake", 4, &["avx512vnni"]),
    ("icelake-client", 4, &["avx512vnni"]),
    ("icelake-server", 4, &["avx512vnni"]),
    ("tigerlake", 4, &["avx512vnni"]),
    ("sapphirerapids", 4, &["avx512vnni", "avxvnni"]),
    ("emeraldrapids", 4, &["avx512vnni", "avxvnni"]),
    ("graniterapids", 4, &["avx512vnni", "avxvnni"]),
    ("znver1", 3, &[]),
    ("znver2", 3, &[]),
    ("znver3", 3, &[]),
    ("znver4", 4, &["avx512vnni"]),
    ("znver5", 4, &["avx512vnni", "avxvnni"]),
];

const AARCH64_CPUS: &[&str] = &[
    "aarch64",
    "apple-m1",
    "apple-m2",
    "apple-m3",
    "apple-m4",
    "ampere1",
    "cortex-a53",
    "cortex-a57",
    "cortex-a72",
    "cortex-a76",
    "cortex-a78",
    "neoverse-n1",
    "neoverse-n2",
    "neoverse-v1",
    "neoverse-v2",
];

/// The version of the LLVM that is linked in, as in `22.1.0`.
pub fn llvm_version() -> String {
    let (major, minor, patch) = inkwell::support::get_llvm_version();
    format!("{major}.{minor}.{patch}")
}

impl Target {
    /// The machine at hand, with every feature it has that code generation knows to use.
    pub fn native() -> Result<Target, CodegenError> {
        initialize();
        let triple = TargetMachine::get_default_triple().as_str().to_string_lossy().into_owned();
        let tune = TargetMachine::get_host_cpu_name().to_string();
        if triple.starts_with("aarch64") {
            return Ok(Target::aarch64("native", &tune));
        }
        let host = TargetMachine::get_host_cpu_features().to_string();
        let has: Vec<&str> = host.split(',').filter_map(|f| f.strip_prefix('+')).collect();
        let known = V2.iter().chain(V3).chain(V4).chain(EXTRA);
        let features = known.filter(|f| has.contains(f)).map(|f| (*f).to_owned()).collect();
        Ok(Target::x86("native", &tune, features))
    }

    /// `native`, `x86-64-v3`, `aarch64`, or a processor by LLVM's name (`cascadelake`, `znver4`).
    pub fn parse(name: &str) -> Result<Target, CodegenError> {
        initialize();
        if name == "native" {
            return Target::native();
        }
        if let Some((cpu, level, extra)) = X86_CPUS.iter().find(|(cpu, ..)| *cpu == name) {
            let levels = [(2, V2), (3, V3), (4, V4)];
            let implied = levels.iter().filter(|(l, _)| l <= level).flat_map(|(_, f)| f.iter());
            let features = implied.chain(extra.iter()).map(|f| (*f).to_owned()).collect();
            return Ok(Target::x86(cpu, cpu, features));
        }
        if let Some(cpu) = AARCH64_CPUS.iter().find(|cpu| **cpu == name) {
            return Ok(Target::aarch64(cpu, if *cpu == "aarch64" { "generic" } else { cpu }));
        }
        let known: Vec<&str> =
            X86_CPUS.iter().map(|(cpu, ..)| *cpu).chain(AARCH64_CPUS.iter().copied()).collect();
        Err(CodegenError::UnknownTarget {
            name: name.to_owned(),
            reason: format!("the known ones are native, {}", known.join(", ")),
        })
    }

    fn x86(cpu: &str, tune: &str, mut features: Vec<String>) -> Target {
        features.sort();
        features.dedup();
        let has = |f: &str| features.iter().any(|have| have == f);
        let (vector_bytes, vector_registers) = match () {
            () if V4.iter().all(|f| has(f)) => (64, 32),
            () if has("avx2") && has("fma") => (32, 16),
            () => (16, 16),
        };
        Target {
            triple: "x86_64-unknown-linux-gnu".into(),
            arch: Arch::X86_64,
            cpu: cpu.into(),
            tune: tune.into(),
            features,
            vector_bytes,
            vector_registers,
            libm: true,
        }
    }

    fn aarch64(cpu: &str, tune: &str) -> Target {
        Target {
            triple: "aarch64-unknown-linux-gnu".into(),
            arch: Arch::Aarch64,
            cpu: cpu.into(),
            tune: tune.into(),
            features: vec!["neon".into()],
            vector_bytes: 16,
            vector_registers: 32,
            libm: true,
        }
    }

    /// The compute capability, times ten, of a GPU.
    pub fn sm(&self) -> Option<u32> {
        self.cpu.strip_prefix("sm_").and_then(|sm| sm.parse().ok())
    }

    /// The generations of GPUs that there is code for, by compute capability times ten.
    pub fn sms() -> impl Iterator<Item = u32> {
        SMS.iter().map(|(sm, _)| *sm)
    }

    /// An NVIDIA GPU of compute capability `sm / 10`, as in 80 for an A100.
    pub fn cuda(sm: u32) -> Result<Target, CodegenError> {
        let name = format!("sm_{sm}");
        let Some((_, ptx)) = SMS.iter().find(|(known, _)| *known == sm) else {
            let known: Vec<String> = Target::sms().map(|sm| sm.to_string()).collect();
            let reason = format!("known compute capabilities are {}", known.join(", "));
            return Err(CodegenError::UnknownTarget { name, reason });
        };
        Ok(Target {
            triple: "nvptx64-nvidia-cuda".into(),
            arch: Arch::Nvptx,
            tune: name.clone(),
            cpu: name,
            features: vec![(*ptx).into()],
            vector_bytes: 16,
            vector_registers: 255,
            libm: false,
        })
    }

    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f == feature)
    }

    /// Whether half floats are converted by single instructions.
    pub(crate) fn converts_f16(&self) -> bool {
        self.arch != Arch::X86_64 || self.has("f16c")
    }

    /// What an artifact for this target says of it.
    pub fn info(&self) -> TargetInfo {
        TargetInfo {
            triple: self.triple.clone(),
            cpu: self.cpu.clone(),
            features: self.features.clone(),
        }
    }

    /// LLVM's processor name for the base level that the features are added to.
    pub(crate) fn base_cpu(&self) -> &str {
        match self.arch {
            Arch::Nvptx => &self.cpu,
            Arch::X86_64 => "x86-64",
            Arch::Aarch64 => "generic",
        }
    }

    /// `+avx,+avx2`
    pub(crate) fn feature_string(&self) -> String {
        self.features.iter().map(|f| format!("+{f}")).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn machine(&self) -> Result<TargetMachine, CodegenError> {
        initialize();
        let unknown =
            |reason: String| CodegenError::UnknownTarget { name: self.cpu.clone(), reason };
        let triple = TargetTriple::create(&self.triple);
        LlvmTarget::from_triple(&triple)
            .map_err(|e| unknown(e.to_string()))?
            .create_target_machine(
                &triple,
                self.base_cpu(),
                &self.feature_string(),
                OptimizationLevel::Aggressive,
                RelocMode::PIC,
                CodeModel::Default,
            )
            .ok_or_else(|| unknown("LLVM has no such machine".into()))
    }
}

fn initialize() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let config = InitializationConfig { disassembler: false, ..Default::default() };
        LlvmTarget::initialize_x86(&config);
        LlvmTarget::initialize_aarch64(&config);
        LlvmTarget::initialize_nvptx(&config);
        set_llvm_options(&[
            c"ansc",
            c"-disable-post-ra",
            c"-disable-lsr",
            c"-dag-maps-huge-region=128",
        ]);
    });
}

/// What LLVM lets be set for a whole process only. Scheduling a second time, after registers are
/// chosen, takes half of the time that large unrolled kernels compile, and makes none of them faster
/// on processors that reorder instructions themselves. Choosing what loops count up takes a quarter of
/// the time of most others, and we have chosen already (see `emit::address`). Before registers are chosen,
/// each access to memory is compared with each other one that is written out next to it: beyond so many,
/// that takes four fifths of the time.
fn set_llvm_options(words: &[&CStr]) {
    let pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    // SAFETY: the pointers are to as many strings, which live during the call; LLVM copies them. That
    // happens once, before any other use of LLVM.
    unsafe {
        inkwell::llvm_sys::support::LLVMParseCommandLineOptions(
            pointers.len() as c_int,
            pointers.as_ptr(),
            std::ptr::null(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_contain_one_another() {
        let [v2, v3, v4] =
            ["x86-64-v2", "x86-64-v3", "x86-64-v4"].map(|name| Target::parse(name).unwrap());
        assert!(v2.features.iter().all(|f| v3.has(f)));
        assert!(v3.features.iter().all(|f| v4.has(f)));
        assert_eq!([&v2, &v3, &v4].map(|t| t.vector_bytes), [16, 32, 64]);
        assert!(!v2.converts_f16() && v3.converts_f16());
        assert!(Target::parse("cascadelake").unwrap().has("avx512vnni"));
    }

    #[test]
    fn unknown_names_are_refused() {
        let error = Target::parse("pentium-pro").unwrap_err().to_string();
        assert!(error.contains("pentium-pro") && error.contains("x86-64-v3"), "{error}");
    }

    #[test]
    fn the_native_target_has_a_machine() {
        assert!(Target::native().unwrap().machine().is_ok());
    }
}
