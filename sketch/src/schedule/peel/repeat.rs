//! Whether lanes of the vector before may be computed once more.

use std::collections::BTreeSet;

use ansc_graph::{BufId, Expr};

use super::{At, Peeler};
use crate::affine::{self, Sum};
use crate::disjoint::bound;
use crate::program::{Block, Body, For};
use crate::schedule::query::blocks_under;

/// Whether the last `again` lanes of the vector `l` in the iteration before may be computed in this
/// one too.
pub(super) fn may_repeat(peeler: &Peeler<'_>, l: &For, at: &At, again: usize) -> bool {
    are_unchanged(peeler, l) && are_the_same(l, at, again)
}

/// The same of lanes that another piece of this vector computed.
pub(super) fn may_repeat_within(peeler: &Peeler<'_>, l: &For) -> bool {
    are_unchanged(peeler, l)
}

/// Whether nothing that the blocks read or write is written by anything else between the two times,
/// or by themselves after they have read it.
fn are_unchanged(peeler: &Peeler<'_>, l: &For) -> bool {
    let blocks = blocks_under(l);
    let touched: BTreeSet<BufId> = blocks.iter().flat_map(|b| b.buffers()).collect();
    let is_own = |block: &Block| blocks.iter().any(|b| b.name == block.name);
    let writes = |block: &Block| -> BTreeSet<BufId> {
        block.body.writes().iter().map(|a| a.buffer).collect()
    };
    let others = blocks_under(peeler.peeled).into_iter().filter(|b| !is_own(b));
    let later = |from: usize| -> BTreeSet<BufId> {
        blocks[from..].iter().flat_map(|b| writes(b)).collect()
    };
    let is_map = |(place, block): (usize, &&Block)| {
        matches!(block.body, Body::Assign { .. }) && block.reads().is_disjoint(&later(place))
    };
    blocks.iter().enumerate().all(is_map)
        && others.into_iter().all(|other| writes(other).is_disjoint(&touched))
}

/// Whether lanes before the first one are lanes of the vector before: iterators have the same
/// values, and guards hold or fail alike.
fn are_the_same(l: &For, at: &At, again: usize) -> bool {
    // With a loop between that is not at one of its iterations, the vector before is not known.
    let Some(before) = at.before().filter(|_| at.fixed.len() == at.places.len()) else {
        return false;
    };
    let here = at.range(l, -(again as i64), again);
    let there = before.range(l, (l.extent - again) as i64, again);
    let sum = |at: &At, e: &Expr| Sum::of(&at.expr(e), &at.extents);
    let condition = |at: &At, e: &Expr| affine::simplify(&at.expr(e), &at.extents);
    blocks_under(l).into_iter().all(|block| {
        let mut guards = block.predicate.iter().flat_map(Expr::conjuncts).map(|g| bound(block, g));
        block.iters.iter().all(|i| sum(&here, &i.binding) == sum(&there, &i.binding))
            && guards.all(|g| condition(&here, &g) == condition(&there, &g))
    })
}
