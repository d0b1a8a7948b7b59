//! Guards of tiles that overrun move to where tiles do.
//!
//! ```text
//! for i in 0..13 { for j in 0..16 { x[i * 16 + j] = .. where i * 16 + j < 197 } }
//! =>
//! for i in 0..12 { for j in 0..16 { x[i * 16 + j] = .. } }   for j in 0..5 { x[j + 192] = .. }
//! ```
//! The range of the outermost loop that decides a guard is parted where the guard begins to fail;
//! what is left of it is a guard of the last part, of which the next loop inwards is parted, and so
//! on. A loop that is to be run in parallel with those around it is parted with them: the parts are
//! nests of their own.

use super::parallel::outermost;
use super::{chain, is_free};
use crate::affine::Extents;
use crate::program::{Block, For, ForKind};
use crate::region;
use crate::schedule::{LoopRef, Schedule};
use crate::tree;

/// How many blocks there may be for each of the blocks before.
const MOST_COPIES: usize = 8;
/// A guard that is evaluated in less than one of this many iterations of blocks is not worth a
/// copy.
const RARE: u128 = 24;

/// `enough`: see `parallel`.
pub(super) fn peel(schedule: &mut Schedule, enough: usize) {
    if schedule.program().blocks().iter().all(|b| b.predicate.is_none()) {
        return;
    }
    let most = MOST_COPIES * schedule.program().blocks().len();
    let total = iterations(schedule);
    let mut refused: Vec<Cut> = vec![];
    while let Some((often, cut)) = most_often(schedule, &refused) {
        let mut changed = schedule.clone();
        let is_parted = part(&mut changed, cut, enough).is_some();
        let blocks = changed.program().blocks().len();
        let is_worth = often.saturating_mul(RARE) >= total && blocks <= most;
        // Where nothing runs beyond the cut, it costs no copy.
        if is_parted && (is_worth || blocks <= schedule.program().blocks().len()) {
            *schedule = changed;
        } else {
            refused.push(cut);
        }
    }
}

/// The number of iterations of all blocks together.
fn iterations(schedule: &Schedule) -> u128 {
    let mut total: u128 = 0;
    tree::visit_nests(&schedule.program().body, &mut |loops, _| {
        total = total.saturating_add(iterations_of(loops));
    });
    total
}

fn iterations_of(loops: &[&For]) -> u128 {
    loops.iter().fold(1, |n: u128, l| n.saturating_mul(l.extent as u128))
}

/// A loop, and the first of its iterations in which a guard below it may fail.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cut {
    at: LoopRef,
    point: usize,
}

/// The cut for the guard that is evaluated most often, and how often that is.
fn most_often(schedule: &Schedule, refused: &[Cut]) -> Option<(u128, Cut)> {
    let program = schedule.program();
    let extents = Extents::of(program);
    let mut best: Option<(u128, Cut)> = None;
    tree::visit_nests(&program.body, &mut |loops, block| {
        let iterations = iterations_of(loops);
        if block.predicate.is_none() || best.is_some_and(|(most, _)| most >= iterations) {
            return;
        }
        let cuts = cuts(loops, block, &extents);
        if let Some(cut) = cuts.into_iter().find(|cut| !refused.contains(cut)) {
            best = Some((iterations, cut));
        }
    });
    best
}

/// For each part of the predicate the outermost loop that decides it.
fn cuts(loops: &[&For], block: &Block, extents: &Extents) -> Vec<Cut> {
    region::limits(block, extents)
        .into_iter()
        .filter_map(|limit| {
            loops.iter().filter(|l| l.kind == ForKind::Serial).find_map(|l| {
                let (point, _) = region::failures(&limit, l.var, extents)?;
                let point = usize::try_from(point).ok()?;
                // If it is neither the first iteration of all nor none.
                let parts = point > 0 && point < l.extent;
                parts.then_some(Cut { at: LoopRef(l.var), point })
            })
        })
        .collect()
}

fn part(schedule: &mut Schedule, cut: Cut, enough: usize) -> Option<()> {
    decompose_reductions(schedule, cut.at)?;
    let root = schedule.program().body.iter().position(|s| chain(s).contains(&cut.at));
    if let Some(root) = root {
        let nest = chain(&schedule.program().body[root]);
        let depth = nest.iter().position(|l| *l == cut.at)?;
        let parallel = outermost(schedule, &schedule.program().body[root], enough);
        if depth > 0 && parallel.contains(&cut.at) {
            return part_nest(schedule, cut, root, &nest[..depth]);
        }
    }
    schedule.loop_partition(cut.at, &[cut.point]).ok()?;
    Some(())
}

/// Parts the loop together with the loops `above`, which are all of the nest's outer ones.
fn part_nest(schedule: &mut Schedule, cut: Cut, root: usize, above: &[LoopRef]) -> Option<()> {
    schedule.reorder(&[&[cut.at], above].concat()).ok()?;
    schedule.loop_partition(cut.at, &[cut.point]).ok()?;
    for nest in [root, root + 1] {
        let Some(stmt) = schedule.program().body.get(nest) else { continue };
        let mut loops = chain(stmt);
        if loops.len() <= above.len() {
            continue;
        }
        loops.truncate(above.len() + 1);
        loops.rotate_left(1);
        schedule.reorder(&loops).ok()?;
    }
    Some(())
}

/// Reductions that the loop drives get their initial values before they begin.
fn decompose_reductions(schedule: &mut Schedule, l: LoopRef) -> Option<()> {
    if is_free(schedule, l) {
        return Some(());
    }
    for block in schedule.blocks() {
        let loops = schedule.reduction_loops(&block).ok()?;
        let initialises = schedule.block(&block).is_ok_and(Block::has_init);
        if initialises && loops.contains(&l) {
            schedule.decompose_reduction(&block, *loops.first()?).ok()?;
        }
    }
    Some(())
}
