//! The machine that code is generated for.
//!
//! A target names its features one by one, so that an artifact can say exactly what it needs: code
//! is generated for a base level of the architecture plus these features, and the processor's name
//! only tunes the choice of instructions.

use std::ffi::{CStr, c_int};
use std::sync::Once;

use ansc_runtime::manifest::{GPU_TRIPLE, TargetInfo, gpu_cpu};
use ansc_runtime::target::{X86_LEVELS, lacks};
use ansc_sketch::Machine;
use ansc_sketch::gpu::GENERATIONS;
use ansc_sketch::lowering::THREAD_BYTES;
use ansc_sketch::machine::Units;
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

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Arch {
    X86_64,
    Aarch64,
    /// NVIDIA GPUs, by PTX.
    Nvptx,
}

/// x86 features beyond the levels, where a processor has them and lets them be used.
const X86_EXTRA: &[&str] = &[
    "avx512vbmi",
    "avx512vnni",
    "avxvnni",
    "avx512bf16",
    "avx512fp16",
    "amx-tile",
    "amx-bf16",
    "amx-int8",
];

/// Features of 64-bit ARM beyond the base.
const ARM_EXTRA: &[&str] = &["dotprod", "fullfp16", "bf16", "i8mm"];

/// Sapphire Rapids and what came after it.
const AMX_SERVER: &[&str] = X86_EXTRA;

/// x86 processors by LLVM name: level (1 to 4) and features beyond it.
const X86_CPUS: &[(&str, usize, &[&str])] = &[
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
    ("cooperlake", 4, &["avx512vnni", "avx512bf16"]),
    ("icelake-client", 4, &["avx512vbmi", "avx512vnni"]),
    ("icelake-server", 4, &["avx512vbmi", "avx512vnni"]),
    ("tigerlake", 4, &["avx512vbmi", "avx512vnni"]),
    ("sapphirerapids", 4, AMX_SERVER),
    ("emeraldrapids", 4, AMX_SERVER),
    ("graniterapids", 4, AMX_SERVER),
    ("znver1", 3, &[]),
    ("znver2", 3, &[]),
    ("znver3", 3, &[]),
    ("znver4", 4, &["avx512vbmi", "avx512vnni", "avx512bf16"]),
    ("znver5", 4, &["avx512vbmi", "avx512vnni", "avxvnni", "avx512bf16"]),
];

/// 64-bit ARM processors by LLVM name, and how many of [`ARM_EXTRA`] each has.
const AARCH64_CPUS: &[(&str, usize)] = &[
    ("aarch64", 0),
    ("apple-m1", 2),
    ("apple-m2", 4),
    ("apple-m3", 4),
    ("apple-m4", 4),
    ("ampere1", 4),
    ("cortex-a53", 0),
    ("cortex-a57", 0),
    ("cortex-a72", 0),
    ("cortex-a76", 2),
    ("cortex-a78", 2),
    ("neoverse-n1", 2),
    ("neoverse-n2", 4),
    ("neoverse-v1", 4),
    ("neoverse-v2", 4),
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
        let arch = if triple.starts_with("aarch64") { Arch::Aarch64 } else { Arch::X86_64 };
        // The runtime refuses what may not be used, so it is the one to be asked.
        let usable = Target::known(arch).filter(|f| lacks(f).is_none());
        let features: Vec<String> = usable.map(str::to_owned).collect();
        Ok(match arch {
            Arch::Aarch64 => Target::aarch64("native", &tune, features),
            _ => Target::x86("native", &tune, features),
        })
    }

    /// The features that code generation knows to use, by LLVM's names.
    pub fn known(arch: Arch) -> impl Iterator<Item = &'static str> {
        let (levels, extra): (&[(&str, &[&str])], _) = match arch {
            Arch::X86_64 => (&X86_LEVELS, X86_EXTRA),
            Arch::Aarch64 => (&[], ARM_EXTRA),
            Arch::Nvptx => (&[], &[][..]),
        };
        levels.iter().flat_map(|(_, features)| *features).chain(extra).copied()
    }

    /// `native`, `x86-64-v3`, `aarch64`, or a processor by LLVM's name (`cascadelake`, `znver4`).
    pub fn parse(name: &str) -> Result<Target, CodegenError> {
        initialize();
        if name == "native" {
            return Target::native();
        }
        if let Some((cpu, level, extra)) = X86_CPUS.iter().find(|(cpu, ..)| *cpu == name) {
            let implied = X86_LEVELS.iter().take(*level - 1).flat_map(|(_, features)| *features);
            let features = implied.chain(*extra).map(|f| (*f).to_owned()).collect();
            return Ok(Target::x86(cpu, cpu, features));
        }
        if let Some((cpu, extra)) = AARCH64_CPUS.iter().find(|(cpu, _)| *cpu == name) {
            let tune = if *cpu == "aarch64" { "generic" } else { cpu };
            let features = ARM_EXTRA[..*extra].iter().map(|f| (*f).to_owned()).collect();
            return Ok(Target::aarch64(cpu, tune, features));
        }
        let x86 = X86_CPUS.iter().map(|(cpu, ..)| *cpu);
        let known: Vec<&str> = x86.chain(AARCH64_CPUS.iter().map(|(cpu, _)| *cpu)).collect();
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
            () if X86_LEVELS[2].1.iter().all(|f| has(f)) => (64, 32),
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

    fn aarch64(cpu: &str, tune: &str, mut features: Vec<String>) -> Target {
        features.push("neon".into());
        features.sort();
        Target {
            triple: "aarch64-unknown-linux-gnu".into(),
            arch: Arch::Aarch64,
            cpu: cpu.into(),
            tune: tune.into(),
            features,
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
        GENERATIONS.iter().map(|generation| generation.sm)
    }

    /// An NVIDIA GPU of compute capability `sm / 10`, as in 80 for an A100.
    pub fn cuda(sm: u32) -> Result<Target, CodegenError> {
        let name = gpu_cpu(sm);
        let Some(generation) = GENERATIONS.iter().find(|known| known.sm == sm) else {
            let known: Vec<String> = Target::sms().map(|sm| sm.to_string()).collect();
            let reason = format!("known compute capabilities are {}", known.join(", "));
            return Err(CodegenError::UnknownTarget { name, reason });
        };
        Ok(Target {
            triple: GPU_TRIPLE.into(),
            arch: Arch::Nvptx,
            tune: name.clone(),
            cpu: name,
            features: vec![format!("ptx{}", generation.ptx)],
            vector_bytes: THREAD_BYTES,
            vector_registers: 255,
            libm: false,
        })
    }

    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f == feature)
    }

    /// The facts that schedules for a CPU need.
    pub fn facts(&self) -> Machine {
        let dots = ["avxvnni", "avx512vnni", "dotprod", "i8mm"];
        let bytes = dots.into_iter().any(|f| self.has(f));
        let units = Units {
            amx_bf16: self.has("amx-bf16"),
            amx_int8: self.has("amx-int8"),
            mma: false,
            bytes,
            pairs: self.has("avx2") && !bytes,
            bf16: self.multiplies_bf16(),
        };
        Machine { units, ..Machine::new(self.vector_bytes, self.vector_registers) }
    }

    /// Whether vectors multiply pairs of `bf16` twice as fast as floats. Intel's processors have
    /// the instruction too, but it takes longer than widening does there.
    pub fn multiplies_bf16(&self) -> bool {
        match self.arch {
            Arch::X86_64 => self.has("avx512bf16") && self.tune.starts_with("znver"),
            Arch::Aarch64 => self.has("bf16"),
            Arch::Nvptx => false,
        }
    }

    /// Whether half floats are converted by single instructions.
    pub(crate) fn converts_f16(&self) -> bool {
        self.arch != Arch::X86_64 || self.has("f16c")
    }

    /// The description of this target that artifacts carry.
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

/// Sets the options that LLVM has for a whole process only.
///
/// Scheduling a second time, after registers are chosen, takes half of the compile time of large
/// unrolled kernels. It makes none of them faster on processors that reorder instructions
/// themselves. Choosing what loops count up takes a quarter of the time of most other kernels, and
/// we have chosen already (see `emit::address`). Before registers are chosen, LLVM compares each
/// access to memory with each other access that is written out next to it. With more accesses than
/// the limit set here, that takes four fifths of the time.
fn set_llvm_options(words: &[&CStr]) {
    let pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    // SAFETY: the pointers are to as many strings, which live during the call; LLVM copies them.
    // That happens once, before any other use of LLVM.
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
    fn processors_have_what_their_makers_say() {
        let has = |cpu: &str, feature: &str| Target::parse(cpu).unwrap().has(feature);
        assert!(has("sapphirerapids", "amx-int8") && has("graniterapids", "avx512fp16"));
        assert!(has("cooperlake", "avx512bf16") && !has("icelake-server", "avx512bf16"));
        assert!(has("znver4", "avx512bf16") && !has("znver4", "avxvnni"));
        assert!(has("znver5", "avxvnni") && !has("znver5", "avx512fp16"));
        assert!(has("apple-m1", "fullfp16") && !has("apple-m1", "i8mm"));
        assert!(has("neoverse-v1", "i8mm") && !has("cortex-a72", "dotprod"));
        let units = |cpu: &str| Target::parse(cpu).unwrap().facts().units;
        let dots = |cpu: &str| [units(cpu).bytes, units(cpu).pairs];
        assert_eq!(["alderlake", "znver4", "neoverse-n1"].map(dots), [[true, false]; 3]);
        assert_eq!(["haswell", "skylake-avx512"].map(dots), [[false, true]; 2]);
        assert_eq!(["x86-64-v2", "cortex-a72"].map(dots), [[false; 2]; 2]);
        assert_eq!(Target::parse("aarch64").unwrap().features, ["neon"]);
        let ordered = Target::parse("neoverse-n2").unwrap().features;
        assert!(ordered.is_sorted() && ordered.len() == 5, "{ordered:?}");
    }

    #[test]
    fn the_native_target_has_a_machine_and_what_may_be_used() {
        let native = Target::native().unwrap();
        assert!(native.machine().is_ok());
        for feature in Target::known(native.arch) {
            assert_eq!(native.has(feature), lacks(feature).is_none(), "{feature}");
        }
    }
}
