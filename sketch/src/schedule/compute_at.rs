//! compute_at: a producer moves under a loop of its consumers.
//!
//! In each iteration it computes the part that the blocks under the loop need. Parts may overlap;
//! then elements are computed more than once. What the guards of those blocks forbid them to read
//! is no part (`region`).
//!
//! ```text
//! for i in 0..8 { t[i] = .. }   for i0 in 0..2 { for i1 in 0..4 { u[i0 * 4 + i1] = t[i0 * 4 + i1] } }
//! => compute_at(t, i0)
//! for i0 in 0..2 { for i in 0..4 { t[i0 * 4 + i] = .. }   for i1 in 0..4 { u[..] = t[..] } }
//! ```

use ansc_graph::{BufId, Expr, VarId};

use super::error::{Cause, Failure};
use super::moves::{
    check_neighbours, check_only_writer, check_order, check_parallel_after_move, contains,
    insert_under, is_internal, loops_below, names, plain_indices, readers, remove_block, renest,
};
use super::query::{block_at, block_path, loop_at, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::affine::Extents;
use crate::disjoint::bound;
use crate::program::{Block, ForKind, IterKind, Program, Scope};
use crate::region::{self, Span};
use crate::tree::{self, Path};

impl Schedule {
    /// Moves `block` under the loop `l`, which contains all that reads what it writes.
    pub fn compute_at(&mut self, block: &str, l: LoopRef) -> Result<()> {
        self.apply("compute_at", |program| compute_at(program, block, l))
    }
}

fn compute_at(program: &mut Program, name: &str, l: LoopRef) -> std::result::Result<(), Failure> {
    let path = block_path(program, name)?;
    let target = loop_path(program, l)?;
    let block = block_at(program, &path).clone();
    check_target(program, &target, l)?;
    check_only_writer(program, &path)?;
    check_neighbours(program, &path, &target)?;
    let readers = consumers(program, &block, &target)?;
    let spans = required(program, &block, &readers, l)?;

    let consumers = names(program, &readers);
    let before = program.body.clone();
    remove_block(program, &path);
    let nest = renest(program, block, &spans);
    let target = loop_path(program, l)?;
    let body = &loop_at(program, &target).body;
    let first = body.iter().position(|s| contains(s, &consumers)).unwrap_or(0);
    insert_under(program, l, first, nest)?;
    check_order(program, name)?;
    check_parallel_after_move(program, &before)
}

pub(super) fn check_target(
    program: &Program,
    target: &Path,
    l: LoopRef,
) -> std::result::Result<(), Failure> {
    match loop_at(program, target).kind {
        kind @ ForKind::Vectorized => Err(Cause::Kind(kind).at_loop(l)),
        _ => Ok(()),
    }
}

/// The blocks that read what `block` writes: all under the loop at `target`, at least one.
fn consumers(
    program: &Program,
    block: &Block,
    target: &Path,
) -> std::result::Result<Vec<Path>, Failure> {
    let mut all = vec![];
    for access in block.body.writes() {
        if !is_internal(program, access.buffer) {
            return Err(Cause::WritesResult.at_block(&block.name));
        }
        all.extend(readers(program, access.buffer));
    }
    if all.is_empty() {
        return Err(Cause::NoConsumer.at_block(&block.name));
    }
    match all.iter().find(|path| !path.starts_with(target)) {
        None => Ok(all),
        Some(outside) => {
            let reader = block_at(program, outside).name.clone();
            Err(Cause::ConsumerElsewhere(reader).at_block(&block.name))
        }
    }
}

/// For each iterator of `block`, the values that one iteration of `l` needs.
fn required(
    program: &Program,
    block: &Block,
    readers: &[Path],
    l: LoopRef,
) -> std::result::Result<Vec<Span>, Failure> {
    let extents = Extents::of(program);
    let mut spans: Vec<Option<Span>> = vec![None; block.iters.len()];
    for access in block.body.writes() {
        let axes = plain_indices(&access.indices)
            .ok_or_else(|| Cause::IndexNotPlain.at_block(&block.name))?;
        for path in readers {
            let reader = block_at(program, path);
            let below = loops_below(program, path, l);
            let threads = threads_above(program, path, access.buffer);
            let running = |v: VarId| below.contains(&v) || threads.contains(&v);
            let limits = region::limits(reader, &extents);
            for indices in loads_of(reader, access.buffer) {
                for (axis, index) in axes.iter().zip(indices) {
                    let Some(place) = block.iters.iter().position(|i| Some(i.var) == *axis) else {
                        continue;
                    };
                    let extent = block.iters[place].extent;
                    let index = bound(reader, index);
                    let span = region::span(&index, extent, &limits, &running, &extents);
                    spans[place] = Some(match spans[place].take() {
                        None => span,
                        Some(other) => other.union(&span).unwrap_or(Span::whole(extent)),
                    });
                }
            }
        }
    }
    block
        .iters
        .iter()
        .zip(spans)
        .map(|(iter, span)| match (iter.kind, span) {
            (IterKind::Reduce, _) => Ok(Span::whole(iter.extent)),
            (IterKind::Spatial, Some(span)) => Ok(span),
            (IterKind::Spatial, None) => Err(Cause::IndexNotPlain.at_block(&block.name)),
        })
        .collect()
}

/// The loops over threads around a reader of shared memory: what one of them needs, it holds for
/// all.
fn threads_above(program: &Program, reader: &Path, buffer: BufId) -> Vec<VarId> {
    if program.buffer(buffer).scope != Scope::Shared {
        return vec![];
    }
    let loops = tree::loops_above(&program.body, reader);
    loops.iter().filter(|l| l.kind.is_inside_block()).map(|l| l.var).collect()
}

/// Indices of all loads of `buffer` in a block.
pub(super) fn loads_of(block: &Block, buffer: BufId) -> Vec<&[Expr]> {
    let exprs = block.exprs();
    exprs.into_iter().flat_map(|e| e.loads()).filter(|l| l.0 == buffer).map(|l| l.1).collect()
}
