//! parallel, vectorize, unroll, pipeline, bind: how the iterations of a loop are executed.

use super::error::{Cause, Failure, buffer_name};
use super::query::{blocks_under, bound_to, loop_at, loop_at_mut, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::disjoint;
use crate::program::{Ahead, For, ForKind, IterKind, Program, ThreadAxis};
use crate::tree::{self, Path};
use crate::verify::{self, Pair};

impl Schedule {
    /// Iterations run on several threads. The loop is outermost and its iterations are independent.
    pub fn parallel(&mut self, l: LoopRef) -> Result<()> {
        self.set_kind("parallel", l, ForKind::Parallel)
    }

    /// Iterations become lanes of a vector. They are independent, and loops inside are serial or
    /// unrolled ones: each lane runs through them. An unrolled loop and its vector that walk memory
    /// along different axes are a square, which code generation transposes in registers:
    ///
    /// ```text
    /// vectorized l in 0..8 { unrolled u in 0..8 { y[u, l] = x[l, u] } }
    /// ```
    ///
    /// [`reorder`](Schedule::reorder) moves a vector around the loop that contains it, and back. A
    /// local buffer that an iteration has for itself is one in each lane.
    pub fn vectorize(&mut self, l: LoopRef) -> Result<()> {
        self.set_kind("vectorize", l, ForKind::Vectorized)
    }

    /// Iterations are written out one after the other.
    pub fn unroll(&mut self, l: LoopRef) -> Result<()> {
        self.set_kind("unroll", l, ForKind::Unrolled)
    }

    /// Iterations prepare one another: see [`ForKind::Pipelined`].
    pub fn pipeline(&mut self, l: LoopRef, ahead: Ahead) -> Result<()> {
        self.set_kind("pipeline", l, ForKind::Pipelined(ahead))
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
                ForKind::Vectorized => {
                    check_independent(program, target, kind)?;
                    check_vector(program, &path)?;
                }
                ForKind::Unrolled | ForKind::Pipelined(_) | ForKind::Serial => {}
                _ => check_independent(program, target, kind)?,
            }
            loop_at_mut(program, &path).kind = kind;
            Ok(())
        })
    }
}

/// The loop as a vector: no other one is around it or in it, and where loops are inside of it,
/// lanes stay out of each other's way in all of their iterations.
pub(super) fn check_vector(program: &Program, path: &Path) -> std::result::Result<(), Failure> {
    let l = loop_at(program, path);
    let above = tree::loops_above(&program.body, path);
    if let Some(vector) = above.iter().find(|l| l.kind == ForKind::Vectorized) {
        return Err(Cause::NestedVectors.at_loop(LoopRef(vector.var)));
    }
    let mut inner = vec![];
    tree::visit_loops(&l.body, &mut |l| inner.push((l.var, l.kind)));
    for &(var, kind) in &inner {
        match kind {
            ForKind::Serial | ForKind::Unrolled => {}
            ForKind::Vectorized => return Err(Cause::NestedVectors.at_loop(LoopRef(var))),
            kind => return Err(Cause::Kind(kind).at_loop(LoopRef(var))),
        }
    }
    if inner.is_empty() { Ok(()) } else { check_apart(program, l) }
}

/// No two iterations touch the same element, if one of them writes it.
pub(super) fn check_apart(program: &Program, l: &For) -> std::result::Result<(), Failure> {
    match verify::meeting(program, l.var, |pair| !pair.private) {
        Some(Pair { block, other, buffer, .. }) if l.extent > 1 => {
            let buffer = buffer_name(program, buffer);
            Err(Cause::Dependent { block, other, buffer }.at_loop(LoopRef(l.var)))
        }
        _ => Ok(()),
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
