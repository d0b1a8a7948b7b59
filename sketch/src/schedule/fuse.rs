//! fuse: nested loops as one.
//!
//! ```text
//! for i in 0..4 { for j in 0..6 { .. i .. j .. } }
//! => fuse([i, j])
//! for i_j in 0..24 { .. i_j // 6 .. i_j % 6 .. }
//! ```

use ansc_graph::{BinOp, Expr};

use super::error::{Cause, Failure};
use super::query::{loop_at, loop_at_mut, loop_path, serves, simplify_under};
use super::{LoopRef, Result, Schedule};
use crate::program::{For, ForKind, IterKind, Program, Shared, Stmt};
use crate::tree::{self, Path};

impl Schedule {
    /// Fuses loops, the outermost given first, of which each contains nothing but the next one.
    pub fn fuse(&mut self, loops: &[LoopRef]) -> Result<LoopRef> {
        let apply = |program: &mut Program| {
            let (&first, rest) = loops.split_first().ok_or(Cause::NoLoops)?;
            loop_path(program, first)?;
            rest.iter().try_fold(first, |fused, &next| fuse(program, fused, next))
        };
        // A pair is checked before it is fused; the second pair may fail after that.
        if loops.len() > 2 && !is_fusible(&self.program, loops) {
            return self.apply("fuse", apply);
        }
        self.apply_in_place("fuse", apply)
    }
}

/// Whether certainly every pair can be fused: a chain of serial loops, none of which serves
/// reductions.
fn is_fusible(program: &Program, loops: &[LoopRef]) -> bool {
    let Ok(path) = loop_path(program, loops[0]) else { return false };
    let mut at = loop_at(program, &path);
    let mut extent = Some(at.extent);
    for next in &loops[1..] {
        let [Stmt::For(inner)] = at.body.as_slice() else { return false };
        if at.kind != ForKind::Serial || inner.var != next.0 {
            return false;
        }
        extent = extent.and_then(|n| n.checked_mul(inner.extent));
        at = inner;
    }
    let reduces = |l: &LoopRef| serves(at, l.0, IterKind::Reduce);
    at.kind == ForKind::Serial && extent.is_some() && !loops.iter().any(reduces)
}

fn fuse(
    program: &mut Program,
    outer: LoopRef,
    inner: LoopRef,
) -> std::result::Result<LoopRef, Failure> {
    let path = loop_path(program, outer)?;
    loop_path(program, inner)?;
    let fused_extent = check(program, &path, outer, inner)?;
    let name = format!("{}_{}", program.vars[outer.0.index()], program.vars[inner.0.index()]);
    let var = program.add_var(name);
    let outer_loop = loop_at_mut(program, &path);
    let Some(Stmt::For(inner_loop)) = outer_loop.body.pop() else {
        unreachable!("checked to contain the inner loop")
    };
    let For { extent, mut body, .. } = inner_loop.into_inner();
    let divisor = extent.max(1);
    let part = |op| Expr::binary(op, Expr::Var(var), Expr::index(divisor));
    tree::visit_blocks_mut(&mut body, &mut |block| {
        block.substitute_loops(&|v| match v {
            v if v == outer.0 => Some(part(BinOp::FloorDiv)),
            v if v == inner.0 => Some(part(BinOp::FloorMod)),
            _ => None,
        });
    });
    let fused = For { var, extent: fused_extent, kind: ForKind::Serial, body };
    tree::splice(&mut program.body, &path, vec![Stmt::For(Shared::new(fused))]);
    simplify_under(program, &path, &[var]);
    Ok(LoopRef(var))
}

/// The extent of the fused loop.
fn check(
    program: &Program,
    path: &Path,
    outer: LoopRef,
    inner: LoopRef,
) -> std::result::Result<usize, Failure> {
    let outer_loop = loop_at(program, path);
    let [Stmt::For(inner_loop)] = outer_loop.body.as_slice() else {
        return Err(Cause::NotAChain.at_loop(inner));
    };
    if inner_loop.var != inner.0 {
        return Err(Cause::NotAChain.at_loop(inner));
    }
    for l in [outer_loop, inner_loop] {
        if l.kind != ForKind::Serial {
            return Err(Cause::Kind(l.kind).at_loop(LoopRef(l.var)));
        }
    }
    let reduces = |v| serves(inner_loop, v, IterKind::Reduce);
    let spatial = |v| serves(inner_loop, v, IterKind::Spatial);
    if (reduces(outer.0) && spatial(inner.0)) || (spatial(outer.0) && reduces(inner.0)) {
        return Err(Cause::MixedLoops.at_loop(inner));
    }
    let extent = outer_loop.extent.checked_mul(inner_loop.extent);
    extent.ok_or_else(|| Cause::TooLarge.at_loop(inner))
}
