//! Intrinsics: what a nest does, and a way to do it that is worth having.
//!
//! Both are small programs over the same parameters. The description is one block that updates (or assigns) a
//! result under serial loops; the implementation is any program that does the same to what the results hold
//! before. [`Intrinsic::new`] runs both to see that they agree, so that `tensorize` may put one in place of the other.
//!
//! ```text
//! description                                             implementation
//! for i in 0..16 { for k in 0..4 { c[i] sum= a[k] * b[i, k] } }  for k in 0..4 unrolled { for i in 0..16 vectorized { .. } }
//! ```

mod built_in;
mod registry;
mod verify;

#[cfg(test)]
mod tests;

pub use registry::{find, names, register};

use std::collections::BTreeSet;

use ansc_graph::{BufId, Expr};

use crate::exec::ExecError;
use crate::program::{Block, For, ForKind, Iter, Program, Scope, Stmt};

/// A verified pair of programs.
#[derive(Clone, PartialEq, Debug)]
pub struct Intrinsic {
    name: String,
    description: Program,
    implementation: Program,
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
        Ok(Intrinsic { name: name.into(), description, implementation })
    }

    /// Schedules and traces name it by this.
    pub fn name(&self) -> &str {
        &self.name
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
