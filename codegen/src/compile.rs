//! Programs to objects.

use ansc_graph::TensorType;
use ansc_runtime::manifest::Launch;
use ansc_sketch::Program;
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{FileType, TargetMachine};

use crate::emit::{self, Code};
use crate::error::CodegenError;
use crate::target::Target;

/// Machine code of one program.
#[derive(Clone, PartialEq, Debug)]
pub struct Emitted {
    /// To be run in this order.
    pub launches: Vec<Launch>,
    /// Buffers that the caller provides after the parameters, in this order; their content does not outlive the
    /// last launch.
    pub workspace: Vec<TensorType>,
    /// A relocatable object that defines the launches' symbols.
    pub object: Vec<u8>,
}

/// LLVM passes between our code and instruction selection. Vectors, unrolling and tiling were decided by
/// the schedule: what is left is to bring accumulators into registers and to clean up.
const PASSES: &str =
    "function(sroa,early-cse<memssa>,loop-mssa(licm),instcombine<no-verify-fixpoint>,simplifycfg)";

pub fn compile_program(
    program: &Program,
    symbol: &str,
    target: &Target,
) -> Result<Emitted, CodegenError> {
    let context = Context::create();
    let machine = target.machine()?;
    let code = lowered(&context, program, symbol, target, &machine)?;
    let object = machine
        .write_to_memory_buffer(&code.ir.module, FileType::Object)
        .map_err(|e| llvm_error(program, "code generation", e.to_string()))?;
    Ok(Emitted {
        launches: code.launches,
        workspace: code.workspace,
        object: object.as_slice().to_vec(),
    })
}

/// What a program became, to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listing {
    /// LLVM IR before the passes.
    RawIr,
    /// LLVM IR after the passes.
    Ir,
    Assembly,
}

pub fn listing(
    program: &Program,
    symbol: &str,
    target: &Target,
    listing: Listing,
) -> Result<String, CodegenError> {
    let context = Context::create();
    let machine = target.machine()?;
    if listing == Listing::RawIr {
        let code = emit::emit(&context, program, symbol, target)?;
        return Ok(code.ir.module.print_to_string().to_string());
    }
    let code = lowered(&context, program, symbol, target, &machine)?;
    if listing == Listing::Ir {
        return Ok(code.ir.module.print_to_string().to_string());
    }
    let text = machine
        .write_to_memory_buffer(&code.ir.module, FileType::Assembly)
        .map_err(|e| llvm_error(program, "code generation", e.to_string()))?;
    Ok(String::from_utf8_lossy(text.as_slice()).into_owned())
}

/// The module after our passes.
fn lowered<'c>(
    context: &'c Context,
    program: &Program,
    symbol: &str,
    target: &Target,
    machine: &TargetMachine,
) -> Result<Code<'c>, CodegenError> {
    let code = emit::emit(context, program, symbol, target)?;
    code.ir.module.set_triple(&machine.get_triple());
    code.ir.module.set_data_layout(&machine.get_target_data().get_data_layout());
    if cfg!(debug_assertions) || cfg!(test) || std::env::var_os("ANSC_VERIFY_LLVM").is_some() {
        verify(program, &code.ir.module)?;
    }
    code.ir
        .module
        .run_passes(PASSES, machine, PassBuilderOptions::create())
        .map_err(|e| llvm_error(program, "passes", e.to_string()))?;
    Ok(code)
}

fn verify(program: &Program, module: &Module<'_>) -> Result<(), CodegenError> {
    module.verify().map_err(|e| {
        let text = module.print_to_string().to_string();
        llvm_error(program, "verifier", format!("{e}\n{text}"))
    })
}

fn llvm_error(program: &Program, stage: &'static str, message: String) -> CodegenError {
    CodegenError::Llvm { program: program.name.clone(), stage, message }
}
