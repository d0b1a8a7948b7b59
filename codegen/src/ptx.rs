//! GPU programs to PTX, the assembly that the driver of a GPU takes.
//!
//! ```text
//! kernel, grid 64, block 32   ->   .visible .entry k_0(.param .u64 .ptr .global k_0_param_0, ..) .maxntid 32 { .. }
//! ```

use std::time::{Duration, Instant};

use ansc_graph::TensorType;
use ansc_runtime::gpu::GpuLaunch;
use ansc_sketch::Scope;
use ansc_sketch::gpu::{GpuProgram, Kernel};
use inkwell::context::Context;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::FileType;
use rayon::prelude::*;

use crate::emit::gpu::{self, GpuCode};
use crate::error::CodegenError;
use crate::target::Target;

/// The code of one GPU program.
#[derive(Clone, Debug)]
pub struct Ptx {
    /// To be launched in this order, all with the same arguments: parameters, then workspace.
    pub launches: Vec<GpuLaunch>,
    /// Buffers that the caller provides after the parameters.
    pub workspace: Vec<TensorType>,
    pub text: String,
    /// The time that it took, on one thread.
    pub spent: Duration,
}

/// After the schedule's decisions: accumulators become registers, and what unrolling repeated is
/// done once.
const PASSES: &str = "function(sroa,early-cse<memssa>,loop-mssa(licm),\
    instcombine<no-verify-fixpoint>,early-cse<memssa>,simplifycfg)";

/// Compiles one program for one generation of GPUs.
pub fn compile_ptx(gpu: &GpuProgram, symbol: &str, target: &Target) -> Result<Ptx, CodegenError> {
    let start = Instant::now();
    let context = Context::create();
    let machine = target.machine()?;
    let GpuCode { ir, symbols, workspace } = gpu::emit(&context, gpu, symbol, target)?;
    let error = |stage, message: String| CodegenError::Llvm {
        program: gpu.program.name.clone(),
        stage,
        message,
    };
    ir.module.set_triple(&machine.get_triple());
    ir.module.set_data_layout(&machine.get_target_data().get_data_layout());
    if cfg!(debug_assertions) || cfg!(test) || std::env::var_os("ANSC_VERIFY_LLVM").is_some() {
        ir.module.verify().map_err(|e| error("verifier", e.to_string()))?;
    }
    ir.module
        .run_passes(PASSES, &machine, PassBuilderOptions::create())
        .map_err(|e| error("passes", e.to_string()))?;
    let text = machine
        .write_to_memory_buffer(&ir.module, FileType::Assembly)
        .map_err(|e| error("code generation", e.to_string()))?;
    let text = String::from_utf8_lossy(text.as_slice()).trim_end_matches('\0').to_owned();
    let launches = gpu.kernels.iter().zip(symbols).map(|(k, s)| launch(gpu, k, s)).collect();
    Ok(Ptx { launches, workspace, text, spent: start.elapsed() })
}

fn launch(gpu: &GpuProgram, kernel: &Kernel, symbol: String) -> GpuLaunch {
    let size = |n: usize| u32::try_from(n).expect("verified against the device's limits");
    GpuLaunch {
        symbol,
        grid: kernel.grid.map(|axis| size(axis.extent)),
        block: kernel.block.map(|axis| size(axis.extent)),
        shared_bytes: gpu.bytes(kernel, Scope::Shared),
    }
}

/// Compiles programs on all cores, for one generation of GPUs. Symbols are `k0`, `k1`, .. with the
/// kernel's number.
pub fn compile_ptx_all(
    programs: &[&GpuProgram],
    target: &Target,
) -> Result<Vec<Ptx>, CodegenError> {
    let compile = |(index, gpu): (usize, &&GpuProgram)| {
        compile_ptx(gpu, &crate::compile::symbol(index, &gpu.program.name), target)
    };
    programs.par_iter().enumerate().map(compile).collect()
}

/// The texts of several programs as one: the header of the first, then the code of all.
pub fn join(texts: &[&str]) -> String {
    let is_header = |line: &&str| {
        [".version", ".target", ".address_size"].iter().any(|word| line.starts_with(word))
    };
    let header = texts.first().map_or(vec![], |t| t.lines().filter(is_header).collect());
    let code = texts.iter().flat_map(|t| t.lines().filter(|l| !is_header(l)));
    let code = code.filter(|l| !l.starts_with("//"));
    header.into_iter().chain(code).fold(String::new(), |all, line| all + line + "\n")
}
