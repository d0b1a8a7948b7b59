//! Kernels of a GPU program as LLVM IR for NVPTX.
//!
//! In: a [`GpuProgram`]. Out: a module with a kernel function for each of its kernels, all with the
//! same parameters: the addresses of the program's parameters, then of its workspace. Blocks, loops
//! and expressions are written by the same code as for a CPU; what differs is where buffers live,
//! and that threads have indices.
//!
//! ```text
//! s[tx] = x[bx, tx];  barrier;  ..
//! ->
//! @s = internal addrspace(3) global [32 x float]
//! define ptx_kernel void @k_0(ptr addrspace(1) %x, ..) "nvvm.maxntid"="32,1,1" { %tx = call @llvm.nvvm.read.ptx.sreg.tid.x() .. }
//! ```

use ansc_graph::{BufId, Expr, TensorType};
use ansc_runtime::gpu::DECLARED_SHARED;
use ansc_sketch::gpu::{Axis, GpuProgram, Kernel, Loop, Step};
use ansc_sketch::{Access, Scope, Stmt};
use inkwell::AddressSpace;
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Linkage;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{FunctionValue, PointerValue, UnnamedAddress};

use crate::affine::Affine;
use crate::emit::function::{ALIGN, Buffers, Emitter, Frame, Result, describe};
use crate::emit::memory::Pattern;
use crate::emit::uses;
use crate::error::CodegenError;
use crate::ir::{Ir, Reg, lanes};
use crate::target::{Arch, Target};

const GLOBAL_SPACE: u16 = 1;
const SHARED_SPACE: u16 = 3;
/// LLVM's calling convention of functions that are launched.
const KERNEL_CONVENTION: u32 = 71;
/// Special registers, by axis: blocks x, y, z, then threads.
const REGISTERS: [&str; 6] = ["ctaid.x", "ctaid.y", "ctaid.z", "tid.x", "tid.y", "tid.z"];
/// The first generation with asynchronous copies to shared memory.
const LEAST_ASYNC: u32 = 80;
/// The barrier of all threads of a block, by its name in LLVM 22 and before.
const BARRIERS: [&str; 2] = ["llvm.nvvm.barrier.cta.sync.aligned.all", "llvm.nvvm.barrier0"];

/// A module and what must be known to launch its kernels.
pub(crate) struct GpuCode<'c> {
    pub(crate) ir: Ir<'c>,
    /// One for each kernel of the program.
    pub(crate) symbols: Vec<String>,
    /// Types of the buffers that follow the parameters in every argument list.
    pub(crate) workspace: Vec<TensorType>,
}

pub(crate) fn emit<'c>(
    context: &'c Context,
    gpu: &GpuProgram,
    symbol: &str,
    target: &Target,
) -> std::result::Result<GpuCode<'c>, CodegenError> {
    let buffers = Buffers { arguments: arguments(gpu), uses: uses(&gpu.program.body) };
    let arguments = &buffers.arguments;
    let mut ir = Ir::new(context, symbol, target.libm);
    let mut symbols = vec![];
    for (index, kernel) in gpu.kernels.iter().enumerate() {
        let symbol = format!("{symbol}_{index}");
        let function = declare(&ir, target, kernel, &symbol, arguments.len());
        let mut emitter = Emitter::in_function(ir, &gpu.program, target, &buffers, function);
        if gpu.bytes(kernel, Scope::Shared) > DECLARED_SHARED {
            emitter.asked_for = gpu.shared(kernel);
        }
        let written = emitter.kernel(kernel);
        ir = emitter.finish().0;
        written.map_err(|what| CodegenError::Unsupported {
            program: gpu.program.name.clone(),
            what,
        })?;
        symbols.push(symbol);
    }
    let workspace = &arguments[gpu.program.params.len()..];
    let workspace = workspace.iter().map(|&b| gpu.program.buffer(b).ty.clone()).collect();
    Ok(GpuCode { ir, symbols, workspace })
}

/// Parameters, then the global buffers that kernels use.
fn arguments(gpu: &GpuProgram) -> Vec<BufId> {
    let used = gpu.kernels.iter().flat_map(|k| gpu.buffers(k));
    let is_workspace = |b: &BufId| gpu.program.buffer(*b).scope == Scope::Global;
    let workspace: std::collections::BTreeSet<BufId> = used.filter(is_workspace).collect();
    gpu.program.params.iter().copied().chain(workspace).collect()
}

fn declare<'c>(
    ir: &Ir<'c>,
    target: &Target,
    kernel: &Kernel,
    symbol: &str,
    arguments: usize,
) -> FunctionValue<'c> {
    use inkwell::attributes::AttributeLoc;
    let pointer = ir.context.ptr_type(AddressSpace::from(GLOBAL_SPACE));
    let params: Vec<BasicMetadataTypeEnum<'c>> = vec![pointer.into(); arguments];
    let function =
        ir.module.add_function(symbol, ir.context.void_type().fn_type(&params, false), None);
    function.set_call_conventions(KERNEL_CONVENTION);
    describe(ir, function, target);
    let [x, y, z] = kernel.block.map(|axis| axis.extent);
    // Without the second, `ptxas` spills a register or two of some kernels for the sake of more
    // blocks at once.
    for (key, value) in [("nvvm.maxntid", format!("{x},{y},{z}")), ("nvvm.minctasm", "1".into())] {
        let bound = ir.context.create_string_attribute(key, &value);
        function.add_attribute(AttributeLoc::Function, bound);
    }
    function
}

impl<'c> Emitter<'c, '_> {
    pub(crate) fn is_gpu(&self) -> bool {
        self.target.arch == Arch::Nvptx
    }

    fn kernel(&mut self, kernel: &Kernel) -> Result<()> {
        let axes = kernel.grid.iter().chain(&kernel.block);
        for (axis, register) in axes.zip(REGISTERS) {
            self.index_of(*axis, register);
        }
        self.steps(&kernel.body)?;
        self.end();
        Ok(())
    }

    /// Makes the variable of an axis known.
    fn index_of(&mut self, axis: Axis, register: &str) {
        if axis.extent == 1 {
            self.bindings.insert(axis.var, Affine::constant(0));
            return;
        }
        let name = format!("llvm.nvvm.read.ptx.sreg.{register}");
        let index = self.in_head(0, |e| {
            let narrow = e.ir.intrinsic_on(&name, &[], &[]).expect("an index is a number");
            e.ir.resize(narrow, 64, false).into_int_value()
        });
        let head = self.frames[0].head;
        self.ranges.insert(axis.var, (0, axis.extent as i64 - 1));
        self.frames.push(Frame::new(Some((axis.var, index)), head));
    }

    fn steps(&mut self, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|step| match step {
            Step::Run(stmt) => self.stmt(stmt),
            Step::Fetch(stmt) => self.fetch(stmt),
            Step::Commit => self.copies("commit.group", &[]),
            Step::Arrive(left) => {
                let left = self.ir.int(32, *left as i64, None);
                self.copies("wait.group", &[left])
            }
            Step::Loop(l) => self.synchronised(l),
            Step::Barrier => self.barrier(),
        })
    }

    fn synchronised(&mut self, l: &Loop) -> Result<()> {
        let (zero, extent) = (self.ir.index(0), self.ir.index(l.extent as i64));
        self.counted(l.var, l.extent, zero, extent, |e| e.steps(&l.body))
    }

    fn barrier(&mut self) -> Result<()> {
        let name = BARRIERS.into_iter().find(|name| Intrinsic::find(name).is_some());
        let name = name.ok_or("this LLVM has no barrier")?;
        let number = self.ir.int(32, 0, None);
        let args = if name == BARRIERS[0] { vec![number] } else { vec![] };
        self.ir.intrinsic_on(name, &[], &args);
        Ok(())
    }

    /// Copies that need not have happened until their group is waited for, where the GPU has such.
    fn fetch(&mut self, stmt: &Stmt) -> Result<()> {
        self.fetching = self.target.sm().is_some_and(|sm| sm >= LEAST_ASYNC);
        let written = self.stmt(stmt);
        self.fetching = false;
        written
    }

    /// An instruction about all copies that a thread has begun, where the GPU has such.
    fn copies(&mut self, what: &str, args: &[Reg<'c>]) -> Result<()> {
        if self.target.sm().is_some_and(|sm| sm >= LEAST_ASYNC) {
            self.ir.intrinsic_on(&format!("llvm.nvvm.cp.async.{what}"), &[], args);
        }
        Ok(())
    }

    /// Begins the copy `dst = value` if it is one of 4, 8 or 16 bytes from global to shared memory.
    /// Says whether it did. Where a condition on the place chooses between such a copy and zeros,
    /// nothing is read for zeros.
    pub(crate) fn copy_early(&mut self, dst: &Access, value: &Expr) -> Result<bool> {
        if !self.fetching {
            return Ok(false);
        }
        let (condition, value) = match value {
            Expr::Select(condition, inside, outside) if is_zero(outside) => {
                (Some(&**condition), &**inside)
            }
            _ => (None, value),
        };
        let Expr::Load(source, indices) = value else { return Ok(false) };
        let types = [*source, dst.buffer].map(|b| self.program.buffer(b).ty.dtype);
        let is_shared = self.program.buffer(dst.buffer).scope == Scope::Shared;
        if !is_shared || !self.is_argument(*source) || types[0] != types[1] {
            return Ok(false);
        }
        let (from, to) = (self.flatten(*source, indices), self.flatten(dst.buffer, &dst.indices));
        let (Some(from), Some(to)) = (self.contiguous(&from), self.contiguous(&to)) else {
            return Ok(false);
        };
        let bytes = self.lanes.map_or(1, |l| l.count) as usize * types[0].size();
        let ((from, from_align), (to, to_align)) =
            (self.pointer(*source, &from)?, self.pointer(dst.buffer, &to)?);
        let fits = matches!(bytes, 4 | 8 | 16) && from_align.min(to_align) as usize >= bytes;
        if !fits || self.mask.is_some() {
            return Ok(false);
        }
        // Copies of 16 bytes go only through the cache that all multiprocessors share (`cg`). Other
        // blocks of threads find there what one block copies.
        let cache = if bytes == 16 { "cg" } else { "ca" };
        let name = format!("llvm.nvvm.cp.async.{cache}.shared.global.{bytes}");
        let open = condition.filter(|c| self.decide(c) != Some(true));
        let Some(condition) = open else {
            self.ir.intrinsic_on(&name, &[], &[to.into(), from.into()]);
            return Ok(true);
        };
        let condition = self.value(condition)?;
        if lanes(condition).is_some() {
            return Ok(false);
        }
        let [all, none] = [bytes as i64, 0].map(|n| self.ir.int(32, n, None));
        let count = self.ir.select(condition, all, none);
        self.ir.intrinsic_on(&format!("{name}.s"), &[], &[to.into(), from.into(), count]);
        Ok(true)
    }

    /// Where the elements of all lanes begin, if they follow one another.
    fn contiguous(&mut self, flat: &Affine) -> Option<Affine> {
        match (self.pattern(flat), self.lanes) {
            (Pattern::Strided { base, stride: 1 }, Some(_)) => Some(base),
            (Pattern::Strided { base, .. }, None) => Some(base),
            _ => None,
        }
    }

    /// The address of an argument.
    pub(crate) fn parameter(&self, index: usize) -> PointerValue<'c> {
        let index = u32::try_from(index).expect("few parameters");
        let value = self.function.get_nth_param(index).expect("a kernel has its parameters");
        value.into_pointer_value()
    }

    /// Memory of a shared buffer, or of a local one.
    pub(crate) fn block_or_thread_memory(&mut self, buffer: BufId) -> PointerValue<'c> {
        if self.program.buffer(buffer).scope == Scope::Shared {
            return self.shared(buffer);
        }
        let copies = self.expanded.get(&buffer).map_or(1, |&n| n as usize);
        self.in_head(0, |e| e.alloca(buffer, copies))
    }

    fn shared(&self, buffer: BufId) -> PointerValue<'c> {
        let kernel = self.function.get_name().to_string_lossy().into_owned();
        if let Some(&at) = self.asked_for.get(&buffer) {
            let all = self.asked_for(&format!("{kernel}_shared"));
            return self.ir.offset(all, self.ir.index(at as i64));
        }
        let ty = self.array_type(buffer, 1);
        let name = format!("{kernel}_s{}", buffer.index());
        let global = self.ir.module.add_global(ty, Some(AddressSpace::from(SHARED_SPACE)), &name);
        global.set_linkage(Linkage::Internal);
        global.set_initializer(&ty.get_undef());
        global.set_alignment(ALIGN as u32);
        global.set_unnamed_address(UnnamedAddress::Global);
        global.as_pointer_value()
    }

    /// The shared memory that launches of a kernel ask for.
    fn asked_for(&self, name: &str) -> PointerValue<'c> {
        let known = self.ir.module.get_global(name);
        let global = known.unwrap_or_else(|| {
            let ty = self.ir.context.i8_type().array_type(0);
            self.ir.module.add_global(ty, Some(AddressSpace::from(SHARED_SPACE)), name)
        });
        global.set_linkage(Linkage::External);
        global.set_alignment(ALIGN as u32);
        global.as_pointer_value()
    }
}

/// Whether all bits are zero.
fn is_zero(e: &Expr) -> bool {
    e.as_const().is_some_and(|s| s.is_zero() && s.as_f64().is_sign_positive())
}
