//! The program IR: blocks under loops over buffers.
//!
//! # Semantics
//! - A program is a sequence of statements. Buffers are dense, row-major, and do not overlap.
//! - A [`Block`] executes its body once per iteration of the loops around it, with each block
//!   iterator set to its binding (an expression over loop variables), where `predicate` holds.
//!   Instances of a block that differ in a spatial iterator are independent; reduction iterators
//!   may be reordered (floating-point sums are reassociated by schedules), but the terms of an
//!   `ArgReduce` come in increasing order.
//! - Names of blocks are unique. Every loop and every block iterator has a variable of its own.
//!   The parts of a predicate (joined by `And`) depend on spatial or on reduction iterators, not on both.
//! - `Body::Reduce` with `init` set: the destination is initialised with the combiner's identity
//!   before its first term. `decompose_reduction` splits such a block into an assignment of the identity and
//!   a reduction without `init`.
//! - A `Parallel` loop is the outermost loop of a statement of the root, and its iterations touch
//!   disjoint parts of every buffer they write. `Vectorized` and `Unrolled` loops have constant extents
//!   like all others; a vectorised loop runs over spatial iterators only.
//! - A `Bound` loop runs over the threads of a GPU; executed in order, its iterations compute the same. All loops
//!   along one axis under a statement of the root run over the same threads, of which the shorter ones use the first.
//!   Threads wait for one another wherever one needs what another one did: barriers are not written down (see
//!   [`gpu`](crate::gpu)). `Virtual` threads are parts of one thread, interleaved.
//! - Buffers of scope `Shared` are private to a thread block: their content does not outlive one iteration of the
//!   innermost loop, those over threads left out, that contains all of their accesses. Bound loops further out than the accesses repeat what is written to them.
//! - Buffers of scope `Local` are private to one iteration of the loop nest they are used in: to the
//!   innermost loop that contains all of their accesses. Their content does not outlive it.
//! - Every index that is evaluated under its predicates and selects is in bounds.

mod code_hash;
pub mod verify;

use ansc_graph::{BufId, Combiner, Expr, TensorType, VarId};

#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    pub name: String,
    /// `BufId` indexes this.
    pub buffers: Vec<Buffer>,
    /// Inputs, then outputs: the arguments of the kernel, in the order of the `Compute`.
    pub params: Vec<BufId>,
    /// `VarId` indexes this: the name of each variable, loops and block iterators alike.
    pub vars: Vec<String>,
    pub body: Vec<Stmt>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    pub name: String,
    pub ty: TensorType,
    pub scope: Scope,
    /// What `finish` is to make of the stride of an axis.
    pub align: Option<Align>,
}

/// The stride of `axis`, in elements, is `offset` more than a multiple of `factor`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Align {
    pub axis: usize,
    pub factor: usize,
    pub offset: usize,
}

impl Buffer {
    pub fn new(name: impl Into<String>, ty: TensorType, scope: Scope) -> Buffer {
        Buffer { name: name.into(), ty, scope, align: None }
    }
}

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
}

#[derive(Clone, PartialEq, Debug)]
pub enum Stmt {
    For(Box<For>),
    Block(Box<Block>),
}

/// `for var in 0..extent`.
#[derive(Clone, PartialEq, Debug)]
pub struct For {
    pub var: VarId,
    pub extent: usize,
    pub kind: ForKind,
    pub body: Vec<Stmt>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ForKind {
    Serial,
    Parallel,
    Vectorized,
    Unrolled,
    /// What an iteration copies to shared memory is on its way while the one before it computes. A hint for GPUs,
    /// which have asynchronous copies (see [`gpu`](crate::gpu)); anywhere else a serial loop.
    Pipelined,
    Bound(ThreadAxis),
}

#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ThreadAxis {
    BlockX,
    BlockY,
    BlockZ,
    ThreadX,
    ThreadY,
    ThreadZ,
    Virtual,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    pub name: String,
    pub iters: Vec<Iter>,
    /// Over loop variables and block iterators: a `bool`; the body is skipped where it is false.
    pub predicate: Option<Expr>,
    pub body: Body,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Iter {
    pub var: VarId,
    pub extent: usize,
    pub kind: IterKind,
    /// Over loop variables.
    pub binding: Expr,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IterKind {
    Spatial,
    Reduce,
}

/// One element of a buffer; indices are over block iterators.
#[derive(Clone, PartialEq, Debug)]
pub struct Access {
    pub buffer: BufId,
    pub indices: Vec<Expr>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// `dst = value`
    Assign { dst: Access, value: Expr },
    /// `dst = combine(dst, value)`; the combiner is not an arg-combiner.
    Reduce { combiner: Combiner, dst: Access, value: Expr, init: bool },
    /// `(best, position)` is replaced by `(value, term)` where the value is better by the combiner's order,
    /// or is the first one. `term` is the row-major position in the reduction domain.
    ArgReduce {
        combiner: Combiner,
        best: Access,
        position: Access,
        value: Expr,
        term: Expr,
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
    pub fn buffer(&self, id: BufId) -> &Buffer {
        &self.buffers[id.index()]
    }

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
        let mut candidates =
            std::iter::once(base.to_owned()).chain((1..).map(|n| format!("{base}_{n}")));
        candidates
            .find(|name| blocks.iter().all(|b| b.name != *name))
            .expect("numbers do not run out")
    }

    /// `base`, or `base_1`, ... if a buffer has that name.
    pub fn fresh_buffer_name(&self, base: &str) -> String {
        let mut candidates =
            std::iter::once(base.to_owned()).chain((1..).map(|n| format!("{base}_{n}")));
        candidates
            .find(|name| self.buffers.iter().all(|b| b.name != *name))
            .expect("numbers do not run out")
    }

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
    /// What the body writes.
    pub fn writes(&self) -> Vec<&Access> {
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

    pub fn value(&self) -> &Expr {
        match self {
            Body::Assign { value, .. }
            | Body::Reduce { value, .. }
            | Body::ArgReduce { value, .. } => value,
        }
    }
}
