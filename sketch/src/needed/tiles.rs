//! Tiles of which a run needs the first rows alone.
//!
//! In: a program, and loops whose iterations compute several rows each, written out, of which only
//! those below a size are needed. Out: such a loop computes as many rows as are needed, or a few
//! more: its body is there for all rows, and for the first half and the first quarter of them.
//!
//! ```text
//! for i in 0..2 while 4 * i < s { 4 rows }
//! ->  for i in 0..2 while 4 * i < s {
//!       if 4 * i + 2 < s { 4 rows }
//!       if 4 * i + 1 < s && s < 4 * i + 3 { 2 rows }
//!       if s < 4 * i + 2 { 1 row }
//!     }
//! ```
//!
//! Loops of one iteration stand for the conditions. A sum over many terms is worth the code; what
//! is computed without one is not.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::sizes::expression;
use ansc_graph::{BufId, Expr, VarId};
use ansc_runtime::Extent;

use super::{Conditions, Search};
use crate::affine::{self, Extents};
use crate::program::{Body, For, ForKind, Program, Shared, Stmt};
use crate::schedule::copy_with_needs;
use crate::tree;

/// The body is there once more for a half of the rows, and as often again.
const HALVES: u32 = 2;

/// A loop over tiles.
pub(super) struct Tile {
    l: VarId,
    /// Row `r` of an iteration is needed if this number plus `r` is below the extent.
    first: Expr,
    below: Extent,
    /// The loops over rows in the body.
    rows: BTreeSet<VarId>,
    /// Rows of a tile.
    count: usize,
}

impl Search<'_> {
    /// The loops over tiles of rows, among those that have conditions.
    pub(super) fn tiles(&self, found: &[(VarId, Conditions)]) -> Vec<Tile> {
        let mut tiles = vec![];
        tree::visit_loops(&self.program.body, &mut |l: &For| {
            let conditions = found.iter().find(|(var, _)| *var == l.var).map(|(_, all)| all);
            let each = conditions.into_iter().flatten();
            tiles.extend(each.filter_map(|condition| self.tile(l, condition)).next());
        });
        tiles
    }

    fn tile(&self, l: &For, (first, below): &(Expr, Extent)) -> Option<Tile> {
        let (mut rows, mut count) = (BTreeSet::new(), 1);
        tree::visit_loops(&l.body, &mut |row: &For| {
            let is_row = |(index, end): &(Expr, Extent)| {
                let place = affine::simplify(&(index.clone() - first.clone()), &self.extents);
                end == below && place == Expr::Var(row.var)
            };
            let conditions = || self.of_all(row).into_iter().flatten().any(|c| is_row(&c));
            if row.kind == ForKind::Unrolled && conditions() {
                rows.insert(row.var);
                count = count.max(row.extent);
            }
        });
        let (first, below) = (first.clone(), below.clone());
        let tile = Tile { l: l.var, first, below, rows, count };
        (count > 1 && tile.sums(&l.body)).then_some(tile)
    }
}

impl Tile {
    /// Whether rows are sums over a loop.
    fn sums(&self, body: &[Stmt]) -> bool {
        let mut sums = false;
        tree::visit_nests(body, &mut |loops, block| {
            let is_sum = matches!(block.body, Body::Reduce { .. });
            let is_row = loops.iter().any(|l| self.rows.contains(&l.var));
            sums |= is_sum && is_row && loops.iter().any(|l| l.kind == ForKind::Serial);
        });
        sums
    }

    /// Rows of the bodies, from all of them on.
    fn counts(&self) -> Vec<usize> {
        let mut counts: Vec<usize> =
            (0..=HALVES).map(|halves| self.count.div_ceil(1 << halves)).collect();
        counts.dedup();
        counts
    }

    /// The statements with loops over rows that end at `count`.
    fn cut(&self, body: Vec<Stmt>, count: usize) -> Vec<Stmt> {
        tree::rewrite(body, &mut |stmt| match stmt {
            Stmt::For(l) if self.rows.contains(&l.var) => {
                let extent = l.extent.min(count);
                vec![Stmt::For(Shared::new(For { extent, ..For::clone(&l) }))]
            }
            other => vec![other],
        })
    }

    /// Bodies for fewer rows, too. `held` are the buffers of sizes.
    pub(super) fn shorten(&self, program: &mut Program, held: &BTreeMap<usize, BufId>) {
        let mut whole = vec![];
        tree::visit_loops(&program.body, &mut |l: &For| {
            if l.var == self.l {
                whole.clone_from(&l.body);
            }
        });
        let end = expression(&self.below, held);
        let extents = Extents::of(program);
        let at =
            |count: usize| affine::simplify(&(self.first.clone() + Expr::index(count)), &extents);
        let counts = self.counts();
        for (i, &count) in counts.iter().enumerate() {
            let more = counts.get(i + 1).map(|less| at(*less).lt(end.clone()));
            let fewer = (i > 0).then(|| end.clone().lt(at(count + 1)));
            let var = program.add_var(format!("rows{count}"));
            let condition = tree::conjunction(more.into_iter().chain(fewer));
            program.needs.extend(condition.map(|condition| (var, condition)));
            let body = self.cut(whole.clone(), count);
            let body = if i > 0 { copy_with_needs(program, &body) } else { body };
            let one = For { var, extent: 1, kind: ForKind::Serial, body };
            self.put(program, i, Stmt::For(Shared::new(one)));
        }
    }

    /// Puts a statement into the loop: the first one in place of all that is there.
    fn put(&self, program: &mut Program, index: usize, one: Stmt) {
        let all = std::mem::take(&mut program.body);
        program.body = tree::rewrite(all, &mut |stmt| match stmt {
            Stmt::For(mut l) if l.var == self.l => {
                l.body.truncate(index);
                l.body.push(one.clone());
                vec![Stmt::For(l)]
            }
            other => vec![other],
        });
    }
}
