//! Pipelined loops: while the threads compute with what one iteration copied to shared memory, the
//! copies of the next ones are on their way. Shared memory has a place for each of them and one
//! more, which iterations take in turn.
//!
//! ```text
//! for k pipelined2 { barrier; s[tx] = a[k, tx];  barrier; c += s[..] }
//! =>
//! fetch s[0, tx] = a[0, tx];  a group of copies
//! fetch s[1, tx] = a[1, tx];  a group of copies
//! for k {
//!   copies arrive but for 1 group;  barrier
//!   fetch s[(k + 2) % 3, tx] = a[k + 2, tx]  where k + 2 < n;  a group of copies
//!   c += s[k % 3, ..]
//! }
//! ```
//!
//! One barrier does: behind it everything of this iteration has arrived for all threads, and all of
//! them are done with the place of the iteration before, which is that of the copies that begin. A
//! loop of which this cannot be told stays serial. At the end there is nothing to copy, and groups
//! are empty.

use std::collections::BTreeSet;

use ansc_graph::{BufId, Expr};

use super::{Loop, Step, expand, rebind, visit_steps};
use crate::program::{Block, ForKind, Program, Scope, Stmt};
use crate::tree;

pub(super) fn overlap(program: &mut Program, steps: Vec<Step>) -> Vec<Step> {
    let mut used = vec![];
    visit_steps(&steps, &mut |b| used.push(b.buffers()));
    overlapped(program, steps, &used, false)
}

/// `used` is what each block of the kernel uses.
fn overlapped(
    program: &mut Program,
    steps: Vec<Step>,
    used: &[BTreeSet<BufId>],
    inside: bool,
) -> Vec<Step> {
    let mut all = vec![];
    for step in steps {
        match step {
            Step::Loop(l) => match Parts::of(program, &l, used) {
                Some(parts) => all.extend(parts.woven(program, &l, inside)),
                None => {
                    let body = overlapped(program, l.body, used, true);
                    all.push(Step::Loop(Box::new(Loop { body, ..*l })));
                }
            },
            other => all.push(other),
        }
    }
    all
}

/// The copies at the beginning of an iteration, what follows behind the barrier, and the buffers
/// between them.
struct Parts {
    copies: Vec<Stmt>,
    rest: Vec<Step>,
    shared: BTreeSet<BufId>,
    /// Iterations that copies are begun early.
    ahead: usize,
}

impl Parts {
    fn of(program: &Program, l: &Loop, used: &[BTreeSet<BufId>]) -> Option<Parts> {
        let ForKind::Pipelined(ahead) = l.kind else { return None };
        let ahead = ahead.get().min(l.extent.saturating_sub(1));
        if ahead == 0 {
            return None;
        }
        let mut steps = l.body.iter().skip_while(|s| matches!(s, Step::Barrier)).cloned();
        let mut copies = vec![];
        for step in steps.by_ref() {
            match step {
                Step::Run(stmt) => copies.push(stmt),
                Step::Barrier => break,
                _ => return None,
            }
        }
        let parts = Parts { shared: written(&copies), copies, rest: steps.collect(), ahead };
        parts.is_sound(program, used).then_some(parts)
    }

    /// Copies fill shared memory that nothing else fills and that is used in this loop only, from
    /// memory that the rest of the loop does not change.
    fn is_sound(&self, program: &Program, used: &[BTreeSet<BufId>]) -> bool {
        let mut blocks: Vec<&Block> = vec![];
        visit_steps(&self.rest, &mut |b| blocks.push(b));
        let changed: BTreeSet<BufId> = blocks.iter().flat_map(|b| writes(b)).collect();
        let copying: Vec<&Block> = self.copies.iter().flat_map(tree_blocks).collect();
        let read: BTreeSet<BufId> =
            copying.iter().flat_map(|b| b.exprs()).flat_map(|e| e.loads()).map(|l| l.0).collect();
        let own = copying.iter().chain(&blocks);
        let uses = |b: &BTreeSet<BufId>| b.iter().any(|b| self.shared.contains(b));
        let (inside, everywhere) = (
            own.filter(|b| uses(&b.buffers().into_iter().collect())).count(),
            used.iter().filter(|b| uses(b)).count(),
        );
        !blocks.is_empty()
            && !self.shared.is_empty()
            && self.shared.iter().all(|b| program.buffer(*b).scope == Scope::Shared)
            && self.shared.is_disjoint(&changed)
            && read.is_disjoint(&changed)
            && read.is_disjoint(&self.shared)
            && inside == everywhere
    }

    fn woven(mut self, program: &mut Program, l: &Loop, inside: bool) -> Vec<Step> {
        let places = self.ahead + 1;
        for buffer in &self.shared {
            program.buffers[buffer.index()].ty.shape.insert(0, places);
        }
        let first = (0..self.ahead).flat_map(|n| {
            let n = Expr::index(n);
            self.fetches(l, &n, &n, None)
        });
        let first: Vec<Step> = first.collect();
        let k = Expr::Var(l.var);
        let next = k.clone() + Expr::index(self.ahead);
        let place = next.clone().floor_mod(places as i64);
        let more = next.clone().lt(Expr::index(l.extent));
        let others = self.fetches(l, &next, &place, Some(&more));
        let current = k.floor_mod(places as i64);
        each_block(&mut self.rest, &mut |b| expand(b, &self.shared, &current));
        let head = [Step::Arrive(self.ahead - 1), Step::Barrier];
        let body = head.into_iter().chain(others).chain(self.rest).collect();
        let woven = Step::Loop(Box::new(Loop { kind: ForKind::Serial, body, ..l.clone() }));
        // Around the loop others may still be reading what it begins with.
        let before = inside.then_some(Step::Barrier);
        before.into_iter().chain(first).chain([woven]).collect()
    }

    /// The copies of one iteration to one of the places, as a group.
    fn fetches(&self, l: &Loop, iteration: &Expr, place: &Expr, only: Option<&Expr>) -> Vec<Step> {
        let mut copies = self.copies.clone();
        tree::visit_blocks_mut(&mut copies, &mut |b: &mut Block| {
            rebind(b, &|v| (v == l.var).then(|| iteration.clone()));
            expand(b, &self.shared, place);
            if let Some(only) = only {
                let own = b.predicate.take();
                b.predicate = tree::conjunction([only.clone()].into_iter().chain(own));
            }
        });
        copies.into_iter().map(Step::Fetch).chain([Step::Commit]).collect()
    }
}

fn writes(block: &Block) -> impl Iterator<Item = BufId> + '_ {
    block.body.writes().into_iter().map(|a| a.buffer)
}

fn written(stmts: &[Stmt]) -> BTreeSet<BufId> {
    stmts.iter().flat_map(tree_blocks).flat_map(writes).collect()
}

fn tree_blocks(stmt: &Stmt) -> Vec<&Block> {
    let mut blocks = vec![];
    stmt.visit_blocks(&mut |b| blocks.push(b));
    blocks
}

fn each_block(steps: &mut [Step], f: &mut impl FnMut(&mut Block)) {
    for step in steps {
        match step {
            Step::Barrier | Step::Commit | Step::Arrive(_) => {}
            Step::Loop(l) => each_block(&mut l.body, f),
            Step::Run(stmt) | Step::Fetch(stmt) => {
                tree::visit_blocks_mut(std::slice::from_mut(stmt), f);
            }
        }
    }
}
