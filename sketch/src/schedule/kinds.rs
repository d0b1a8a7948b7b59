//! parallel, vectorize, unroll, pipeline, bind: how the iterations of a loop are executed.

use super::error::{Cause, Failure, buffer_name};
use super::query::{blocks_under, bound_to, loop_at, loop_at_mut, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::disjoint;
use crate::program::{For, ForKind, IterKind, Program, Stmt, ThreadAxis};

impl Schedule {
    /// Iterations run on several threads. The loop is outermost and its iterations are independent.
    pub fn parallel(&mut self, l: LoopRef) -> Result<()> {
        self.set_kind("parallel", l, ForKind::Parallel)
    }

    /// Iterations become lanes of a vector. The loop is innermost and its iterations are independent.
    pub fn vectorize(&mut self, l: LoopRef) -> Result<()> {
        self.set_kind("vectorize", l, ForKind::Vectorized)
    }

    /// Iterations are written out one after the other.
    pub fn unroll(&mut self, l: LoopRef) -> Result<()> {
        self.set_kind("unroll", l, ForKind::Unrolled)
    }

    /// Iterations prepare one another: see [`ForKind::Pipelined`].
    pub fn pipeline(&mut self, l: LoopRef) -> Result<()> {
        self.set_kind("pipeline", l, ForKind::Pipelined)
    }

    /// Iterations are those of an axis of the thread grid.
    pub fn bind(&mut self, l: LoopRef, axis: ThreadAxis) -> Result<()> {
        self.set_kind("bind", l, ForKind::Bound(axis))
    }

    fn set_kind(&mut self, primitive: &'static str, l: LoopRef, kind: ForKind) -> Result<()> {
        self.apply_in_place(primitive, |program| {
            let path = loop_path(program, l)?;
            let target = loop_at(program, &path);
            if target.kind != ForKind::Serial {
                return Err(Cause::Kind(target.kind).at_loop(l));
            }
            match kind {
                ForKind::Parallel if path.len() != 1 => return Err(Cause::NotOutermost.at_loop(l)),
                ForKind::Vectorized if target.body.iter().any(|s| matches!(s, Stmt::For(_))) => {
                    return Err(Cause::NotInnermost.at_loop(l));
                }
                ForKind::Unrolled | ForKind::Pipelined | ForKind::Serial => {}
                _ => check_independent(program, target, kind)?,
            }
            loop_at_mut(program, &path).kind = kind;
            Ok(())
        })
    }
}

/// As a loop of `kind`: no block reduces over it, and no two iterations write the same element.
fn check_independent(
    program: &Program,
    l: &For,
    kind: ForKind,
) -> std::result::Result<(), Failure> {
    for block in blocks_under(l) {
        if bound_to(block, IterKind::Reduce).contains(&l.var) {
            return Err(Cause::ReductionLoop(block.name.clone()).at_loop(LoopRef(l.var)));
        }
    }
    match disjoint::shared_write(program, l, kind) {
        None => Ok(()),
        Some((block, buffer)) => {
            let buffer = buffer_name(program, buffer);
            Err(Cause::SharedWrites { block, buffer }.at_loop(LoopRef(l.var)))
        }
    }
}
