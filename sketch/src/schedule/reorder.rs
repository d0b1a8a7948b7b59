//! reorder: loops of a chain in another order.
//!
//! ```text
//! for i { for j { for k { .. } } }
//! => reorder([k, i])
//! for k { for j { for i { .. } } }
//! ```

use std::cell::LazyCell;
use std::collections::BTreeSet;

use ansc_graph::VarId;

use super::error::{Cause, Failure};
use super::kinds::check_vector;
use super::query::{blocks_under, bound_to, loop_at, loop_at_mut, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::program::{Block, Body, For, ForKind, IterKind, Program};
use crate::tree::{self, Path};

impl Schedule {
    /// Gives the places of `order`'s loops to these loops in that order; all others stay where they
    /// are. From the outermost to the innermost, each contains nothing but the next loop. All are
    /// serial, unrolled, or vectors; a vector's iterations are independent at its new place too,
    /// with all loops that are then inside of it.
    pub fn reorder(&mut self, order: &[LoopRef]) -> Result<()> {
        let is_vector =
            |l: &LoopRef| self.for_loop(*l).is_ok_and(|l| l.kind == ForKind::Vectorized);
        match order.iter().any(is_vector) {
            true => self.apply("reorder", |program| reorder(program, order)),
            false => self.apply_in_place("reorder", |program| reorder(program, order)),
        }
    }
}

fn reorder(program: &mut Program, order: &[LoopRef]) -> std::result::Result<(), Failure> {
    let mut places = order
        .iter()
        .map(|&l| Ok((loop_path(program, l)?, l)))
        .collect::<std::result::Result<Vec<(Path, LoopRef)>, Failure>>()?;
    places.sort_by_key(|(path, _)| path.len());
    let (first, last) = match places.as_slice() {
        [] => return Err(Cause::NoLoops.into()),
        [first, .., last] => (first.0.clone(), last.0.clone()),
        [_] => return Ok(()),
    };
    check_chain(program, &places)?;
    let headers: Vec<(VarId, usize, ForKind)> = order
        .iter()
        .map(|&l| {
            let (_, path) =
                places.iter().map(|(p, r)| (r, p)).find(|(r, _)| **r == l).expect("given");
            let For { var, extent, kind, .. } = *loop_at(program, path);
            (var, extent, kind)
        })
        .collect();
    let before = chain(program, &first, &last);
    let mut after = before.clone();
    for ((path, _), (var, ..)) in places.iter().zip(&headers) {
        after[path.len() - first.len()] = *var;
    }
    check_term_order(loop_at(program, &last), &before, &after)?;
    if before != after {
        check_running(program, loop_at(program, &last))?;
    }
    for ((path, _), (var, extent, kind)) in places.iter().zip(headers) {
        let l = loop_at_mut(program, path);
        (l.var, l.extent, l.kind) = (var, extent, kind);
    }
    for (path, _) in places {
        if loop_at(program, &path).kind == ForKind::Vectorized {
            check_vector(program, &path)?;
        }
    }
    Ok(())
}

fn check_chain(program: &Program, places: &[(Path, LoopRef)]) -> std::result::Result<(), Failure> {
    for pair in places.windows(2) {
        let ((outer, l), (inner, next)) = (&pair[0], &pair[1]);
        if outer == inner {
            return Err(Cause::RepeatedLoop.at_loop(*l));
        }
        if !inner.starts_with(outer) {
            return Err(Cause::NotAChain.at_loop(*next));
        }
        for depth in outer.len()..inner.len() {
            let l = loop_at(program, &inner[..depth]);
            if l.body.len() != 1 {
                return Err(Cause::NotAChain.at_loop(LoopRef(l.var)));
            }
        }
    }
    for (path, l) in places {
        let kind = loop_at(program, path).kind;
        if !matches!(kind, ForKind::Serial | ForKind::Unrolled | ForKind::Vectorized) {
            return Err(Cause::Kind(kind).at_loop(*l));
        }
    }
    Ok(())
}

/// Variables of the loops from the one at `first` to the one at `last`, outermost first.
fn chain(program: &Program, first: &Path, last: &Path) -> Vec<VarId> {
    (first.len()..=last.len()).map(|depth| loop_at(program, &last[..depth]).var).collect()
}

/// No block reads what another one has added up by then, in this iteration of the loops and in
/// those before.
fn check_running(program: &Program, innermost: &For) -> std::result::Result<(), Failure> {
    let blocks = blocks_under(innermost);
    let updates = |b: &&&Block| !matches!(b.body, Body::Assign { .. });
    let homes = LazyCell::new(|| tree::common_loops(program));
    for block in blocks.iter().filter(updates) {
        for buffer in block.body.writes().iter().map(|a| a.buffer) {
            let is_own = |b: &&&Block| b.name == block.name;
            let other = blocks.iter().find(|b| !is_own(b) && b.reads().contains(&buffer));
            if let Some(other) = other
                && !homes[&buffer].contains(&innermost.var)
            {
                let (block, other) = (block.name.clone(), other.name.clone());
                return Err(Cause::Running { block, other }.at_loop(LoopRef(innermost.var)));
            }
        }
    }
    Ok(())
}

/// The loops that an arg-reduction depends on must keep their order.
fn check_term_order(
    innermost: &For,
    before: &[VarId],
    after: &[VarId],
) -> std::result::Result<(), Failure> {
    for block in blocks_under(innermost) {
        if !matches!(block.body, Body::ArgReduce { .. }) {
            continue;
        }
        let reduced: BTreeSet<VarId> = bound_to(block, IterKind::Reduce);
        let of = |vars: &[VarId]| -> Vec<VarId> {
            vars.iter().copied().filter(|v| reduced.contains(v)).collect()
        };
        if of(before) != of(after) {
            return Err(Cause::TermOrder.at_block(&block.name));
        }
    }
    Ok(())
}
