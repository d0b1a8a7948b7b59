//! The program IR: blocks under loops over buffers.
//!
//! # Semantics
//! - A program is a sequence of statements. Buffers are dense, row-major, and do not overlap.
//! - A [`Block`] executes its body once per iteration of the loops around it, with each block
//!   iterator set to its binding (an expression over loop variables), where `predicate` holds.
//!   Instances of a block that differ in a spatial iterator are independent; reduction iterators
//!   may be reordered (floating-point sums are reassociated by schedules), but the terms of an
//!   `ArgReduce` come in increasing order.
//! - Names of blocks are unique. Every loop and every block iterator has a variable of its own. The
//!   parts of a predicate (joined by `And`) depend on spatial or on reduction iterators, not on
//!   both.
//! - `Body::Reduce` with `init` set: the destination is initialised with the combiner's identity
//!   before its first term. `decompose_reduction` splits such a block into an assignment of the
//!   identity and a reduction without `init`.
//! - A `Parallel` loop is the outermost loop of a statement of the root, and its iterations touch
//!   disjoint parts of every buffer they write. `Vectorized` and `Unrolled` loops have constant
//!   extents like all others; a vectorised loop runs over spatial iterators only.
//! - A `Bound` loop runs over the threads of a GPU; executed in order, its iterations compute the
//!   same. All loops along one axis under a statement of the root run over the same threads, of
//!   which the shorter ones use the first. Threads wait for one another wherever one needs what
//!   another one did: barriers are not written down (see [`gpu`](crate::gpu)). `Virtual` threads
//!   are parts of one thread, interleaved.
//! - Buffers of scope `Shared` are private to a thread block: their content does not outlive one
//!   iteration of the innermost loop, those over threads left out, that contains all of their
//!   accesses. Bound loops further out than the accesses repeat what is written to them.
//! - Buffers of scope `Local` are private to one iteration of the loop nest they are used in: to
//!   the innermost loop that contains all of their accesses. Their content does not outlive it.
//! - Buffers of scope `Fragment` are like those of scope `Local`, but those of a GPU belong to a
//!   warp: its lanes, the threads along x, use them together in `Tensor` loops, and each reads by
//!   itself what it holds (see [`gpu`](crate::gpu)). A `Tensor` loop and the loops in it contain
//!   one block, and do what the description of its intrinsic says; whoever cannot emit that
//!   executes the loops.
//! - Every index that is evaluated under its predicates and selects is in bounds.

mod extents;
mod shared;

pub use shared::Shared;

use ansc_graph::text::unused;
use ansc_graph::{BufId, Combiner, Expr, TensorType, VarId};

/// A kernel: loops and blocks over buffers, as the module describes them.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The kernel's name, from which those of functions are made.
    pub name: String,
    /// `BufId` indexes this.
    pub buffers: Shared<Vec<Buffer>>,
    /// Inputs, then outputs: the arguments of the kernel, in the order of the `Compute`.
    pub params: Vec<BufId>,
    /// `VarId` indexes this: the name of each variable, loops and block iterators alike.
    pub vars: Shared<Vec<String>>,
    /// Statements that run one after another.
    pub body: Vec<Stmt>,
    /// Conditions over loops, by the variable of the innermost one: an iteration of it for which
    /// the condition does not hold may be left out, with all that it writes. A condition loads
    /// nothing but scalars among the inputs.
    pub needs: Vec<(VarId, Expr)>,
}

/// A tensor that a program reads or writes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    /// How texts of the program call it.
    pub name: String,
    /// The type of its elements, and its extents.
    pub ty: TensorType,
    /// Whose memory it lies in, and who sees it.
    pub scope: Scope,
    /// The stride that `finish` is to give an axis, if any.
    pub align: Option<Align>,
}

/// The stride of `axis`, in elements, is `offset` more than a multiple of `factor`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Align {
    /// The axis whose stride is asked for.
    pub axis: usize,
    /// The stride is a multiple of this many elements, and `offset`.
    pub factor: usize,
    /// Elements beyond the multiple, which keep rows apart in the banks of a memory.
    pub offset: usize,
}

impl Buffer {
    /// A buffer of any layout.
    pub fn new(name: impl Into<String>, ty: TensorType, scope: Scope) -> Buffer {
        Buffer { name: name.into(), ty, scope, align: None }
    }
}

/// Where a buffer lies, and who sees it.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Read only, given by the caller.
    Input,
    /// Written completely, given by the caller.
    Output,
    /// Workspace of the kernel, shared by all threads.
    Global,
    /// Registers or stack of one thread.
    Local,
    /// Shared memory of a thread block (GPU).
    Shared,
    /// Registers of a unit for matrices, private like `Local`: loops of the kind
    /// [`Tensor`](ForKind::Tensor) use them, and on a GPU each lane of a warp reads what it holds.
    /// On a CPU without such a unit they are memory.
    Fragment,
}

impl Scope {
    /// Whether each iteration of the loops around all accesses has a buffer for itself.
    pub fn is_private(self) -> bool {
        matches!(self, Scope::Local | Scope::Fragment)
    }
}

/// A loop, or the work of one point of loops.
#[derive(Clone, PartialEq, Debug)]
pub enum Stmt {
    /// Repeats statements.
    For(Shared<For>),
    /// Executes a body once.
    Block(Shared<Block>),
}

/// `for var in 0..extent`.
#[derive(Clone, PartialEq, Debug)]
pub struct For {
    /// The variable that counts from 0.
    pub var: VarId,
    /// How many iterations there are.
    pub extent: usize,
    /// How iterations are executed.
    pub kind: ForKind,
    /// Statements of one iteration.
    pub body: Vec<Stmt>,
}

/// How the iterations of a loop are executed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ForKind {
    /// One after another.
    Serial,
    /// On all threads of the pool at once.
    Parallel,
    /// Side by side in the lanes of vectors.
    Vectorized,
    /// One after another, written out.
    Unrolled,
    /// The copies of an iteration to shared memory are begun so many iterations early, and are on
    /// their way while those compute. A hint for GPUs, which have asynchronous copies (see
    /// [`gpu`](crate::gpu)); anywhere else a serial loop.
    Pipelined(Ahead),
    /// One for each thread of a GPU along an axis.
    Bound(ThreadAxis),
    /// All that is inside is one instruction, which does what the nest says: serial loops, in
    /// order, compute the same (see [`intrinsic`](crate::intrinsic)).
    Tensor(IntrinsicName),
}

/// The name of a registered intrinsic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct IntrinsicName(pub(crate) &'static str);

impl IntrinsicName {
    /// As traces and texts of programs have it.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl std::fmt::Display for IntrinsicName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Iterations that copies are ahead of what uses them: at least one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ahead(u8);

impl Ahead {
    /// All that there are. A further one would take more shared memory than it saves time.
    pub const ALL: [Ahead; 4] = [Ahead(1), Ahead(2), Ahead(3), Ahead(4)];

    /// So many iterations, if copies can be as far ahead.
    pub fn new(iterations: usize) -> Option<Ahead> {
        Ahead::ALL.into_iter().find(|ahead| ahead.get() == iterations)
    }

    /// Iterations.
    pub fn get(self) -> usize {
        usize::from(self.0)
    }
}

/// The parts of a GPU that the iterations of a loop are spread over.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ThreadAxis {
    /// Thread blocks along x.
    BlockX,
    /// Thread blocks along y.
    BlockY,
    /// Thread blocks along z.
    BlockZ,
    /// Threads of a block along x.
    ThreadX,
    /// Threads of a block along y.
    ThreadY,
    /// Threads of a block along z.
    ThreadZ,
    /// Interleaved parts of one thread.
    Virtual,
}

/// A statement with iterators of its own, so that loops around it can change.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// Unique in the program; schedules find the block by it.
    pub name: String,
    /// The axes of its computation, which are bound to the loops around it.
    pub iters: Vec<Iter>,
    /// Over loop variables and block iterators: a `bool`; the body is skipped where it is false.
    pub predicate: Option<Expr>,
    /// The work at one point.
    pub body: Body,
}

/// A block iterator: an axis of the computation, whatever loops it is made of.
#[derive(Clone, PartialEq, Debug)]
pub struct Iter {
    /// The variable that the body uses.
    pub var: VarId,
    /// The axis has the points `0..extent`.
    pub extent: usize,
    /// Whether points are independent or terms of a reduction.
    pub kind: IterKind,
    /// Over loop variables.
    pub binding: Expr,
}

/// Whether the points of an iterator are independent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IterKind {
    /// Instances at different points are independent.
    Spatial,
    /// Points are the terms of a reduction, which may come in another order.
    Reduce,
}

/// One element of a buffer; indices are over block iterators.
#[derive(Clone, PartialEq, Debug)]
pub struct Access {
    /// The buffer that is accessed.
    pub buffer: BufId,
    /// One index for each of its axes.
    pub indices: Vec<Expr>,
}

/// The work of a block at one point.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// `dst = value`
    Assign {
        /// The element that is written.
        dst: Access,
        /// The value that is written there.
        value: Expr,
    },
    /// `dst = combine(dst, value)`; the combiner is not an arg-combiner.
    Reduce {
        /// How a term and the result so far become one.
        combiner: Combiner,
        /// The result.
        dst: Access,
        /// The term.
        value: Expr,
        /// Whether the result begins with the combiner's identity before the first term.
        init: bool,
    },
    /// `(best, position)` is replaced by `(value, term)` where the value is better by the
    /// combiner's order, or is the first one. `term` is the row-major position in the reduction
    /// domain.
    ArgReduce {
        /// `ArgMax` or `ArgMin`.
        combiner: Combiner,
        /// The best value so far.
        best: Access,
        /// The place of that value.
        position: Access,
        /// The value of this term.
        value: Expr,
        /// The place of this term.
        term: Expr,
        /// Whether the first term replaces whatever was there.
        init: bool,
    },
}

impl ThreadAxis {
    /// Along which the threads of one block, or parts of one thread, are counted.
    pub fn is_inside_block(self) -> bool {
        !matches!(self, ThreadAxis::BlockX | ThreadAxis::BlockY | ThreadAxis::BlockZ)
    }
}

impl ForKind {
    /// Whether iterations are threads of one block, or parts of one thread.
    pub fn is_inside_block(self) -> bool {
        matches!(self, ForKind::Bound(axis) if axis.is_inside_block())
    }
}

impl Program {
    /// A program that does nothing.
    pub fn new(name: &str) -> Program {
        Program {
            name: name.into(),
            buffers: Shared::new(vec![]),
            params: vec![],
            vars: Shared::new(vec![]),
            body: vec![],
            needs: vec![],
        }
    }

    /// The condition without which an iteration of a loop may be left out.
    pub fn need(&self, var: VarId) -> Option<&Expr> {
        self.needs.iter().find(|(of, _)| *of == var).map(|(_, condition)| condition)
    }

    /// The buffer of that id.
    pub fn buffer(&self, id: BufId) -> &Buffer {
        &self.buffers[id.index()]
    }

    /// Adds a buffer, and gives its id.
    pub fn add_buffer(&mut self, name: impl Into<String>, ty: TensorType, scope: Scope) -> BufId {
        self.buffers.push(Buffer::new(name, ty, scope));
        BufId::new(self.buffers.len() - 1)
    }

    /// Every block, in program order.
    pub fn blocks(&self) -> Vec<&Block> {
        let mut blocks = vec![];
        self.body.iter().for_each(|s| s.visit_blocks(&mut |b| blocks.push(b)));
        blocks
    }

    /// `base`, or `base_1`, ... if a block has that name.
    pub fn fresh_block_name(&self, base: &str) -> String {
        let blocks = self.blocks();
        unused(base, |name| blocks.iter().any(|b| b.name == name))
    }

    /// `base`, or `base_1`, ... if a buffer has that name.
    pub fn fresh_buffer_name(&self, base: &str) -> String {
        unused(base, |name| self.buffers.iter().any(|b| b.name == name))
    }

    /// Adds a variable of a loop or iterator, and gives its id.
    pub fn add_var(&mut self, name: impl Into<String>) -> VarId {
        self.vars.push(name.into());
        VarId::new(self.vars.len() - 1)
    }
}

impl Stmt {
    /// Calls `f` on every block below, in program order.
    pub fn visit_blocks<'a>(&'a self, f: &mut impl FnMut(&'a Block)) {
        match self {
            Stmt::Block(block) => f(block),
            Stmt::For(l) => l.body.iter().for_each(|s| s.visit_blocks(f)),
        }
    }
}

impl Body {
    /// The accesses that the body writes.
    pub fn writes(&self) -> Vec<&Access> {
        match self {
            Body::Assign { dst, .. } | Body::Reduce { dst, .. } => vec![dst],
            Body::ArgReduce { best, position, .. } => vec![best, position],
        }
    }

    pub(crate) fn writes_mut(&mut self) -> Vec<&mut Access> {
        match self {
            Body::Assign { dst, .. } | Body::Reduce { dst, .. } => vec![dst],
            Body::ArgReduce { best, position, .. } => vec![best, position],
        }
    }

    pub(crate) fn value_mut(&mut self) -> &mut Expr {
        match self {
            Body::Assign { value, .. }
            | Body::Reduce { value, .. }
            | Body::ArgReduce { value, .. } => value,
        }
    }

    /// The value that is assigned, or the term of a reduction.
    pub fn value(&self) -> &Expr {
        match self {
            Body::Assign { value, .. }
            | Body::Reduce { value, .. }
            | Body::ArgReduce { value, .. } => value,
        }
    }
}
