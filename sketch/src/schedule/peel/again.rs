//! Whether the last iteration of a peeled loop may run with lanes of the one before.
//!
//! ```text
//! for p in 0..3 {
//!   for k { for l in 0..16 vectorized { acc[l] += x[k, p * 16 + l] where p * 16 + l < 37 } }
//!   for l in 0..16 vectorized { y[p * 16 + l] = acc[l] where p * 16 + l < 37 }
//! }
//! => peel(p, again): the five lanes that are left are eight, from 29 on
//! for p in 0..2 { .. }
//! for k { for l in 0..8 vectorized { acc'[l] += x[k, 29 + l] } }
//! for l in 0..8 vectorized { y[29 + l] = acc'[l] }
//! ```

use std::collections::BTreeSet;

use ansc_graph::BufId;

use super::{At, Peeler};
use crate::program::{Block, Body, For, ForKind, IterKind, Stmt};
use crate::schedule::copies::private_buffers;
use crate::schedule::query::{blocks_under, bound_to};

/// How many lanes each vector of this iteration has, if all have as many, and if it may run again.
pub(super) fn lanes(peeler: &Peeler<'_>, peeled: &For, at: &At) -> Option<usize> {
    let mut left = BTreeSet::new();
    let is_even = peeled.body.iter().all(|stmt| collect(peeler, stmt, at, &mut left));
    let [(lanes, count)] = left.into_iter().collect::<Vec<_>>()[..] else { return None };
    let width = count.next_power_of_two();
    let is_shorter = count < width && width <= lanes;
    (is_even && is_shorter && may_run_again(peeler, peeled)).then_some(width)
}

/// Collects the lanes of each vector and how many of them are left. Tells whether all blocks that
/// run lie in a vector that has fewer left.
fn collect(peeler: &Peeler<'_>, stmt: &Stmt, at: &At, left: &mut BTreeSet<(usize, usize)>) -> bool {
    let l = match stmt {
        Stmt::Block(block) => return at.block(block).is_none(),
        Stmt::For(l) => l,
    };
    let ends = peeler.ends(l, at);
    let (first, is_cut) = (ends[0], ends.len() > 1);
    if l.kind == ForKind::Vectorized {
        left.insert((l.extent, first));
        return is_cut
            && blocks_under(l)
                .into_iter()
                .all(|block| at.range(l, first as i64, l.extent - first).block(block).is_none());
    }
    let rest = at.range(l, first as i64, l.extent - first);
    let ends_there = !is_cut || l.body.iter().all(|stmt| never_runs(stmt, &rest));
    // Vectors side by side would both have the lanes in which they overlap.
    let here = if is_cut && first == 1 { at.fix(l, 0) } else { at.range(l, 0, first) };
    ends_there && l.body.iter().all(|stmt| collect(peeler, stmt, &here, left))
}

fn never_runs(stmt: &Stmt, at: &At) -> bool {
    match stmt {
        Stmt::Block(block) => at.block(block).is_none(),
        Stmt::For(l) => l.body.iter().all(|stmt| never_runs(stmt, at)),
    }
}

/// Whether an iteration that runs twice gives what it gives if it runs once: local buffers are its
/// own, and whatever else it writes is assigned, and nothing in it reads that.
fn may_run_again(peeler: &Peeler<'_>, peeled: &For) -> bool {
    let private = private_buffers(peeler.program, peeled.var);
    let blocks = blocks_under(peeled);
    let read: BTreeSet<BufId> = blocks.iter().flat_map(|b| b.reads()).collect();
    let is_own = |buffer: &BufId| private.contains(buffer);
    let may = |block: &&Block| {
        let writes: Vec<BufId> = block.body.writes().iter().map(|a| a.buffer).collect();
        let is_assigned = matches!(block.body, Body::Assign { .. })
            && writes.iter().all(|buffer| !read.contains(buffer));
        let is_term = bound_to(block, IterKind::Reduce).contains(&peeled.var);
        (writes.iter().all(is_own) || is_assigned) && !is_term
    };
    blocks.iter().all(may)
}
