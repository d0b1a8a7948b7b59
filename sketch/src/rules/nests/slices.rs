//! Slices: stages that feed one another slice by slice, under one parallel loop over slices of the
//! last one.
//!
//! ```text
//! points[i, j, t, c] = ..;                                                    t in 0..196
//! product[i, j, t, k] = sum{c} points[i, j, t, c] * u[i, j, c, k]
//! conv[y, x, k] = .. product[.., y // 4 * 14 + x // 4, k] ..                 y in 0..56
//! =>
//! v0 = sample_categorical([4, 8, 2, ..]); slice([v0], "slices"); ..; join_noted("slices")
//! parallel p in 0..14 {
//!   points'[i, j, 0..14, c] = ..;   product'[i, j, 0..14, k] = ..;   conv[p * 4 + 0..4, x, k] = ..
//! }
//! ```
//!
//! Results between stages are then as large as one slice: they stay in the cache, where all of them
//! would go through memory. Other rules schedule what is inside of the loop, as if there were
//! nothing but the slice.
//!
//! Slices are parts of one axis of the last stage, and single elements along others, or whole
//! vectors along its last one: then each slice makes the few columns of a factor that it alone
//! needs. What all slices read is read again for each of them: there are no more slices than make
//! up for that, unless the cache keeps it.

use std::collections::BTreeMap;
use std::rc::Rc;

use std::sync::Arc;

use ansc_graph::{BufId, Compute, Expr, Stage, VarId};

use super::{Nests, WITH_CONTRACTIONS, Way};
use crate::contraction::nested::has_nested;
use crate::machine::Machine;
use crate::slices::{Part, Reads, Slices};
use crate::trace::{BlockVar, Number, Recorder, StepError};
use crate::usage::{has_reuse, readers};

/// The note of loops over slices.
const SLICES: &str = "slices";

/// Intermediate results of fewer bytes stay in the cache anyway.
const LEAST: usize = 256 << 10;
/// Those of more are worth cutting where nobody searched, into slices of about so many bytes,
/// enough for all threads.
const LARGE: usize = 4 << 20;
const SLICE_BYTES: usize = 1 << 20;
const ENOUGH: usize = 8;

/// Where the last stage is cut: lengths along its first axes, one of which is a choice.
pub(super) struct Cuts {
    /// Lengths that nobody tuned gets.
    first: Vec<usize>,
    /// The axis that slices are parts of.
    axis: usize,
    /// Lengths along this axis, that one first.
    lengths: Vec<i64>,
    /// Whether a slice is as small as it should be.
    is_small: bool,
}

impl Cuts {
    /// The best cut of all, and those along the same axis whose slices have the same stages, with
    /// the same loops: one of a single iteration is not cut like others.
    fn around(all: &[Cut<'_>], (best, is_small): (usize, bool)) -> Cuts {
        let (possible, slices) = &all[best];
        let Possible { lengths: first, axis } = possible;
        let is_like = |(at, (other, of)): &(usize, &Cut<'_>)| {
            *at != best && other.is_along(possible) && of.have_loops_of(slices)
        };
        let others = all.iter().enumerate().filter(is_like).map(|(_, (other, _))| &other.lengths);
        let lengths = [first].into_iter().chain(others).map(|all| all[*axis] as i64).collect();
        Cuts { first: first.clone(), axis: *axis, lengths, is_small }
    }
}

/// The cuts that pay, and the nests that they are of. A sum at the end whose rows no length divides
/// is stored by a map: slices of that may reach beyond it. None where nothing is to be cut, or
/// nothing is gained.
pub(super) fn cut(nests: Nests) -> Option<(Nests, Cuts)> {
    let cuts = cuts_of(&nests);
    let is_sum = nests.compute.stages.last().is_some_and(|s| s.reduce.is_some());
    if is_sum && cuts.as_ref().is_some_and(|cuts| !cuts.is_small) {
        let stored = nests.clone().stored().ok();
        let smaller = stored.and_then(|stored| {
            let cuts = cuts_of(&stored).filter(|cuts| cuts.is_small)?;
            Some((stored, cuts))
        });
        if smaller.is_some() {
            return smaller;
        }
    }
    cuts.map(|cuts| (nests, cuts))
}

fn cuts_of(nests: &Nests) -> Option<Cuts> {
    let compute = &nests.compute;
    // The terms of a nested sum never are in memory.
    let between: usize = compute.stages.iter().map(|s| s.ty.bytes()).sum();
    let reuses = |s: &Stage| {
        has_reuse(s) && s.body.loads().iter().any(|(b, _)| compute.stage_of(*b).is_some())
    };
    if has_nested(compute) || between < LEAST || !compute.stages.iter().any(reuses) {
        return None;
    }
    let cutting = Cutting::of(nests);
    // All leave the same bytes between stages.
    let between = cutting.between(&cutting.first()?);
    if between < LEAST {
        return None;
    }
    let all = cutting.all();
    let traffic = |(_, slices): &Cut<'_>| cutting.traffic(slices, between);
    let traffic: Vec<Traffic> = all.iter().map(traffic).collect();
    let best = Traffic::best(&traffic, nests.task.machine.own_cache())?;
    Some(Cuts::around(&all, (best, traffic[best].is_small())))
}

/// Every cut with those along the same axis.
#[cfg(test)]
pub(super) fn every_cut(nests: &Nests) -> Vec<Cuts> {
    let cutting = Cutting::of(nests);
    let all = cutting.all();
    (0..all.len()).map(|best| Cuts::around(&all, (best, true))).collect()
}

/// The nests of what is computed as a whole, and those of a slice under one loop, with the names of
/// the rules that wrote them.
pub(super) fn written(mut nests: Nests, cuts: &Cuts, way: &Way) -> Option<(Nests, Vec<String>)> {
    let whole = nests.compute.clone();
    let slices = Slices::of(&Reads::new(&whole), &cuts.first)?;
    let mut lengths: Vec<Number> = cuts.first.iter().map(|&n| n.into()).collect();
    lengths[cuts.axis] = nests.choose(&cuts.lengths).ok()?;
    nests.recorder.slice(&lengths, SLICES).ok()?;
    nests.compute = Arc::new(slices.before());
    let (mut nests, before) = nests.written(way, &WITH_CONTRACTIONS)?;
    nests.compute = Arc::new(slices.compute());
    (nests.outer, nests.sliced) = (1, slices.first);
    let (mut nests, inside) = nests.written_from(slices.first, way, &WITH_CONTRACTIONS)?;
    nests.recorder.join_noted(SLICES).ok()?;
    let rules = [SLICES.to_owned()].into_iter().chain(before).chain(inside).collect();
    Some((nests, rules))
}

/// The nest of the block, whose outermost loop is over slices, becomes one of them.
pub(super) fn mark(r: &mut Recorder, block: BlockVar) -> Result<(), StepError> {
    let loops = r.get_loops(block)?;
    let over = *loops.first().ok_or(StepError::NoChoice)?;
    r.parallel(over)?;
    r.annotate_loop(over, SLICES, 0.into())
}

/// Lengths along the first axes of the last stage, and the axis that they are parts of. Along other
/// axes they are one element, or all.
struct Possible {
    lengths: Vec<usize>,
    axis: usize,
}

impl Possible {
    /// Whether both are parts of one axis, and the same along others.
    fn is_along(&self, other: &Possible) -> bool {
        let mut at = self.lengths.iter().zip(&other.lengths).enumerate();
        let is_same = |(axis, (a, b)): (usize, (&usize, &usize))| axis == self.axis || a == b;
        self.axis == other.axis && self.lengths.len() == other.lengths.len() && at.all(is_same)
    }
}

/// A cut, and what becomes of it.
type Cut<'a> = (&'a Possible, Slices<'a>);

/// The subgraph, which of its inputs are constant, and what may be tried.
struct Cutting<'a> {
    compute: &'a Compute,
    constant: &'a [bool],
    reads: Rc<Reads<'a>>,
    possible: Vec<Possible>,
}

impl<'a> Cutting<'a> {
    fn of(nests: &'a Nests) -> Cutting<'a> {
        let Nests { compute, task, .. } = nests;
        let possible = compute.stages.last().map_or(vec![], |s| possible(s, &task.machine));
        Cutting { compute, constant: &task.constant, reads: Reads::new(compute), possible }
    }

    fn cut(&self, lengths: &[usize]) -> Option<Slices<'a>> {
        Slices::of(&self.reads, lengths).filter(|slices| self.pays(slices))
    }

    fn first(&self) -> Option<Slices<'a>> {
        self.possible.iter().find_map(|possible| self.cut(&possible.lengths))
    }

    fn all(&self) -> Vec<Cut<'_>> {
        let all = self.possible.iter();
        all.filter_map(|possible| Some((possible, self.cut(&possible.lengths)?))).collect()
    }

    /// A product feeds on its slice, and all of them read what is not of it in a way that suits
    /// them.
    fn pays(&self, slices: &Slices<'_>) -> bool {
        let products =
            || slices.parts().filter(|(stage, _)| has_reuse(&self.compute.stages[*stage]));
        let feeds = |(stage, _): (usize, &Part)| {
            let loads = self.compute.stages[stage].body.loads();
            loads.iter().any(|(b, _)| slices.is_of_slice(*b))
        };
        products().any(feeds) && products().all(|product| self.reads_alike(slices, product))
    }

    /// A constant that a product reads by vectors is the same for all slices, so that it may be
    /// packed. What is no constant lies in rows, or is packed before.
    fn reads_alike(&self, slices: &Slices<'_>, (stage, part): (usize, &Part)) -> bool {
        let s = &self.compute.stages[stage];
        let is_constant = |b: BufId| self.constant.get(b.index()).copied().unwrap_or(false);
        let vector = VarId::new(s.ty.rank().saturating_sub(1));
        let is_walked = |at: &[Expr]| at.iter().any(|e| e.vars().contains(&vector));
        s.body.loads().into_iter().all(|(b, at)| {
            slices.is_of_slice(b) || !is_walked(at) || !is_constant(b) || part.is_same(at)
        })
    }

    /// Bytes that stages leave to one another.
    fn between(&self, slices: &Slices<'_>) -> usize {
        let compute = self.compute;
        let is_stored = |stage: usize| {
            let read = readers(compute, compute.stage_buffer(stage));
            let mut all = read.iter().chain([&stage]).map(|&s| &compute.stages[s]);
            !compute.outputs.contains(&stage) && all.any(|s| s.reduce.is_some())
        };
        let stored = slices.parts().filter(|(stage, _)| is_stored(*stage));
        stored.map(|(stage, _)| compute.stages[stage].ty.bytes()).sum()
    }

    fn traffic(&self, slices: &Slices<'_>, between: usize) -> Traffic {
        let mut of_slice: BTreeMap<BufId, usize> = BTreeMap::new();
        for (stage, part) in slices.parts() {
            for (b, at) in self.compute.stages[stage].body.loads() {
                if !slices.is_of_slice(b) {
                    let bytes = of_slice.entry(b).or_default();
                    *bytes = slices.read_by_one(stage, part, (b, at)).max(*bytes);
                }
            }
        }
        let count = slices.count();
        let shared = |(b, bytes): (&BufId, &usize)| {
            (bytes * count > self.compute.buffer_type(*b).bytes()).then_some(*bytes)
        };
        Traffic { between, count, shared: of_slice.iter().filter_map(shared).sum() }
    }
}

/// Bytes that go through memory unless they stay in the cache.
struct Traffic {
    /// Those that one stage leaves to another.
    between: usize,
    /// Slices.
    count: usize,
    /// Those that a slice reads, of tensors that are read by several.
    shared: usize,
}

impl Traffic {
    fn is_small(&self) -> bool {
        self.between / self.count <= SLICE_BYTES
    }

    /// The best of the possible cuts, next to a cache of this size.
    fn best(possible: &[Traffic], cache: usize) -> Option<usize> {
        // Data that all slices read are still there when the next one comes.
        let stays = |t: &Traffic| t.shared + t.between / t.count <= cache;
        // Each result is written, and read again.
        let makes_up = |t: &Traffic| t.count * t.shared <= 2 * t.between;
        let pays = |at: &usize| makes_up(&possible[*at]) || stays(&possible[*at]);
        let allowed = || (0..possible.len()).filter(pays);
        let fits = |at: &usize| possible[*at].is_small();
        let number = |at: &usize| possible[*at].count;
        let fitting = allowed().filter(fits).map(|at| number(&at)).min();
        let count = fitting.or_else(|| allowed().map(|at| number(&at)).max())?;
        // Of those with enough slices the one that reads least again, and has the fewest.
        let again = |at: &usize| (possible[*at].count * possible[*at].shared, number(at));
        let enough = allowed().filter(|at| number(at) >= count.max(ENOUGH));
        let best = enough.min_by_key(again)?;
        let Traffic { between, shared, .. } = possible[best];
        // Where slices share nothing, cutting costs nothing.
        (between >= LARGE || shared == 0 || stays(&possible[best])).then_some(best)
    }
}

/// Lengths of slices along the first axes: parts of one axis, and along each axis before it one
/// element, or all; so along those between it and the last one, for results whose axes are in
/// another order than those of what they are made of. Or whole vectors of the last axis, and all
/// along the others. Parts need not fit a result that is no sum if they are of a power of two
/// elements, or as many parts of fewer would reach beyond it, too: the last one reaches beyond it.
fn possible(result: &Stage, machine: &Machine) -> Vec<Possible> {
    let lanes = (machine.vector_bytes / result.ty.dtype.size()).max(1);
    let Some((&last, first)) = result.ty.shape.split_last() else { return vec![] };
    let may_reach_beyond = result.reduce.is_none();
    let parts = |extent: usize| {
        (1..extent).filter(move |length| {
            let count = extent.div_ceil(*length);
            let is_least = extent.div_ceil(count) == *length;
            let is_allowed = length.is_power_of_two() || is_least;
            extent.is_multiple_of(*length) || may_reach_beyond && is_allowed
        })
    };
    let mut all = vec![];
    for (axis, &extent) in first.iter().enumerate() {
        let (before, after) = (&first[..axis], &first[axis + 1..]);
        for before in one_or_all(before) {
            let ones_after = after.iter().any(|&extent| extent > 1).then(|| vec![1; after.len()]);
            for after in [Some(vec![]), ones_after].into_iter().flatten() {
                let lengths = |length| [&before[..], &[length], &after].concat();
                let possible = |length| Possible { lengths: lengths(length), axis };
                all.extend(parts(extent).rev().map(possible));
            }
        }
    }
    let vectors = (1..last)
        .rev()
        .filter(|length| last.is_multiple_of(*length) && length.is_multiple_of(lanes));
    let lengths = |length| [first, &[length]].concat();
    all.extend(vectors.map(|length| Possible { lengths: lengths(length), axis: first.len() }));
    all
}

/// One element along each axis, or all.
fn one_or_all(extents: &[usize]) -> Vec<Vec<usize>> {
    let mut both = vec![vec![1; extents.len()], extents.to_vec()];
    both.dedup();
    both
}

#[cfg(test)]
mod tests;
