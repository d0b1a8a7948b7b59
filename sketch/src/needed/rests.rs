//! Statements that are in no loop over what may not be needed: the last rows, which are too few for
//! another tile.
//!
//! In: a program. Out: the same, with a loop of one iteration around statements in a row that have
//! nothing to do unless a condition holds, and the conditions of such loops.
//!
//! ```text
//! for i in 0..12 while 5 * i < s { 5 rows }   rows 60 to 63
//! ->  for i in 0..12 while 5 * i < s { 5 rows }   for rest in 0..1 while 60 < s { rows 60 to 63 }
//! ```
//!
//! Sums over many terms are worth the question.

use std::collections::BTreeSet;

use ansc_graph::{Expr, VarId};
use ansc_runtime::Extent;

use super::{Conditions, Search};
use crate::program::{Body, For, ForKind, Program, Shared, Stmt};
use crate::tree;

/// Statements of one list, by their positions, and what they have to do something for.
struct Rest {
    path: tree::Path,
    count: usize,
    conditions: Conditions,
}

/// Puts loops around rests; the conditions of each.
pub(super) fn enclose(program: &mut Program, rests: &Rests) -> Vec<(VarId, Conditions)> {
    let mut found = vec![];
    // From the last one on: paths of others stay as they are.
    for Rest { path, count, conditions } in rests.0.iter().rev() {
        let var = program.add_var("rest");
        let (list, at) = tree::siblings_mut(&mut program.body, path);
        let body: Vec<Stmt> = list.drain(at..at + count).collect();
        let l = For { var, extent: 1, kind: ForKind::Serial, body };
        list.insert(at, Stmt::For(Shared::new(l)));
        found.push((var, conditions.clone()));
    }
    found
}

/// Rests of a program, in order; none is in another one.
pub(super) struct Rests(Vec<Rest>);

impl Search<'_> {
    pub(super) fn rests(&self, found: &[(VarId, Conditions)]) -> Rests {
        let mut rests = vec![];
        self.add_rests(&self.program.body, &mut vec![], &mut vec![], found, &mut rests);
        Rests(rests)
    }

    fn add_rests<'a>(
        &self,
        list: &'a [Stmt],
        path: &mut tree::Path,
        around: &mut Vec<&'a For>,
        found: &[(VarId, Conditions)],
        rests: &mut Vec<Rest>,
    ) {
        let open: BTreeSet<VarId> = around.iter().map(|l| l.var).collect();
        let is_known = |condition: &_| {
            let of_loops = found.iter().filter(|(var, _)| open.contains(var));
            of_loops.flat_map(|(_, all)| all).any(|known| known == condition)
        };
        let conditions = |stmt: &Stmt| -> Conditions {
            let all = self.of_stmts(std::slice::from_ref(stmt)).unwrap_or_default();
            let first = |index: &Expr| index.as_const().is_some_and(|n| n.as_i64() <= 0);
            let says = |c: &(Expr, Extent)| c.0.vars().is_subset(&open) && !first(&c.0);
            all.into_iter().filter(|c| says(c) && !is_known(c)).collect()
        };
        let mut at = 0;
        while at < list.len() {
            let (mut count, mut all) = (1, conditions(&list[at]));
            while let Some(next) = list.get(at + count).filter(|_| !all.is_empty()) {
                let both = self.weaker(&all, &conditions(next));
                if both.is_empty() {
                    break;
                }
                (count, all) = (count + 1, both);
            }
            let some = &list[at..at + count];
            path.push(at);
            if !all.is_empty() && (count < list.len() || around.is_empty()) && is_worthwhile(some) {
                rests.push(Rest { path: path.clone(), count, conditions: all });
            } else {
                count = 1;
                if let Stmt::For(l) = &list[at] {
                    around.push(l);
                    self.add_rests(&l.body, path, around, found, rests);
                    around.pop();
                }
            }
            path.pop();
            at += count;
        }
    }
}

/// Whether statements add terms in a loop; one that runs in parallel stays in no other loop.
fn is_worthwhile(stmts: &[Stmt]) -> bool {
    let (mut sums, mut parallel) = (false, false);
    tree::visit_loops(stmts, &mut |l: &For| parallel |= l.kind == ForKind::Parallel);
    tree::visit_nests(stmts, &mut |loops, block| {
        let is_sum = matches!(block.body, Body::Reduce { .. });
        sums |= is_sum && loops.iter().any(|l| l.kind == ForKind::Serial);
    });
    sums && !parallel
}
