//! The function that runs a model, as LLVM IR.
//!
//! In: a [`Plan`]. Out: an object that defines the function, and needs the kernels and the weights.
//!
//! ```text
//! define i32 @model_run(ptr %io, ptr %workspace) {
//!   return 1 unless all pointers are aligned
//!   store the mode of floats; set the runtime's
//!   store the arguments in a table; call k0_0(table, scratch, 0, extent); ..
//!   restore the mode; return 0, or 2 if an index was out of range
//! }
//! ```

use inkwell::AddressSpace;
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::builder::BuilderError;
use inkwell::context::Context;
use inkwell::module::Linkage;
use inkwell::targets::FileType;
use inkwell::types::IntType;
use inkwell::values::{
    BasicMetadataValueEnum, FunctionValue, GlobalValue, IntValue, PhiValue, PointerValue,
};
use inkwell::{GlobalVisibility, intrinsics::Intrinsic};

use ansc_runtime::DType;
use ansc_runtime::manifest::{Launch, Port, WEIGHT_ALIGN};

use super::plan::{Call, Place, Plan};
use super::{INDEX_OUT_OF_RANGE, MISALIGNED, OK};
use crate::emit;
use crate::error::CodegenError;
use crate::ir::Ir;
use crate::target::{Arch, Target};

/// The symbol of the weights inside of the object; no other object sees it.
pub(super) const WEIGHTS: &str = "weights";

type Result<T> = std::result::Result<T, BuilderError>;

/// Whether the weights are in the object or come with the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Weights {
    Embedded,
    Given,
}

pub(super) fn object(
    plan: &Plan<'_>,
    symbol: &str,
    weights: Weights,
    target: &Target,
) -> std::result::Result<Vec<u8>, CodegenError> {
    let failed =
        |stage, message: String| CodegenError::Llvm { program: symbol.to_owned(), stage, message };
    let context = Context::create();
    let machine = target.machine()?;
    let ir = Ir::new(&context, symbol, target.libm);
    ir.module.set_triple(&machine.get_triple());
    ir.module.set_data_layout(&machine.get_target_data().get_data_layout());
    emit(&ir, plan, symbol, weights, target).map_err(|e| failed("entry", e.to_string()))?;
    ir.module.verify().map_err(|e| failed("verifier", e.to_string()))?;
    let object = machine
        .write_to_memory_buffer(&ir.module, FileType::Object)
        .map_err(|e| failed("code generation", e.to_string()))?;
    Ok(object.as_slice().to_vec())
}

/// The values that the body of the function uses.
struct Entry<'c, 'i> {
    ir: &'i Ir<'c>,
    function: FunctionValue<'c>,
    arch: Arch,
    /// The caller's pointers: inputs, then outputs.
    ports: Vec<PointerValue<'c>>,
    workspace: PointerValue<'c>,
    weights: PointerValue<'c>,
    scratch: PointerValue<'c>,
    /// Room for the arguments of one kernel.
    table: PointerValue<'c>,
    /// The caller's mode of floats.
    mode: PointerValue<'c>,
    /// Where the function ends with the mode restored, and its result.
    end: BasicBlock<'c>,
    result: PhiValue<'c>,
}

fn emit(
    ir: &Ir<'_>,
    plan: &Plan<'_>,
    symbol: &str,
    weights: Weights,
    target: &Target,
) -> Result<()> {
    let entry = head(ir, plan, symbol, weights, target)?;
    entry.save_mode()?;
    plan.calls.iter().try_for_each(|call| entry.call(call))?;
    entry.leave(OK)?;
    ir.builder.position_at_end(entry.end);
    entry.restore_mode()?;
    ir.builder.build_return(Some(&entry.result.as_basic_value()))?;
    Ok(())
}

/// Everything before the first call: where things are, and that they are aligned.
fn head<'c, 'i>(
    ir: &'i Ir<'c>,
    plan: &Plan<'_>,
    symbol: &str,
    weights: Weights,
    target: &Target,
) -> Result<Entry<'c, 'i>> {
    let (context, builder) = (ir.context, &ir.builder);
    let (pointer, int) = (context.ptr_type(AddressSpace::default()), context.i32_type());
    let parameters = vec![pointer.into(); if weights == Weights::Given { 3 } else { 2 }];
    let function = ir.module.add_function(symbol, int.fn_type(&parameters, false), None);
    emit::describe(ir, function, target);
    let parameter = |n| function.get_nth_param(n).expect("as many were declared");
    let [start, body, end] =
        ["start", "body", "end"].map(|n| context.append_basic_block(function, n));
    builder.position_at_end(end);
    let result = builder.build_phi(int, "")?;
    builder.position_at_end(start);
    let longest = plan.calls.iter().map(arguments).max().unwrap_or(0).max(1);
    let table = builder.build_alloca(pointer.array_type(longest as u32), "")?;
    let mode = builder.build_alloca(context.i64_type(), "")?;
    let io = parameter(0).into_pointer_value();
    let all: Vec<&Port> = plan.inputs.iter().chain(&plan.outputs).copied().collect();
    let ports = (0..all.len()).map(|i| {
        let at = ir.offset(io, ir.index(8 * i as i64));
        ir.load(pointer, at, 8).into_pointer_value()
    });
    let ports: Vec<_> = ports.collect();
    let workspace = parameter(1).into_pointer_value();
    let weights = match weights {
        Weights::Given => parameter(2).into_pointer_value(),
        Weights::Embedded => hidden_weights(ir).as_pointer_value(),
    };
    let mut aligned: Vec<_> = ports.iter().zip(&all).map(|(&p, q)| (p, q.dtype.size())).collect();
    aligned.extend([(workspace, WEIGHT_ALIGN), (weights, WEIGHT_ALIGN)]);
    let misaligned = misaligned(ir, &aligned)?;
    let refuse = context.append_basic_block(function, "refuse");
    builder.build_conditional_branch(misaligned, refuse, body)?;
    builder.position_at_end(refuse);
    builder.build_return(Some(&int.const_int(MISALIGNED.into(), false)))?;
    builder.position_at_end(body);
    let scratch = ir.offset(workspace, ir.index(plan.arena as i64));
    let arch = target.arch;
    Ok(Entry { ir, function, arch, ports, workspace, weights, scratch, table, mode, end, result })
}

fn arguments(call: &Call) -> usize {
    if let Call::Kernel { args, .. } = call { args.len() } else { 0 }
}

/// Declared hidden, so that code finds them without a table that a loader fills.
fn hidden_weights<'c>(ir: &Ir<'c>) -> GlobalValue<'c> {
    let weights = ir.module.add_global(ir.context.i8_type(), None, WEIGHTS);
    weights.set_constant(true);
    weights.set_visibility(GlobalVisibility::Hidden);
    weights
}

/// Whether one of the pointers is no multiple of its number, a power of two.
fn misaligned<'c>(ir: &Ir<'c>, pointers: &[(PointerValue<'c>, usize)]) -> Result<IntValue<'c>> {
    let mut bits = ir.index(0);
    for &(pointer, align) in pointers {
        let address = ir.builder.build_ptr_to_int(pointer, ir.context.i64_type(), "")?;
        let low = ir.builder.build_and(address, ir.index(align as i64 - 1), "")?;
        bits = ir.builder.build_or(bits, low, "")?;
    }
    ir.builder.build_int_compare(IntPredicate::NE, bits, ir.index(0), "")
}

impl<'c> Entry<'c, '_> {
    fn call(&self, call: &Call) -> Result<()> {
        match call {
            Call::Kernel { launches, args } => self.kernel(launches, args),
            Call::Copy { from, to, bytes } => {
                let (from, to) = (self.address(*from), self.address(*to));
                self.ir.builder.build_memmove(to, 1, from, 1, self.ir.index(*bytes as i64))?;
                Ok(())
            }
            Call::Check { indices, dtype, count, extents } => {
                self.check(self.address(*indices), *dtype, *count, extents)
            }
        }
    }

    fn address(&self, place: Place) -> PointerValue<'c> {
        let at = |base, offset: usize| self.ir.offset(base, self.ir.index(offset as i64));
        match place {
            Place::Port(index) => self.ports[index],
            Place::Workspace(offset) => at(self.workspace, offset),
            Place::Weights(offset) => at(self.weights, offset),
        }
    }

    fn kernel(&self, launches: &[Launch], args: &[Place]) -> Result<()> {
        let ir = self.ir;
        for (i, &place) in args.iter().enumerate() {
            let slot = ir.offset(self.table, ir.index(8 * i as i64));
            ir.builder.build_store(slot, self.address(place))?;
        }
        for launch in launches {
            let extent = ir.index(launch.extent as i64);
            let values: [BasicMetadataValueEnum<'c>; 4] =
                [self.table.into(), self.scratch.into(), ir.index(0).into(), extent.into()];
            ir.builder.build_call(self.declared(&launch.symbol), &values, "")?;
        }
        Ok(())
    }

    /// A kernel, as the runtime's `KernelFn`.
    fn declared(&self, symbol: &str) -> FunctionValue<'c> {
        let (ir, context) = (self.ir, self.ir.context);
        ir.module.get_function(symbol).unwrap_or_else(|| {
            let (pointer, index) =
                (context.ptr_type(AddressSpace::default()).into(), context.i64_type().into());
            let ty = context.void_type().fn_type(&[pointer, pointer, index, index], false);
            let function = ir.module.add_function(symbol, ty, None);
            function.as_global_value().set_visibility(GlobalVisibility::Hidden);
            function
        })
    }

    /// Goes on if all indices are in range, and ends the function if not.
    fn check(
        &self,
        at: PointerValue<'c>,
        dtype: DType,
        count: usize,
        extents: &[usize],
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let (ir, builder) = (self.ir, &self.ir.builder);
        let [looped, wrong, next] =
            ["check", "wrong", "next"].map(|n| ir.context.append_basic_block(self.function, n));
        let before = builder.get_insert_block().expect("the builder is positioned");
        let table = self.extents(extents);
        builder.build_unconditional_branch(looped)?;
        builder.position_at_end(looped);
        let i = builder.build_phi(ir.context.i64_type(), "")?;
        let found = builder.build_phi(ir.context.bool_type(), "")?;
        let n = i.as_basic_value().into_int_value();
        let index = self.index(at, n, dtype)?;
        let turn = builder.build_int_unsigned_rem(n, ir.index(extents.len() as i64), "")?;
        let slot = ir.offset(table, builder.build_int_mul(turn, ir.index(8), "")?);
        let extent = ir.load(ir.context.i64_type(), slot, 8).into_int_value();
        let below = builder.build_int_compare(
            IntPredicate::SLT,
            index,
            builder.build_int_neg(extent, "")?,
            "",
        )?;
        let above = builder.build_int_compare(IntPredicate::SGE, index, extent, "")?;
        let outside = builder.build_or(below, above, "")?;
        let outside = builder.build_or(found.as_basic_value().into_int_value(), outside, "")?;
        let more = builder.build_int_add(n, ir.index(1), "")?;
        i.add_incoming(&[(&ir.index(0), before), (&more, looped)]);
        let no = ir.context.bool_type().const_zero();
        found.add_incoming(&[(&no, before), (&outside, looped)]);
        let done = builder.build_int_compare(IntPredicate::EQ, more, ir.index(count as i64), "")?;
        let judge = ir.context.append_basic_block(self.function, "judge");
        builder.build_conditional_branch(done, judge, looped)?;
        builder.position_at_end(judge);
        builder.build_conditional_branch(outside, wrong, next)?;
        builder.position_at_end(wrong);
        self.leave(INDEX_OUT_OF_RANGE)?;
        builder.position_at_end(next);
        Ok(())
    }

    /// An index as generated code reads it.
    fn index(&self, at: PointerValue<'c>, n: IntValue<'c>, dtype: DType) -> Result<IntValue<'c>> {
        let (ir, builder) = (self.ir, &self.ir.builder);
        let bytes = dtype.size();
        let stored: IntType<'c> = ir
            .context
            .custom_width_int_type((8 * bytes as u32).try_into().expect("an element has bits"))
            .expect("a width that LLVM knows");
        let slot = ir.offset(at, builder.build_int_mul(n, ir.index(bytes as i64), "")?);
        let value = ir.load(stored, slot, bytes as u32).into_int_value();
        let wide = ir.context.i64_type();
        match dtype {
            _ if bytes == 8 => Ok(value),
            dtype if dtype.is_signed_int() => builder.build_int_s_extend(value, wide, ""),
            _ => builder.build_int_z_extend(value, wide, ""),
        }
    }

    fn extents(&self, extents: &[usize]) -> PointerValue<'c> {
        let wide = self.ir.context.i64_type();
        // No axis of a tensor in memory is longer than the largest signed number.
        let values: Vec<IntValue<'c>> =
            extents.iter().map(|&e| self.ir.index(i64::try_from(e).unwrap_or(i64::MAX))).collect();
        let array = wide.const_array(&values);
        let global = self.ir.module.add_global(array.get_type(), None, "extents");
        global.set_initializer(&array);
        global.set_constant(true);
        global.set_linkage(Linkage::Private);
        global.as_pointer_value()
    }

    fn leave(&self, status: u32) -> Result<()> {
        let here = self.ir.builder.get_insert_block().expect("the builder is positioned");
        let status = self.ir.context.i32_type().const_int(status.into(), false);
        self.result.add_incoming(&[(&status, here)]);
        self.ir.builder.build_unconditional_branch(self.end)?;
        Ok(())
    }

    /// As the runtime's `FloatMode`: rounds to nearest, traps nothing, denormal numbers are zeros.
    fn save_mode(&self) -> Result<()> {
        const MXCSR_FLUSH: u64 = 0x1f80 | 1 << 15 | 1 << 6;
        const FPCR_FLUSH: u64 = 1 << 24;
        let (ir, builder) = (self.ir, &self.ir.builder);
        match self.arch {
            Arch::X86_64 => {
                self.intrinsic("llvm.x86.sse.stmxcsr", &[self.mode.into()])?;
                let word = builder.build_alloca(ir.context.i32_type(), "")?;
                builder.build_store(word, ir.context.i32_type().const_int(MXCSR_FLUSH, false))?;
                self.intrinsic("llvm.x86.sse.ldmxcsr", &[word.into()])
            }
            _ => {
                let get = self.function_of("llvm.aarch64.get.fpcr");
                let call = builder.build_call(get, &[], "")?;
                let word = call.try_as_basic_value().basic().expect("it returns the register");
                builder.build_store(self.mode, word)?;
                let flush = ir.index(FPCR_FLUSH as i64);
                self.intrinsic("llvm.aarch64.set.fpcr", &[flush.into()])
            }
        }
    }

    fn restore_mode(&self) -> Result<()> {
        match self.arch {
            Arch::X86_64 => self.intrinsic("llvm.x86.sse.ldmxcsr", &[self.mode.into()]),
            _ => {
                let word = self.ir.load(self.ir.context.i64_type(), self.mode, 8);
                self.intrinsic("llvm.aarch64.set.fpcr", &[word.into_int_value().into()])
            }
        }
    }

    fn intrinsic(&self, name: &str, args: &[BasicMetadataValueEnum<'c>]) -> Result<()> {
        self.ir.builder.build_call(self.function_of(name), args, "")?;
        Ok(())
    }

    fn function_of(&self, name: &str) -> FunctionValue<'c> {
        let found = Intrinsic::find(name).and_then(|f| f.get_declaration(&self.ir.module, &[]));
        found.expect("LLVM has the intrinsics of the processors that it was built for")
    }
}
