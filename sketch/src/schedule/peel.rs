//! peel: tiles that overrun become statements of their own, without guards.
//!
//! ```text
//! for i in 0..13 { for j in 0..16 vectorized { x[i * 16 + j] = .. where i * 16 + j < 197 } }
//! => peel(i, pieces)
//! for i in 0..12 { for j in 0..16 vectorized { x[i * 16 + j] = .. } }
//! for j in 0..4 vectorized { x[j + 192] = .. }
//! x[196] = ..
//! ```
//!
//! A guard says that a sum over `l` and loops inside of it is below a number, as `split` writes
//! them. The range of `l` is cut where a guard begins to fail and where it fails as a whole. In the
//! iteration between, `l` is a constant, and the next loop inwards that decides the guard is cut in
//! the same way: a serial or an unrolled loop has fewer iterations, and the lanes that are left of
//! a vector become smaller vectors. Loops that decide nothing stay as they are around all that.

mod again;
mod repeat;

use std::collections::BTreeMap;

use ansc_graph::{Expr, VarId};

use super::copies;
use super::error::{Cause, Failure};
use super::lift_guard::is_of_both;
use super::query::{blocks_under, bound_to, loop_at, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::affine::{self, Extents, Sum};
use crate::disjoint::bound;
use crate::program::{Block, For, ForKind, IterKind, Program, Shared, Stmt};
use crate::region::{self, Limit};
use crate::tree::{self, Path};
use crate::vectors::{cover, widths_of};

type Checked<T> = std::result::Result<T, Failure>;

/// The lanes that are left of a vector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// Vectors of powers of two: 13 lanes of 16 are 8, 4, and 1.
    Pieces,
    /// The same, but the last vector may begin a little earlier, in the vector before, if no more
    /// than a quarter of it is computed twice: 13 lanes of 16 are 16, the first three of which were
    /// computed already; 7 lanes with none before are 4 and 4. Only blocks that may run twice are:
    /// they assign values that they do not change.
    Overlap,
    /// One vector of a power of two, which may begin in the iteration before: five lanes of 16 are
    /// eight. Only if an iteration of the peeled loop can run again: results that it hands on are
    /// assigned, and sums begin in it. Otherwise it is the same as pieces.
    Again,
}

impl std::fmt::Display for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Rest::Pieces => "pieces",
            Rest::Overlap => "overlap",
            Rest::Again => "again",
        })
    }
}

impl Schedule {
    /// [`Schedule::lift_guard`] and [`Schedule::peel`] in one: in between, a guard may depend on
    /// results and on terms at once, if peeling takes it away.
    pub fn peel_terms(&mut self, block: &str, l: LoopRef, rest: Rest) -> Result<Vec<String>> {
        let mut changed = self.clone();
        changed.lift_guard_of(block, l)?;
        let mut copies = changed.peel(l, rest)?;
        if changed.has_guard_of_both(block, &copies) {
            changed = self.clone();
            changed.lift_guard(block)?;
            copies = changed.peel(l, rest)?;
        }
        *self = changed;
        Ok(copies)
    }

    fn has_guard_of_both(&self, block: &str, copies: &[String]) -> bool {
        let names = copies.iter().map(String::as_str).chain([block]);
        let mut known = names.filter_map(|name| self.block(name).ok());
        known.any(|block| {
            let mut parts = block.predicate.iter().flat_map(Expr::conjuncts);
            parts.any(|part| is_of_both(block, part))
        })
    }

    /// Parts the loop `l`, so that none of its iterations is guarded by what it decides. What is
    /// left follows `l`, in order: copies of blocks, whose names are returned, with the same
    /// annotations and kinds of loops. Without a guard that depends on `l` nothing happens. If no
    /// iteration is complete, `l` is gone.
    ///
    /// Guards of other forms stay, those that do not depend on `l` too, and those that depend on a
    /// parallel loop around `l`, which nobody parts; but a loop of one
    /// iteration, on which nothing depends, decides all guards over loops inside of it. No
    /// reduction that a parted loop drives initialises its result under it, and no parted loop is
    /// parallel, bound or pipelined.
    pub fn peel(&mut self, l: LoopRef, rest: Rest) -> Result<Vec<String>> {
        let twins = self.apply("peel", |program| peel(program, l, rest))?;
        self.copy_all_notes(&twins);
        Ok(twins.blocks.into_iter().map(|(_, copy)| copy).collect())
    }
}

fn peel(program: &mut Program, l: LoopRef, rest: Rest) -> Checked<copies::Twins> {
    let path = loop_path(program, l)?;
    let guards = guards(program, &path, l)?;
    let target = loop_at(program, &path).clone();
    if guards.is_empty() {
        return Ok(copies::Twins::default());
    }
    if !is_partible(target.kind) {
        return Err(Cause::Kind(target.kind).at_loop(l));
    }
    let extents = Extents::of(program);
    let mut peeler = Peeler { program, guards, rest, peeled: &target, again: None };
    let stmts = peeler.cut(&target, &At { places: BTreeMap::new(), fixed: vec![], extents })?;
    if !stmts.is_empty() {
        tree::splice(&mut program.body, &path, stmts);
    }
    Ok(copies::own_names(program))
}

/// A part of a predicate: `sum < end`, over loops.
struct Guard {
    block: String,
    sum: Expr,
    end: i64,
}

/// The guards of blocks under `l` that it decides.
fn guards(program: &Program, path: &Path, l: LoopRef) -> Checked<Vec<Guard>> {
    let extents = Extents::of(program);
    let (parallel, above): (Vec<&For>, Vec<&For>) =
        tree::loops_above(&program.body, path).iter().partition(|f| f.kind == ForKind::Parallel);
    let mut guards = vec![];
    for block in blocks_under(loop_at(program, path)) {
        for part in block.predicate.iter().flat_map(Expr::conjuncts) {
            let Some(limit) = region::limit(block, part, &extents) else { continue };
            let depends =
                |on: &dyn Fn(VarId) -> bool| limit.0.terms.keys().any(|d| d.depends_on(&on));
            let is_one_of = |loops: &[&For], v: VarId| loops.iter().any(|f| f.var == v);
            let is_outer = depends(&|v| is_one_of(&above, v));
            if depends(&|v| is_one_of(&parallel, v)) {
                continue;
            }
            // No sum depends on a loop of one iteration; all that it contains is in that.
            if !depends(&|v| v == l.0) && (extents.get(l.0) != Some(1) || is_outer) {
                continue;
            }
            if is_outer {
                return Err(Cause::GuardFurtherOut(block.name.clone()).at_loop(l));
            }
            if extents.get(l.0) != Some(1) && region::failures(&limit, l.0, &extents).is_none() {
                return Err(Cause::GuardForm(block.name.clone()).at_loop(l));
            }
            guards.push(Guard { block: block.name.clone(), sum: limit.0.to_expr(), end: limit.1 });
        }
    }
    Ok(guards)
}

/// Where statements are copied to.
#[derive(Clone)]
struct At {
    /// Stand for the variables of loops that were parted.
    places: BTreeMap<VarId, Expr>,
    /// Those of these loops that are one iteration: which, and of how many, the outermost first.
    fixed: Vec<(VarId, usize, usize)>,
    extents: Extents,
}

impl At {
    fn expr(&self, e: &Expr) -> Expr {
        e.substitute(&|v| self.places.get(&v).cloned())
    }

    fn is_changed(&self, e: &Expr) -> bool {
        e.any(&mut |node| matches!(node, Expr::Var(v) if self.places.contains_key(v)))
    }

    fn limit(&self, guard: &Guard) -> Limit {
        (Sum::of(&self.expr(&guard.sum), &self.extents), guard.end)
    }

    /// With the loop at one of its iterations.
    fn fix(&self, l: &For, iteration: i64) -> At {
        let mut at = self.clone();
        at.places.insert(l.var, Expr::int(iteration));
        at.fixed.extend(usize::try_from(iteration).ok().map(|i| (l.var, i, l.extent)));
        at
    }

    /// With `count` iterations of the loop, from `start` on.
    fn range(&self, l: &For, start: i64, count: usize) -> At {
        let mut at = self.clone();
        let own = Expr::Var(l.var);
        let place = if start == 0 { own } else { own + Expr::int(start) };
        at.places.insert(l.var, place);
        at.extents.set(l.var, count);
        at
    }

    /// The block here, if it ever runs.
    fn block(&self, block: &Block) -> Option<Block> {
        let mut here = block.clone();
        for iter in here.iters.iter_mut().filter(|i| self.is_changed(&i.binding)) {
            iter.binding = affine::simplify(&self.expr(&iter.binding), &self.extents);
        }
        let mut parts = vec![];
        for part in block.predicate.iter().flat_map(Expr::conjuncts) {
            let bound = bound(block, part);
            let is_changed = self.is_changed(&bound);
            let decide = || affine::decided(&self.expr(&bound), &self.extents);
            match is_changed.then(decide).flatten() {
                Some(true) => {}
                Some(false) => return None,
                None if self.is_changed(part) => {
                    parts.push(affine::simplify(&self.expr(part), &self.extents));
                }
                None => parts.push(part.clone()),
            }
        }
        here.predicate = tree::conjunction(parts);
        Some(here)
    }

    /// The same when the iteration before this one of all parted loops runs; `None` at the first
    /// one.
    fn before(&self) -> Option<At> {
        let mut at = self.clone();
        for &(var, iteration, extent) in self.fixed.iter().rev() {
            let before = iteration.checked_sub(1);
            at.places.insert(var, Expr::index(before.unwrap_or(extent - 1)));
            if before.is_some() {
                return Some(at);
            }
        }
        None
    }
}

struct Peeler<'p> {
    program: &'p mut Program,
    guards: Vec<Guard>,
    rest: Rest,
    peeled: &'p For,
    /// Lanes of all vectors of an iteration that runs again, with lanes of the one before.
    again: Option<usize>,
}

impl Peeler<'_> {
    fn stmts(&mut self, stmts: &[Stmt], at: &At) -> Checked<Vec<Stmt>> {
        let mut all = vec![];
        for stmt in stmts {
            match stmt {
                Stmt::Block(block) => {
                    all.extend(at.block(block).map(|b| Stmt::Block(Shared::new(b))))
                }
                Stmt::For(l) => all.extend(self.cut(l, at)?),
            }
        }
        Ok(all)
    }

    /// The parts of a loop, one after the other.
    fn cut(&mut self, l: &For, at: &At) -> Checked<Vec<Stmt>> {
        let ends = self.ends(l, at);
        if ends.len() > 1 && !is_partible(l.kind) {
            return Err(Cause::Kind(l.kind).at_loop(LoopRef(l.var)));
        }
        let mut private = None;
        let (mut parts, mut start) = (vec![], 0);
        for end in ends {
            for (first, count) in self.pieces(l, at, start, end) {
                let mut stmts = self.part(l, at, first, count)?;
                if !parts.is_empty() {
                    let of_one = || copies::private_buffers(self.program, l.var);
                    let private: &Vec<_> = private.get_or_insert_with(of_one);
                    copies::own_buffers(self.program, &mut stmts, private);
                }
                parts.extend(Some(stmts).filter(|stmts| !stmts.is_empty()));
            }
            start = end;
        }
        match initialises(l) {
            Some(block) if parts.len() > 1 => {
                Err(Cause::Initialising(block.to_owned()).at_loop(LoopRef(l.var)))
            }
            _ => Ok(parts.concat()),
        }
    }

    /// Where parts of a loop end: where guards begin to fail, where they fail as a whole, and where
    /// the loop ends.
    fn ends(&self, l: &For, at: &At) -> Vec<usize> {
        let failures = |guard: &Guard| region::failures(&at.limit(guard), l.var, &at.extents);
        let points = self.guards_under(l).filter_map(failures);
        let points = points.flat_map(|(begin, never)| [begin, never]);
        let points = points.filter_map(|point| usize::try_from(point).ok());
        let mut ends: Vec<usize> = points.filter(|&p| p > 0 && p < l.extent).collect();
        ends.push(l.extent);
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    fn guards_under(&self, l: &For) -> impl Iterator<Item = &Guard> {
        let blocks = blocks_under(l);
        self.guards.iter().filter(move |guard| blocks.iter().any(|b| b.name == guard.block))
    }

    /// The first iteration of each loop that becomes of the iterations `start..end`, and how many
    /// there are.
    fn pieces(&self, l: &For, at: &At, start: usize, end: usize) -> Vec<(i64, usize)> {
        let count = end - start;
        if l.kind != ForKind::Vectorized {
            return vec![(start as i64, count)];
        }
        if let Some(width) = self.again.filter(|_| start == 0) {
            return vec![(count as i64 - width as i64, width)];
        }
        if let Some(vectors) = self.overlapping(l, at, start, count) {
            return vectors;
        }
        let mut first = start as i64;
        let piece = |width: usize| {
            first += width as i64;
            (first - width as i64, width)
        };
        widths_of(count, l.extent).into_iter().map(piece).collect()
    }

    /// The same if the last vector may begin in the vector before.
    fn overlapping(
        &self,
        l: &For,
        at: &At,
        start: usize,
        count: usize,
    ) -> Option<Vec<(i64, usize)>> {
        if self.rest != Rest::Overlap || start > 0 || count == l.extent {
            return None;
        }
        let lanes = l.extent;
        let vectors = cover(lanes, count, lanes);
        let again = vectors.iter().map(|&(first, _)| lanes.saturating_sub(first)).max()?;
        let shift = |(first, width)| (first as i64 - lanes as i64, width);
        if again == 0 || repeat::may_repeat(self, l, at, again) {
            return Some(vectors.into_iter().map(shift).collect());
        }
        // Without a vector before, the pieces may share lanes with one another.
        let own = cover(0, count, lanes).into_iter().map(|(first, width)| (first as i64, width));
        repeat::may_repeat_within(self, l).then(|| own.collect())
    }

    /// `count` iterations of a loop. A single one is no loop any more; but the peeled loop stays if
    /// its first iteration is complete.
    fn part(&mut self, l: &For, at: &At, first: i64, count: usize) -> Checked<Vec<Stmt>> {
        let is_peeled = l.var == self.peeled.var;
        let range = at.range(l, first, count);
        let at = match () {
            () if is_peeled && first == 0 && self.is_complete(l, &range) => range,
            () if count == 1 && (is_peeled || l.extent > 1) => {
                return self.one(l, &at.fix(l, first), is_peeled && first > 0);
            }
            () if is_peeled || (first, count) != (0, l.extent) => range,
            () => at.clone(),
        };
        let body = self.stmts(&l.body, &at)?;
        if body.is_empty() {
            return Ok(vec![]);
        }
        let part = For { var: l.var, extent: count, kind: l.kind, body };
        Ok(vec![Stmt::For(Shared::new(part))])
    }

    /// One iteration of a loop. The last one of the peeled loop may compute lanes of the one before
    /// again.
    fn one(&mut self, l: &For, at: &At, is_last: bool) -> Checked<Vec<Stmt>> {
        let may_begin_before = is_last && self.rest == Rest::Again;
        let before = self.again;
        if may_begin_before {
            self.again = again::lanes(self, l, at);
        }
        let stmts = self.stmts(&l.body, at);
        self.again = before;
        stmts
    }

    fn is_complete(&self, l: &For, at: &At) -> bool {
        let holds = |guard: &Guard| {
            let (sum, end) = at.limit(guard);
            sum.interval(&at.extents).is_some_and(|(_, most)| most < end)
        };
        self.guards_under(l).all(holds)
    }
}

fn is_partible(kind: ForKind) -> bool {
    matches!(kind, ForKind::Serial | ForKind::Unrolled | ForKind::Vectorized)
}

/// A reduction under the loop that begins in its iterations.
fn initialises(l: &For) -> Option<&str> {
    let drives = |b: &&Block| b.has_init() && bound_to(b, IterKind::Reduce).contains(&l.var);
    blocks_under(l).into_iter().find(drives).map(|b| b.name.as_str())
}

#[cfg(test)]
mod tests;
