//! Stages that feed one another slice by slice, under one parallel loop over slices of the result.
//!
//! ```text
//! points[i, j, t, c] = ..;   product[i, j, t, k] = sum{c} points[i, j, t, c] * u[i, j, c, k]        t in 0..196
//! conv[y, x, k] = .. product[.., y // 4 * 14 + x // 4, k] ..                                        y in 0..56
//! =>
//! parallel p in 0..14 {
//!   points'[i, j, 0..14, c] = ..;   product'[i, j, 0..14, k] = ..;   conv[p * 4 + 0..4, x, k] = ..
//! }
//! ```
//!
//! What stands between stages is then as large as one slice: it stays in the cache, where all of it would go through
//! memory. Inside of the loop stages are scheduled as if there were nothing but the slice: [`Slices::compute`] is the
//! subgraph of one of them, whose number stands for variables from [`SLICE`] on.
//!
//! Slices are of the last stage, along its first axes. A stage belongs to them if all that read it do, and no element
//! is wanted by two slices; what comes before, such as padding, is computed as a whole. Since constants are read again
//! for each slice, there are no more slices than make up for that.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::arith::{self, Linear};
use ansc_graph::{BufId, Compute, Expr, Stage, TensorType, VarId};

use super::knobs::{Knob, Knobs};
use super::usage::{has_reuse, readers};

/// Variables that number the slices along each axis that is cut; no stage has so many axes.
pub(super) const SLICE: u32 = u32::MAX - 16;
/// Stands in for the variables of a stage while others are replaced.
const KEPT: u32 = 1 << 30;

/// Intermediate results of fewer bytes stay in the cache anyway.
const LEAST: usize = 256 << 10;
/// Those of more are worth cutting where nobody searched, into slices of about so many bytes, enough for all threads.
const LARGE: usize = 4 << 20;
const SLICE_BYTES: usize = 1 << 20;
const ENOUGH: usize = 8;

/// Where a stage's part for one slice begins along each axis, as multiples of the slices' numbers, and its shape.
#[derive(Clone, PartialEq, Debug)]
struct Part {
    starts: Vec<Vec<i64>>,
    shape: Vec<usize>,
}

pub(super) struct Slices<'a> {
    whole: &'a Compute,
    /// Slices along each axis that is cut.
    pub(super) counts: Vec<usize>,
    /// The first of the stages that belong to slices; all after it do.
    pub(super) first: usize,
    /// Of the stages from `first` on.
    parts: BTreeMap<usize, Part>,
}

impl<'a> Slices<'a> {
    /// None where nothing is to be cut, or nothing is gained.
    pub(super) fn of(compute: &'a Compute, constant: &[bool], knobs: &Knobs) -> Option<Self> {
        let between: usize = compute.stages.iter().map(|s| s.ty.bytes()).sum();
        if between < LEAST || !compute.stages.iter().any(|s| reuses_a_stage(compute, s)) {
            return None;
        }
        let all = Slices::all(compute, constant);
        let traffic = all.first()?.traffic(constant);
        if traffic.between < LEAST {
            return None;
        }
        let count = match knobs.get(Knob::Slices) {
            0 => traffic.slices(&all.iter().map(Slices::count).collect::<Vec<_>>())?,
            most => all.iter().map(Slices::count).filter(|&n| n <= most).max()?,
        };
        all.into_iter().find(|slices| slices.count() == count)
    }

    /// Of every length.
    pub(super) fn all(compute: &'a Compute, constant: &[bool]) -> Vec<Self> {
        let cuts = compute.stages.last().map(|s| cuts(&s.ty.shape)).unwrap_or_default();
        cuts.iter().filter_map(|cut| Slices::cut(compute, constant, cut)).collect()
    }

    fn count(&self) -> usize {
        self.counts.iter().product()
    }

    /// Slices of the last stage of `lengths` along its first axes.
    fn cut(whole: &'a Compute, constant: &[bool], lengths: &[usize]) -> Option<Slices<'a>> {
        let last = whole.stages.len() - 1;
        let (result, counts) = of_result(&whole.stages[last].ty.shape, lengths);
        let parts = BTreeMap::from([(last, result)]);
        let mut slices = Slices { whole, counts, first: last, parts };
        while slices.first > 0
            && let Some(part) = slices.wanted(slices.first - 1)
        {
            slices.first -= 1;
            slices.parts.insert(slices.first, part);
        }
        let products: Vec<usize> =
            slices.parts.keys().copied().filter(|&s| has_reuse(&whole.stages[s])).collect();
        let feeds = |&s: &usize| slices.reads_slice(&whole.stages[s]);
        let alike = |s: &usize| slices.reads_alike(&whole.stages[*s], &slices.parts[s], constant);
        (products.iter().any(feeds) && products.iter().all(alike)).then_some(slices)
    }

    fn is_of_slice(&self, buffer: BufId) -> bool {
        self.whole.stage_of(buffer).is_some_and(|stage| stage >= self.first)
    }

    fn reads_slice(&self, s: &Stage) -> bool {
        s.body.loads().iter().any(|(b, _)| self.is_of_slice(*b))
    }

    /// What a product reads that is not of its slice is constant, and the same for all: it may be packed.
    fn reads_alike(&self, s: &Stage, part: &Part, constant: &[bool]) -> bool {
        let is_constant = |b: BufId| constant.get(b.index()).copied().unwrap_or(false);
        let same = |at: &[Expr]| at.iter().all(|index| part.moved(index) == *index);
        let mut loads = s.body.loads().into_iter();
        loads.all(|(b, at)| self.is_of_slice(b) || is_constant(b) && same(at))
    }

    /// The part of a stage that one slice reads, if no other one reads of it.
    fn wanted(&self, stage: usize) -> Option<Part> {
        let buffer = self.whole.stage_buffer(stage);
        let mut parts = vec![];
        for reader in readers(self.whole, buffer) {
            let part = self.parts.get(&reader)?;
            let s = &self.whole.stages[reader];
            let loads = s.body.loads().into_iter().filter(|(b, _)| *b == buffer);
            for (_, at) in loads {
                parts.push(self.read(s, part, at, &self.whole.stages[stage].ty.shape)?);
            }
        }
        let first = parts.pop()?;
        parts.iter().all(|other| *other == first).then_some(first)
    }

    /// The part of a buffer of this shape that a load in a part of a stage covers.
    fn read(&self, reader: &Stage, part: &Part, at: &[Expr], shape: &[usize]) -> Option<Part> {
        let extents = reader.extents();
        let ranges = |v: VarId| self.range(v, &extents, part);
        let (mut starts, mut lengths) = (vec![], vec![]);
        for (index, &extent) in at.iter().zip(shape) {
            let moved = arith::simplify(&part.moved(index), &ranges);
            let mut within = Linear::from_expr(&moved);
            let start: Vec<i64> =
                self.numbers().map(|number| within.coefficient(&number)).collect();
            for (number, &by) in self.numbers().zip(&start) {
                within.add_scaled(&number, -by);
            }
            let within = within.to_expr();
            if within.vars().iter().any(|v| v.0 >= SLICE) {
                return None;
            }
            let length = self.length(&start, extent)?;
            let inside = |(low, high): (i64, i64)| low >= 0 && high < length as i64;
            if length < extent && !arith::bounds(&within, &ranges).is_some_and(inside) {
                return None;
            }
            starts.push(start);
            lengths.push(length);
        }
        // A slice that does not tell where to read would be read by others as well.
        let told = |j: usize| starts.iter().filter(|s| s[j] != 0).count() == 1;
        let all = (0..self.counts.len()).all(told);
        all.then_some(Part { starts, shape: lengths })
    }

    /// Elements along an axis of a slice, if slices that start there cover the axis.
    fn length(&self, start: &[i64], extent: usize) -> Option<usize> {
        let mut covered = None;
        for (&by, &count) in start.iter().zip(&self.counts).rev().filter(|(by, _)| **by != 0) {
            let by = usize::try_from(by).ok()?;
            if covered.is_some_and(|(_, all)| all != by) {
                return None;
            }
            covered = Some((covered.map_or(by, |(length, _)| length), by * count));
        }
        match covered {
            None => Some(extent),
            Some((length, all)) => (all == extent).then_some(length),
        }
    }

    fn numbers(&self) -> impl Iterator<Item = Expr> + use<> {
        (0..self.counts.len()).map(number)
    }

    fn range(&self, v: VarId, extents: &[usize], part: &Part) -> Option<(i64, i64)> {
        let extent = match v.0.checked_sub(SLICE) {
            Some(j) => *self.counts.get(j as usize)?,
            None => *part.shape.get(v.index()).or(extents.get(v.index()))?,
        };
        Some((0, extent as i64 - 1))
    }

    fn traffic(&self, constant: &[bool]) -> Traffic {
        let stages = self.whole.stages.iter().enumerate().skip(self.first);
        let is_stored = |stage: usize| {
            let read = readers(self.whole, self.whole.stage_buffer(stage));
            let mut all = read.iter().chain([&stage]).map(|&s| &self.whole.stages[s]);
            !self.whole.outputs.contains(&stage) && all.any(|s| s.reduce.is_some())
        };
        let stored = stages.clone().filter(|(i, _)| is_stored(*i));
        let is_constant = |b: &&BufId| constant.get(b.index()).copied().unwrap_or(false);
        let read = stages.flat_map(|(_, s)| s.body.loads()).map(|(b, _)| b);
        let read: BTreeSet<BufId> = read.collect();
        Traffic {
            between: stored.map(|(_, s)| s.ty.bytes()).sum(),
            constants: read
                .iter()
                .filter(is_constant)
                .map(|b| self.whole.inputs[b.index()].bytes())
                .sum(),
        }
    }

    /// The stages that are computed as a whole, and what slices read of them.
    pub(super) fn before(&self) -> Compute {
        let stages = self.whole.stages[..self.first].to_vec();
        let read_later = |&stage: &usize| {
            let read = readers(self.whole, self.whole.stage_buffer(stage));
            self.whole.outputs.contains(&stage) || read.iter().any(|&r| r >= self.first)
        };
        let outputs = (0..self.first).filter(read_later).collect();
        Compute { inputs: self.whole.inputs.clone(), stages, outputs }
    }

    /// The subgraph of one slice. Stages before are as they were.
    pub(super) fn compute(&self) -> Compute {
        let mut compute = self.whole.clone();
        for (&stage, part) in &self.parts {
            let s = &mut compute.stages[stage];
            s.body = self.body(s, part);
            s.ty = TensorType::new(s.ty.dtype, &part.shape[..]);
        }
        compute
    }

    /// Places of the whole, but for loads of what is of the slice itself.
    fn body(&self, s: &Stage, part: &Part) -> Expr {
        let kept = |e: &Expr| e.substitute(&|v| Some(Expr::Var(VarId(v.0 + KEPT))));
        let marked = s.body.rewrite(&mut |e| match e {
            Expr::Load(b, at) if self.is_of_slice(*b) => {
                Some(Expr::Load(*b, at.iter().map(kept).collect()))
            }
            _ => None,
        });
        let back = |v: VarId| (v.0 >= KEPT && v.0 < SLICE).then(|| Expr::Var(VarId(v.0 - KEPT)));
        let moved = part.moved(&marked).substitute(&back);
        let extents = s.extents();
        arith::simplify(&moved, &|v| self.range(v, &extents, part))
    }

    /// Buffers of which a slice computes a part, and where that begins: results, and what is local to the slice.
    pub(super) fn buffers(&self) -> impl Iterator<Item = (BufId, Vec<Expr>, Option<&[usize]>)> {
        self.parts.iter().map(|(&stage, part)| {
            let starts = (0..part.starts.len()).map(|axis| part.start(axis)).collect();
            let local = !self.whole.outputs.contains(&stage);
            (self.whole.stage_buffer(stage), starts, local.then_some(&part.shape[..]))
        })
    }
}

impl Part {
    fn start(&self, axis: usize) -> Expr {
        let terms = self.starts[axis].iter().enumerate().filter(|(_, by)| **by != 0);
        let term = |(j, &by): (usize, &i64)| number(j) * Expr::int(by);
        terms.map(term).reduce(|a, b| a + b).unwrap_or_else(|| Expr::int(0))
    }

    /// An expression of the whole at a place of the part.
    fn moved(&self, e: &Expr) -> Expr {
        e.substitute(&|v| {
            let starts = self.starts.get(v.index())?;
            let moves = starts.iter().any(|by| *by != 0);
            moves.then(|| self.start(v.index()) + Expr::Var(v))
        })
    }
}

/// Bytes that go through memory unless they stay in the cache.
struct Traffic {
    /// Of what one stage leaves to another.
    between: usize,
    constants: usize,
}

impl Traffic {
    /// How many of the possible numbers of slices are best.
    fn slices(&self, possible: &[usize]) -> Option<usize> {
        // What is written is read again.
        let most = 2 * self.between / self.constants.max(1);
        let allowed = || possible.iter().copied().filter(|&n| n <= most);
        let fits = |n: &usize| self.between / n <= SLICE_BYTES;
        let count = allowed().filter(fits).min().or_else(|| allowed().max())?;
        let more = allowed().filter(|&n| n >= count.max(ENOUGH)).min()?;
        (self.between >= LARGE).then_some(more)
    }
}

fn number(j: usize) -> Expr {
    Expr::Var(VarId(SLICE + j as u32))
}

fn reuses_a_stage(compute: &Compute, s: &Stage) -> bool {
    has_reuse(s) && s.body.loads().iter().any(|(b, _)| compute.stage_of(*b).is_some())
}

/// Lengths of slices along the first axes: parts of the first one, then parts of the second one within one element of
/// the first, and so on; never of the last.
fn cuts(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![];
    let mut outer = vec![];
    for &extent in shape.iter().take(shape.len().saturating_sub(1)) {
        let parts = (1..extent).filter(|&length| extent.is_multiple_of(length));
        all.extend(parts.rev().map(|length| [&outer[..], &[length]].concat()));
        outer.push(1);
    }
    all
}

/// The part of the result, and the slices along each axis that is cut.
fn of_result(shape: &[usize], lengths: &[usize]) -> (Part, Vec<usize>) {
    let mut part = Part { starts: vec![], shape: shape.to_vec() };
    let counts: Vec<usize> = shape.iter().zip(lengths).map(|(e, l)| e / l).collect();
    let is_cut: Vec<usize> = (0..counts.len()).filter(|&axis| counts[axis] > 1).collect();
    part.shape[..lengths.len()].copy_from_slice(lengths);
    part.starts = (0..shape.len())
        .map(|axis| {
            let by = |&cut: &usize| if cut == axis { lengths[axis] as i64 } else { 0 };
            is_cut.iter().map(by).collect()
        })
        .collect();
    (part, is_cut.into_iter().map(|axis| counts[axis]).collect())
}
