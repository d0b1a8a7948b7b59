//! Intrinsics: what a nest does, and a way to do it that is worth having.
//!
//! Both are small programs over the same parameters. The description is one block that updates (or
//! assigns) a result under serial loops; the implementation is any program that does the same to
//! what the results hold before. [`Intrinsic::new`] runs both to see that they agree, so that
//! `tensorize` may put one in place of the other.
//!
//! Some intrinsics are an instruction of a unit for matrices ([`Native`]): the implementation is
//! the description itself, with a mark at its outermost loop that says so. Code generation emits
//! the instruction where the target has the unit, and the loops elsewhere; the interpreter runs the
//! loops.
//!
//! ```text
//! description                                             implementation
//! for i in 0..16 { for k in 0..4 { c[i] sum= a[k] * b[i, k] } }  for k in 0..4 unrolled { for i in 0..16 vectorized { .. } }
//! ```

pub mod amx;
mod built_in;
mod description;
mod factors;
pub mod mma;
mod registry;
mod verify;

#[cfg(test)]
mod tests;

pub use registry::{find, names, register};
#[cfg(test)]
pub(crate) use verify::operand;

use std::collections::BTreeSet;

use ansc_graph::{BufId, Expr};

pub use amx::AmxOp;
pub use mma::MmaOp;

use crate::exec::ExecError;
use crate::machine::Machine;
use crate::program::{Block, For, ForKind, IntrinsicName, Iter, Program, Scope, Stmt};

/// A unit of a processor that an instruction belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
    /// Tiles, and products of pairs of `bf16`.
    AmxBf16,
    /// Tiles, and products of four bytes each.
    AmxInt8,
    /// Products of matrices by the warps of a GPU, from compute capability 8.0 on.
    Mma,
}

impl Unit {
    /// Whether the machine has it.
    pub fn is_of(self, machine: &Machine) -> bool {
        match self {
            Unit::AmxBf16 => machine.units.amx_bf16,
            Unit::AmxInt8 => machine.units.amx_int8,
            Unit::Mma => machine.units.mma,
        }
    }
}

/// An instruction of a unit for matrices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NativeOp {
    /// On tiles of AMX.
    Amx(AmxOp),
    /// A warp of a GPU.
    Mma(MmaOp),
}

/// How code generation emits an intrinsic as one instruction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Native {
    /// The instruction.
    pub op: NativeOp,
    /// The unit that the target must have.
    pub unit: Unit,
    /// Cycles that the unit is busy with it.
    pub cycles: f64,
}

/// A verified pair of programs.
#[derive(Clone, PartialEq, Debug)]
pub struct Intrinsic {
    name: IntrinsicName,
    description: Program,
    implementation: Program,
    native: Option<Native>,
}

/// Why there is no such intrinsic.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum IntrinsicError {
    /// The description has another form.
    #[error("the description is not one block under serial loops that are its iterators")]
    Description,
    /// The two programs are called with other buffers.
    #[error("the description and the implementation have other parameters")]
    Parameters,
    /// The block of the description does not use all parameters, or uses more.
    #[error("the description uses other buffers than its parameters")]
    Buffers,
    /// A program of the two fails in the interpreter.
    #[error("it cannot be run: {0}")]
    Run(#[from] ExecError),
    /// The two programs give different results on the same data.
    #[error("the implementation computes something else")]
    Different,
    /// A name stands for one intrinsic only.
    #[error("there is an intrinsic `{0}` already")]
    Registered(String),
}

impl Intrinsic {
    /// Runs both programs, and refuses them if they differ.
    pub fn new(
        name: impl Into<String>,
        description: Program,
        implementation: Program,
    ) -> Result<Intrinsic, IntrinsicError> {
        let (_, block) = nest(&description).ok_or(IntrinsicError::Description)?;
        let params: BTreeSet<BufId> = description.params.iter().copied().collect();
        if block.buffers() != params {
            return Err(IntrinsicError::Buffers);
        }
        verify::same(&description, &implementation)?;
        let name = registry::interned(&name.into());
        Ok(Intrinsic { name, description, implementation, native: None })
    }

    /// One instruction, which does what the description says.
    fn native(
        name: &str,
        description: Program,
        native: Native,
    ) -> Result<Intrinsic, IntrinsicError> {
        nest(&description).ok_or(IntrinsicError::Description)?;
        let name = registry::interned(name);
        let mut implementation = description.clone();
        if let Some(Stmt::For(outermost)) = implementation.body.first_mut() {
            outermost.kind = ForKind::Tensor(name);
        }
        Ok(Intrinsic { name, description, implementation, native: Some(native) })
    }

    /// Schedules and traces name it by this.
    pub fn name(&self) -> IntrinsicName {
        self.name
    }

    /// The instruction that it is, if it is one.
    pub fn as_native(&self) -> Option<&Native> {
        self.native.as_ref()
    }

    /// The nest that `tensorize` looks for.
    pub fn description(&self) -> &Program {
        &self.description
    }

    /// The program that `tensorize` puts in its place.
    pub fn implementation(&self) -> &Program {
        &self.implementation
    }

    /// The loops of the description and its block.
    pub(crate) fn nest(&self) -> (Vec<&For>, &Block) {
        nest(&self.description).expect("checked when it was made")
    }
}

/// The loops and the block of a program that is one block under loops that are its iterators.
fn nest(program: &Program) -> Option<(Vec<&For>, &Block)> {
    let mut loops: Vec<&For> = vec![];
    let mut stmts = &program.body;
    loop {
        match stmts.as_slice() {
            [Stmt::For(l)] if l.kind == ForKind::Serial => {
                loops.push(l);
                stmts = &l.body;
            }
            [Stmt::Block(block)] => {
                let plain =
                    |(l, i): (&&For, &Iter)| i.binding == Expr::Var(l.var) && i.extent == l.extent;
                let fits = loops.len() == block.iters.len()
                    && block.predicate.is_none()
                    && loops.iter().zip(&block.iters).all(plain);
                return fits.then_some((loops, &**block));
            }
            _ => return None,
        }
    }
}

fn is_result(program: &Program, buffer: BufId) -> bool {
    program.buffer(buffer).scope == Scope::Output
}
