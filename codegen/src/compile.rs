//! Programs to objects: one, or many at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ansc_graph::TensorType;
use ansc_runtime::manifest::Launch;
use ansc_sketch::{Program, Stmt};
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{FileType, TargetMachine};
use rayon::prelude::*;

use crate::emit::{self, Code};
use crate::error::CodegenError;
use crate::target::Target;

/// Machine code of one program.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// To be run in this order.
    pub launches: Vec<Launch>,
    /// Buffers that the caller provides after the parameters, in this order; their content does not
    /// outlive the last launch.
    pub workspace: Vec<TensorType>,
    /// A relocatable object that defines the launches' symbols.
    pub object: Vec<u8>,
    /// The time that it took, on one thread.
    pub spent: Duration,
}

/// LLVM passes between our code and instruction selection. Vectors, unrolling and tiling were
/// decided by the schedule: what is left is to bring accumulators into registers and to clean up.
const PASSES: &str =
    "function(sroa,early-cse<memssa>,loop-mssa(licm),instcombine<no-verify-fixpoint>,simplifycfg)";

pub fn compile_program(
    program: &Program,
    symbol: &str,
    target: &Target,
) -> Result<Emitted, CodegenError> {
    let start = Instant::now();
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
        spent: start.elapsed(),
    })
}

/// Many programs, compiled.
#[derive(Clone, Debug)]
pub struct Batch {
    pub objects: Vec<Vec<u8>>,
    /// One for each program. Programs that differ in names only share their code.
    pub kernels: Vec<Kernel>,
}

#[derive(Clone, Debug)]
pub struct Kernel {
    pub launches: Vec<Launch>,
    pub workspace: Vec<TensorType>,
    /// Which of the objects defines it.
    pub object: usize,
    /// The time that its code took, on one thread.
    pub spent: Duration,
}

/// Compiles programs on all cores. The code does not depend on their number.
pub fn compile_all(programs: &[&Program], target: &Target) -> Result<Batch, CodegenError> {
    let mut first = BTreeMap::new();
    let mut distinct: Vec<(&Program, String)> = Vec::new();
    let mut which = Vec::with_capacity(programs.len());
    for program in programs {
        let index = *first.entry(nameless(program)).or_insert_with(|| {
            distinct.push((program, symbol(distinct.len(), &program.name)));
            distinct.len() - 1
        });
        which.push(index);
    }
    let compiled: Vec<Emitted> = distinct
        .par_iter()
        .map(|(program, symbol)| compile_program(program, symbol, target))
        .collect::<Result<_, _>>()?;
    let kernels = which
        .into_iter()
        .map(|object| Kernel {
            launches: compiled[object].launches.clone(),
            workspace: compiled[object].workspace.clone(),
            object,
            spent: compiled[object].spent,
        })
        .collect();
    Ok(Batch { objects: compiled.into_iter().map(|e| e.object).collect(), kernels })
}

/// Everything that decides the code of a program, as text: all but the names.
fn nameless(program: &Program) -> String {
    let buffers: Vec<_> = program.buffers.iter().map(|b| (&b.ty, b.scope)).collect();
    let mut body = program.body.clone();
    body.iter_mut().for_each(forget_names);
    format!("{buffers:?}{:?}{body:?}{:?}", program.params, program.needs)
}

fn forget_names(stmt: &mut Stmt) {
    match stmt {
        Stmt::For(l) => l.body.iter_mut().for_each(forget_names),
        Stmt::Block(block) => block.name.clear(),
    }
}

/// `k3_conv_relu`
pub(crate) fn symbol(index: usize, name: &str) -> String {
    let word: String =
        name.chars().take(40).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("k{index}_{word}")
}

/// The form in which [`listing`] gives the code of a program.
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
