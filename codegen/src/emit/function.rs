//! The state of one function while it is written.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BinOp, BufId, VarId};
use ansc_sketch::program::For;
use ansc_sketch::{Program, Scope as BufferScope, Stmt};
use inkwell::basic_block::BasicBlock;
use inkwell::types::ArrayType;
use inkwell::values::{BasicValue, FunctionValue, IntValue, MetadataValue, PhiValue, PointerValue};

use crate::affine::{Affine, Scope};
use crate::emit::again::Strips;
use crate::emit::amx::Tiles;
use crate::emit::late::Late;
use crate::emit::tables::Table;
use crate::emit::tiles::{Loaded, Stored};
use crate::ir::{Ir, Reg};
use crate::ops;
use crate::target::{Arch, Target};

/// A result, or a description of what cannot be emitted.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Local buffers up to this size live on the stack, where they can become registers.
const STACK_BYTES: usize = 16 << 10;
/// All of them together.
const STACK_TOTAL: usize = 128 << 10;
pub(super) const ALIGN: usize = 64;

/// Facts about a program's buffers that are known before any of its functions is written.
pub(crate) struct Buffers {
    /// Arguments of each function, in order.
    pub(crate) arguments: Vec<BufId>,
    /// How often blocks of the program use each.
    pub(crate) uses: BTreeMap<BufId, usize>,
}

pub(crate) struct Emitter<'c, 'p> {
    pub(crate) ir: Ir<'c>,
    pub(crate) program: &'p Program,
    pub(crate) target: &'p Target,
    pub(crate) function: FunctionValue<'c>,
    /// Open loops, the function itself first.
    pub(crate) frames: Vec<Frame<'c>>,
    /// Block iterators, and loops fixed to a value.
    pub(crate) bindings: BTreeMap<VarId, Affine>,
    /// Inclusive ranges of loop variables.
    pub(crate) ranges: BTreeMap<VarId, (i64, i64)>,
    /// Comparisons that are known to hold here, as [`Emitter::fact`] has them.
    pub(crate) held: Vec<(BinOp, Affine)>,
    /// Buffers that the function writes. The set is empty for a GPU.
    pub(crate) written: BTreeSet<BufId>,
    pub(crate) buffers: &'p Buffers,
    places: Vec<Option<Place<'c>>>,
    stack: usize,
    scratch: usize,
    /// Copies of blocks that unrolling has made around the current statement.
    pub(crate) copies: usize,
    /// The vectorised loop that is being written, unless one of its lanes is written alone.
    pub(crate) lanes: Option<Lanes>,
    /// The lane's number in a vectorised loop: the variable of `lanes`, or fixed by a binding.
    pub(crate) lane_var: Option<VarId>,
    /// Lanes that are active, if not all of them.
    pub(crate) mask: Option<Reg<'c>>,
    /// Local buffers of which each lane has its own, and how many lanes that is.
    pub(crate) expanded: BTreeMap<BufId, u32>,
    /// Whether copies to the shared memory of a GPU may happen later.
    pub(crate) fetching: bool,
    /// Where shared buffers begin in the memory that launches of a GPU's kernel ask for; empty for
    /// a kernel that declares its own.
    pub(crate) asked_for: BTreeMap<BufId, usize>,
    /// Values of loads that are known already.
    pub(crate) loaded: Vec<Loaded<'c>>,
    /// The tile whose stores are kept for later.
    pub(crate) stored: Option<Stored<'c>>,
    /// The strips that the next loop is to fetch.
    pub(crate) strips: Strips,
    /// Rows of tiles that the steps of a sum go through.
    pub(crate) late: Option<Late>,
    /// The registers of fragments, while they have some.
    pub(crate) tiles: Option<Tiles>,
    /// Whether it stores past the caches.
    pub(super) streams: bool,
    /// Functions of one byte.
    pub(super) tables: Vec<Table<'c>>,
    fresh: usize,
}

/// The lanes of a vectorised loop: a variable that has all values of `0..count` at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    pub(crate) var: VarId,
    pub(crate) count: u32,
}

/// A loop whose body is being written. `head` dominates the body; what depends on no inner loop is
/// computed there, once.
pub(crate) struct Frame<'c> {
    /// `None` for the function.
    pub(crate) var: Option<(VarId, IntValue<'c>)>,
    pub(crate) head: BasicBlock<'c>,
    /// Multiples of the variable, by the factor, that a loop counts up. Nothing counts what has its
    /// value from elsewhere.
    pub(crate) multiples: Option<BTreeMap<i64, PhiValue<'c>>>,
    pub(crate) sums: BTreeMap<Affine, IntValue<'c>>,
    pub(crate) pointers: BTreeMap<(BufId, Affine), PointerValue<'c>>,
}

impl<'c> Frame<'c> {
    /// The frame of a loop that counts its variable up.
    pub(crate) fn counted(var: VarId, value: IntValue<'c>, head: BasicBlock<'c>) -> Frame<'c> {
        let multiples = Some(BTreeMap::new());
        Frame { multiples, ..Frame::new(Some((var, value)), head) }
    }

    pub(crate) fn new(var: Option<(VarId, IntValue<'c>)>, head: BasicBlock<'c>) -> Frame<'c> {
        let (multiples, sums, pointers) = Default::default();
        Frame { var, head, multiples, sums, pointers }
    }
}

/// Where a buffer is.
#[derive(Clone, Copy)]
pub(crate) struct Place<'c> {
    pub(crate) base: PointerValue<'c>,
    /// The alignment of the base, in bytes.
    pub(crate) align: i64,
    pub(crate) scope: MetadataValue<'c>,
    pub(crate) noalias: MetadataValue<'c>,
}

impl Scope for Emitter<'_, '_> {
    fn binding(&self, var: VarId) -> Option<Affine> {
        self.bindings.get(&var).cloned()
    }

    fn range(&self, var: VarId) -> Option<(i64, i64)> {
        self.ranges.get(&var).copied()
    }
}

impl<'c, 'p> Emitter<'c, 'p> {
    pub(crate) fn new(
        ir: Ir<'c>,
        program: &'p Program,
        target: &'p Target,
        buffers: &'p Buffers,
        written: BTreeSet<BufId>,
        symbol: &str,
    ) -> Emitter<'c, 'p> {
        let function = kernel(&ir, target, symbol);
        let emitter = Emitter::in_function(ir, program, target, buffers, function);
        Emitter { written, ..emitter }
    }

    /// Writes the body of `function`.
    pub(super) fn in_function(
        ir: Ir<'c>,
        program: &'p Program,
        target: &'p Target,
        buffers: &'p Buffers,
        function: FunctionValue<'c>,
    ) -> Emitter<'c, 'p> {
        let context = ir.context;
        let head = context.append_basic_block(function, "entry");
        let body = context.append_basic_block(function, "body");
        ir.builder.position_at_end(head);
        ir.builder.build_unconditional_branch(body).expect("the builder is positioned");
        ir.builder.position_at_end(body);
        Emitter {
            ir,
            program,
            target,
            function,
            frames: vec![Frame::new(None, head)],
            bindings: BTreeMap::new(),
            ranges: BTreeMap::new(),
            held: vec![],
            written: BTreeSet::new(),
            buffers,
            places: vec![None; program.buffers.len()],
            stack: 0,
            scratch: 0,
            copies: 1,
            lanes: None,
            lane_var: None,
            mask: None,
            expanded: BTreeMap::new(),
            fetching: false,
            asked_for: BTreeMap::new(),
            loaded: Vec::new(),
            stored: None,
            strips: Strips::default(),
            late: None,
            tiles: None,
            streams: false,
            tables: Vec::new(),
            fresh: program.vars.len(),
        }
    }

    /// A variable that the program does not have.
    pub(crate) fn fresh_var(&mut self) -> VarId {
        self.fresh += 1;
        VarId::new(self.fresh - 1)
    }

    /// Iterations `begin..end` of a parallel loop.
    pub(crate) fn parallel(&mut self, l: &For) -> Result<()> {
        let parameter = |n| self.function.get_nth_param(n).expect("a kernel has four parameters");
        let (begin, end) = (parameter(2).into_int_value(), parameter(3).into_int_value());
        let body: Vec<&Stmt> = l.body.iter().collect();
        let ranges = self.ranges.insert(l.var, (0, l.extent as i64 - 1));
        debug_assert!(ranges.is_none(), "the first loop of a function");
        let write = |e: &mut Self| {
            e.counted_while_needed(l, (begin, end), |_| Ok(()), |e| e.stmts(&l.body))
        };
        self.with_tiles(&body, write)?;
        self.end();
        Ok(())
    }

    pub(crate) fn serial(&mut self, stmts: &[&Stmt]) -> Result<()> {
        self.grouped(stmts)?;
        self.end();
        Ok(())
    }

    pub(super) fn end(&mut self) {
        self.end_stream();
        self.ir.builder.build_return(None).expect("the builder is positioned");
    }

    /// The module and the bytes of scratch that the function needs.
    pub(crate) fn finish(self) -> (Ir<'c>, usize) {
        (self.ir, self.scratch)
    }

    /// Runs `f` with the builder at the end of the head of a frame.
    pub(crate) fn in_head<T>(&mut self, frame: usize, f: impl FnOnce(&mut Self) -> T) -> T {
        let here = self.ir.builder.get_insert_block().expect("the builder is positioned");
        self.ir.position_at(self.frames[frame].head);
        let result = f(self);
        self.ir.position_at(here);
        result
    }

    pub(crate) fn place(&mut self, buffer: BufId) -> Result<Place<'c>> {
        if let Some(place) = self.places[buffer.index()] {
            return Ok(place);
        }
        let argument = self.buffers.arguments.iter().position(|&b| b == buffer);
        let (base, align) = match argument {
            Some(index) if self.is_gpu() => (self.parameter(index), ALIGN as i64),
            None if self.is_gpu() => (self.block_or_thread_memory(buffer), ALIGN as i64),
            Some(index) => (self.argument(index), self.argument_align(buffer)),
            None => (self.private(buffer)?, ALIGN as i64),
        };
        let (scope, noalias) = self.alias_scopes(buffer);
        let place = Place { base, align, scope, noalias };
        self.places[buffer.index()] = Some(place);
        Ok(place)
    }

    pub(crate) fn is_argument(&self, buffer: BufId) -> bool {
        self.buffers.arguments.contains(&buffer)
    }

    /// Memory of the caller may start at any element; workspace is ours.
    fn argument_align(&self, buffer: BufId) -> i64 {
        if self.program.params.contains(&buffer) {
            self.program.buffer(buffer).ty.dtype.size() as i64
        } else {
            ALIGN as i64
        }
    }

    fn argument(&mut self, index: usize) -> PointerValue<'c> {
        let buffers = self.function.get_nth_param(0).expect("a kernel has four parameters");
        self.in_head(0, |e| {
            let offset = e.ir.index(8 * index as i64);
            let at = e.ir.offset(buffers.into_pointer_value(), offset);
            let load = e.ir.load(e.ir.context.ptr_type(Default::default()), at, 8);
            e.ir.mark(load, e.ir.marks.invariant_load, e.ir.marks.nothing);
            load.into_pointer_value()
        })
    }

    /// Memory of a local buffer: stack if it is small, the thread's scratch otherwise.
    fn private(&mut self, buffer: BufId) -> Result<PointerValue<'c>> {
        let info = self.program.buffer(buffer);
        if info.scope == BufferScope::Shared {
            return Err(format!("buffer {} is in shared memory, which a CPU lacks", info.name));
        }
        let copies = self.expanded.get(&buffer).map_or(1, |&n| n as usize);
        let bytes = (info.ty.bytes() * copies).next_multiple_of(ALIGN);
        if bytes <= STACK_BYTES && self.stack + bytes <= STACK_TOTAL {
            self.stack += bytes;
            return Ok(self.in_head(0, |e| e.alloca(buffer, copies)));
        }
        let offset = self.scratch;
        self.scratch += bytes;
        let scratch = self.function.get_nth_param(1).expect("a kernel has four parameters");
        Ok(self
            .in_head(0, |e| e.ir.offset(scratch.into_pointer_value(), e.ir.index(offset as i64))))
    }

    /// The type of `copies` of a buffer, one after the other.
    pub(super) fn array_type(&self, buffer: BufId, copies: usize) -> ArrayType<'c> {
        use inkwell::types::BasicTypeEnum;
        let ty = &self.program.buffer(buffer).ty;
        let lanes = self.lanes_of(buffer).map_or(1, |axis| ty.shape[axis].max(1));
        let count = ty.len().max(1) / lanes * copies;
        let count = u32::try_from(count).expect("a private buffer is small");
        match self.ir.scalar_type(ops::stored(ty.dtype)) {
            BasicTypeEnum::FloatType(t) => t.array_type(count),
            other => other.into_int_type().array_type(count),
        }
    }

    pub(super) fn alloca(&self, buffer: BufId, copies: usize) -> PointerValue<'c> {
        let array = self.array_type(buffer, copies);
        let alloca = self.ir.builder.build_alloca(array, "").expect("the builder is positioned");
        let instruction = alloca.as_instruction_value().expect("an alloca is an instruction");
        instruction.set_alignment(ALIGN as u32).expect("a power of two");
        alloca
    }

    /// Each buffer is an alias scope of its own: buffers do not overlap.
    fn alias_scopes(&self, buffer: BufId) -> (MetadataValue<'c>, MetadataValue<'c>) {
        let context = self.ir.context;
        let name = self.function.get_name().to_string_lossy().into_owned();
        let domain = context.metadata_node(&[context.metadata_string(&name).into()]);
        let scope = |index: usize| {
            let name = context.metadata_string(&format!("{name}.b{index}"));
            context.metadata_node(&[name.into(), domain.into()])
        };
        let others: Vec<_> = (0..self.program.buffers.len())
            .filter(|&i| i != buffer.index())
            .map(|i| scope(i).into())
            .collect();
        (context.metadata_node(&[scope(buffer.index()).into()]), context.metadata_node(&others))
    }
}

/// A function of the type `KernelFn`, without a body.
pub(super) fn kernel<'c>(ir: &Ir<'c>, target: &Target, symbol: &str) -> FunctionValue<'c> {
    let pointer = ir.context.ptr_type(Default::default()).into();
    let index = ir.context.i64_type().into();
    let ty = ir.context.void_type().fn_type(&[pointer, pointer, index, index], false);
    let function = ir.module.add_function(symbol, ty, None);
    describe(ir, function, target);
    function
}

/// Attributes of a function: what the code generator may use, and that nothing unwinds.
pub(crate) fn describe(ir: &Ir<'_>, function: FunctionValue<'_>, target: &Target) {
    use inkwell::attributes::{Attribute, AttributeLoc};
    let width = (8 * target.vector_bytes).to_string();
    let pairs = [
        ("target-cpu", target.base_cpu().to_owned()),
        ("tune-cpu", target.tune.clone()),
        ("target-features", target.feature_string()),
        ("prefer-vector-width", width),
        ("no-trapping-math", "true".to_owned()),
        ("no-builtins", String::new()),
    ];
    // On a CPU the mode is the session's, so that LLVM assumes neither.
    let mode = (target.arch != Arch::Nvptx).then(|| ("denormal-fp-math", "dynamic,dynamic".into()));
    for (key, value) in pairs.into_iter().chain(mode) {
        let attribute = ir.context.create_string_attribute(key, &value);
        function.add_attribute(AttributeLoc::Function, attribute);
    }
    let nounwind = Attribute::get_named_enum_kind_id("nounwind");
    function.add_attribute(AttributeLoc::Function, ir.context.create_enum_attribute(nounwind, 0));
}
