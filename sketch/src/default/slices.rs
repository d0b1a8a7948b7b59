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
//! Slices are of the last stage, along its first axes or one of them alone, or of whole vectors along its last one: then
//! each slice makes the few columns of a factor that it alone needs. The last slice may reach beyond the result, of which it
//! then writes the part that there is. A stage belongs to slices if all that read it do, and no
//! element is wanted by two of them; what comes before, such as padding, is computed as a whole. What all slices read is
//! read again for each of them: there are no more slices than make up for that, unless the cache keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ansc_graph::arith::{self, Linear};
use ansc_graph::{BufId, Compute, Expr, Stage, TensorType, VarId};

use super::Machine;
use super::knobs::{Knob, Knobs};
use super::tile::has_nested;
use super::usage::{has_reuse, mentions, readers};

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

/// What stages read of one another.
struct Reads<'a> {
    compute: &'a Compute,
    /// For each stage its readers.
    of: Vec<Vec<Reader<'a>>>,
}

/// A stage, and the different indices along each axis of what it reads: most of its loads have the same ones.
struct Reader<'a> {
    stage: usize,
    indices: Vec<BTreeSet<&'a Expr>>,
}

pub(super) struct Slices<'a> {
    whole: &'a Compute,
    reads: Rc<Reads<'a>>,
    /// Slices along each axis that is cut.
    pub(super) counts: Vec<usize>,
    /// The first of the stages that belong to slices; all after it do.
    pub(super) first: usize,
    /// Of the stages from `first` on.
    parts: BTreeMap<usize, Part>,
}

impl<'a> Reads<'a> {
    fn new(compute: &'a Compute) -> Rc<Self> {
        let of = (0..compute.stages.len()).map(|stage| Reads::of(compute, stage)).collect();
        Rc::new(Reads { compute, of })
    }

    fn of(compute: &'a Compute, stage: usize) -> Vec<Reader<'a>> {
        let buffer = compute.stage_buffer(stage);
        let reader = |reader: usize| {
            let mut indices = vec![BTreeSet::new(); compute.stages[stage].ty.rank()];
            for (_, at) in compute.stages[reader].body.loads().iter().filter(|l| l.0 == buffer) {
                indices.iter_mut().zip(*at).for_each(|(along, index)| _ = along.insert(index));
            }
            Reader { stage: reader, indices }
        };
        readers(compute, buffer).into_iter().map(reader).collect()
    }
}

impl<'a> Slices<'a> {
    /// None where nothing is to be cut, or nothing is gained.
    pub(super) fn of(
        compute: &'a Compute,
        constant: &[bool],
        machine: &Machine,
        knobs: &Knobs,
    ) -> Option<Self> {
        // What a nested sum adds up never is in memory.
        if has_nested(compute) {
            return None;
        }
        let between: usize = compute.stages.iter().map(|s| s.ty.bytes()).sum();
        if between < LEAST || !compute.stages.iter().any(|s| reuses_a_stage(compute, s)) {
            return None;
        }
        let mut cuts = cuts_of(compute, machine);
        let reads = Reads::new(compute);
        let cut = |lengths: &Vec<usize>| Slices::cut(&reads, constant, lengths);
        let traffic = cuts.iter().find_map(cut)?.traffic();
        if traffic.between < LEAST {
            return None;
        }
        let most = knobs.get(Knob::Slices);
        if most == 0 {
            let all = Slices::all(compute, constant, machine);
            let counts: Vec<usize> = all.iter().map(Slices::count).collect();
            let count = traffic.slices(&counts, own_cache(machine))?;
            return all.into_iter().find(|slices| slices.count() == count);
        }
        // Trying a cut is dear: those of most slices come first, and the first that fits is it.
        let shape = &compute.stages.last()?.ty.shape;
        let count = |lengths: &Vec<usize>| of_result(shape, lengths).1.iter().product::<usize>();
        cuts.retain(|lengths| count(lengths) <= most);
        cuts.sort_by_key(|lengths| std::cmp::Reverse(count(lengths)));
        cuts.iter().find_map(cut)
    }

    /// Of every length.
    pub(super) fn all(compute: &'a Compute, constant: &[bool], machine: &Machine) -> Vec<Self> {
        let (cuts, reads) = (cuts_of(compute, machine), Reads::new(compute));
        cuts.iter().filter_map(|cut| Slices::cut(&reads, constant, cut)).collect()
    }

    fn count(&self) -> usize {
        self.counts.iter().product()
    }

    /// Slices of the last stage of `lengths` along its first axes, or all of them.
    fn cut(reads: &Rc<Reads<'a>>, constant: &[bool], lengths: &[usize]) -> Option<Slices<'a>> {
        let (reads, whole) = (reads.clone(), reads.compute);
        let last = whole.stages.len() - 1;
        let (result, counts) = of_result(&whole.stages[last].ty.shape, lengths);
        let parts = BTreeMap::from([(last, result)]);
        let mut slices = Slices { whole, reads, counts, first: last, parts };
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

    /// What a product reads that is not of its slice is the same for all, so that it may be packed, or is not walked by vectors.
    fn reads_alike(&self, s: &Stage, part: &Part, constant: &[bool]) -> bool {
        let is_constant = |b: BufId| constant.get(b.index()).copied().unwrap_or(false);
        let is_walked = |at: &[Expr]| mentions(at, s.ty.rank() - 1);
        let mut loads = s.body.loads().into_iter();
        loads.all(|(b, at)| {
            self.is_of_slice(b) || !is_walked(at) || is_constant(b) && part.is_same(at)
        })
    }

    /// The part of a stage that one slice reads, if no other one reads of it.
    fn wanted(&self, stage: usize) -> Option<Part> {
        let shape = &self.whole.stages[stage].ty.shape;
        let axes: Option<Vec<_>> =
            (0..shape.len()).map(|axis| self.read_along(axis, stage)).collect();
        let (starts, shape): (Vec<Vec<i64>>, _) = axes?.into_iter().unzip();
        // A slice that does not tell where to read would be read by others as well.
        let told = |j: usize| starts.iter().filter(|s| s[j] != 0).count() == 1;
        let all_told = (0..self.counts.len()).all(told);
        let part = Part { starts, shape };
        (all_told && self.has_all_of(stage, &part)).then_some(part)
    }

    /// Where along an axis of a stage all that is read of it begins, and how many elements that are.
    fn read_along(&self, axis: usize, stage: usize) -> Option<(Vec<i64>, usize)> {
        let extent = self.whole.stages[stage].ty.shape[axis];
        let mut all = None;
        for reader in &self.reads.of[stage] {
            let (s, part) = (&self.whole.stages[reader.stage], self.parts.get(&reader.stage)?);
            for index in &reader.indices[axis] {
                let read = self.read(s, part, index, extent)?;
                if all.get_or_insert_with(|| read.clone()) != &read {
                    return None;
                }
            }
        }
        all
    }

    /// Whether what slices compute of a stage is of the stage; or only they see what is not, and it can be computed all the same.
    fn has_all_of(&self, stage: usize, part: &Part) -> bool {
        let s = &self.whole.stages[stage];
        let extents = s.extents();
        let ranges = |v: VarId| self.range(v, &extents, part);
        let is_inside = |(index, &extent): (&Expr, &usize)| {
            let bounds = arith::bounds(&part.moved(index), &ranges);
            bounds.is_some_and(|(low, high)| low >= 0 && high < extent as i64)
        };
        let mut loads = s.body.loads().into_iter();
        let can_be_computed = |(b, at): (BufId, &[Expr])| {
            at.iter().zip(&self.whole.buffer_type(b).shape).all(is_inside)
        };
        part.beyond(&s.ty.shape, &self.counts).next().is_none()
            || !self.whole.outputs.contains(&stage) && loads.all(can_be_computed)
    }

    /// Where along an axis of this extent an index in a part of a stage begins, and how many elements it covers.
    fn read(
        &self,
        reader: &Stage,
        part: &Part,
        index: &Expr,
        extent: usize,
    ) -> Option<(Vec<i64>, usize)> {
        let extents = reader.extents();
        let ranges = |v: VarId| self.range(v, &extents, part);
        let moved = arith::simplify(&part.moved(index), &ranges);
        let mut within = Linear::from_expr(&moved);
        let start: Vec<i64> = self.numbers().map(|number| within.coefficient(&number)).collect();
        for (number, &by) in self.numbers().zip(&start) {
            within.add_scaled(&number, -by);
        }
        let within = within.to_expr();
        if within.vars().iter().any(|v| v.0 >= SLICE) {
            return None;
        }
        let length = self.length(&start, extent)?;
        let inside = |(low, high): (i64, i64)| low >= 0 && high < length as i64;
        let fits = length == extent || arith::bounds(&within, &ranges).is_some_and(inside);
        fits.then_some((start, length))
    }

    /// Elements along an axis of a slice, if slices that start there cover the axis, and each has some of it.
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
            Some((length, all)) => (all >= extent && all - length < extent).then_some(length),
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

    fn traffic(&self) -> Traffic {
        let stages = self.whole.stages.iter().enumerate().skip(self.first);
        let is_stored = |stage: usize| {
            let read = readers(self.whole, self.whole.stage_buffer(stage));
            let mut all = read.iter().chain([&stage]).map(|&s| &self.whole.stages[s]);
            !self.whole.outputs.contains(&stage) && all.any(|s| s.reduce.is_some())
        };
        let stored = stages.clone().filter(|(i, _)| is_stored(*i));
        let shared = |(i, s): (usize, &'a Stage)| {
            let loads = s.body.loads().into_iter();
            loads.filter(move |(b, at)| !self.is_of_slice(*b) && self.parts[&i].is_same(at))
        };
        let shared: BTreeSet<BufId> = stages.flat_map(shared).map(|(b, _)| b).collect();
        Traffic {
            between: stored.map(|(_, s)| s.ty.bytes()).sum(),
            shared: shared.iter().map(|b| self.whole.buffer_type(*b).bytes()).sum(),
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

    /// Stages that may write the buffer of an earlier one, which nobody reads any more, instead of their own: both are
    /// local, and of the same type.
    fn heirs(&self) -> BTreeMap<usize, usize> {
        let begins = self.begins();
        let is_local = |s: &usize| !self.whole.outputs.contains(s);
        let ty = |s: usize| (&self.parts[&s].shape, self.whole.stages[s].ty.dtype);
        let last_use = |s: usize| {
            let read = readers(self.whole, self.whole.stage_buffer(s));
            read.into_iter().max().unwrap_or(s)
        };
        let (mut heirs, mut in_use) = (BTreeMap::new(), Vec::new());
        for stage in self.parts.keys().copied().filter(is_local) {
            let fits = |&s: &usize| ty(s) == ty(stage) && last_use(s) < begins[&stage];
            match in_use.iter().position(fits) {
                Some(at) => heirs.insert(stage, std::mem::replace(&mut in_use[at], stage)),
                None => {
                    in_use.push(stage);
                    None
                }
            };
        }
        heirs
    }

    /// For each stage of the slice the first one that it depends on: it may be computed together with that.
    fn begins(&self) -> BTreeMap<usize, usize> {
        let mut begins: BTreeMap<usize, usize> = BTreeMap::new();
        for &stage in self.parts.keys() {
            let loads = self.whole.stages[stage].body.loads();
            let read = loads.iter().filter_map(|(b, _)| self.whole.stage_of(*b));
            let first = read.filter_map(|s| begins.get(&s).copied()).min();
            begins.insert(stage, first.unwrap_or(stage));
        }
        begins
    }

    /// Buffers of which a slice computes a part, in order.
    pub(super) fn buffers(&self) -> impl Iterator<Item = (BufId, Own<'_>)> {
        let heirs = self.heirs();
        self.parts.iter().map(move |(stage, part)| {
            let own = match heirs.get(stage) {
                _ if self.whole.outputs.contains(stage) => Own::Result {
                    starts: (0..part.starts.len()).map(|axis| part.start(axis)).collect(),
                    beyond: part
                        .beyond(&self.whole.stages[*stage].ty.shape, &self.counts)
                        .collect(),
                },
                Some(&heir) => Own::Inherited(self.whole.stage_buffer(heir)),
                None => Own::Local(&part.shape),
            };
            (self.whole.stage_buffer(*stage), own)
        })
    }
}

/// Where a slice leaves its part of a buffer.
pub(super) enum Own<'a> {
    /// In the result, from this place on; the last slice reaches beyond it along these axes.
    Result { starts: Vec<Expr>, beyond: Vec<usize> },
    /// In memory of its own, of this shape.
    Local(&'a [usize]),
    /// Where it left an earlier stage's, which nobody reads any more.
    Inherited(BufId),
}

impl Part {
    fn start(&self, axis: usize) -> Expr {
        let terms = self.starts[axis].iter().enumerate().filter(|(_, by)| **by != 0);
        let term = |(j, &by): (usize, &i64)| number(j) * Expr::int(by);
        terms.map(term).reduce(|a, b| a + b).unwrap_or_else(|| Expr::int(0))
    }

    /// Axes along which so many slices reach beyond a stage of this shape.
    fn beyond(&self, shape: &[usize], counts: &[usize]) -> impl Iterator<Item = usize> {
        let end = move |axis: usize| {
            let last = self.starts[axis].iter().zip(counts);
            last.map(|(by, &n)| by * (n as i64 - 1)).sum::<i64>() + self.shape[axis] as i64
        };
        (0..shape.len()).filter(move |&axis| end(axis) > shape[axis] as i64)
    }

    /// The place is the same for every slice.
    fn is_same(&self, at: &[Expr]) -> bool {
        at.iter().all(|index| self.moved(index) == *index)
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
    /// Of what every slice reads.
    shared: usize,
}

impl Traffic {
    /// How many of the possible numbers of slices are best, next to a cache of this size.
    fn slices(&self, possible: &[usize], cache: usize) -> Option<usize> {
        // What is written is read again.
        let makes_up = |n: usize| n <= 2 * self.between / self.shared.max(1);
        // What all slices read is still there when the next one comes.
        let stays = |n: usize| self.shared + self.between / n <= cache;
        let allowed = || possible.iter().copied().filter(|&n| makes_up(n) || stays(n));
        let fits = |n: &usize| self.between / n <= SLICE_BYTES;
        let count = allowed().filter(fits).min().or_else(|| allowed().max())?;
        let more = allowed().filter(|&n| n >= count.max(ENOUGH)).min()?;
        // Where slices share nothing, cutting costs nothing.
        (self.between >= LARGE || self.shared == 0 || stays(more)).then_some(more)
    }
}

/// The cache that a core has for itself, at least: of processors with these vectors.
fn own_cache(machine: &Machine) -> usize {
    if machine.vector_bytes >= 64 { 1 << 20 } else { 256 << 10 }
}

fn number(j: usize) -> Expr {
    Expr::Var(VarId(SLICE + j as u32))
}

fn reuses_a_stage(compute: &Compute, s: &Stage) -> bool {
    has_reuse(s) && s.body.loads().iter().any(|(b, _)| compute.stage_of(*b).is_some())
}

fn cuts_of(compute: &Compute, machine: &Machine) -> Vec<Vec<usize>> {
    let lanes = |s: &Stage| (machine.vector_bytes / s.ty.dtype.size()).max(1);
    compute.stages.last().map(|s| cuts(s, lanes(s))).unwrap_or_default()
}

/// Lengths of slices along the first axes: parts of the first one, then parts of the second one within one element of
/// the first, and so on; of the last one whole vectors, within all of the others. And parts of each axis alone, for results
/// whose axes are in another order than those of what they are made of. Parts of a power of two elements need not fit a
/// result that is no sum: the last one then reaches beyond it.
fn cuts(result: &Stage, lanes: usize) -> Vec<Vec<usize>> {
    let Some((&last, first)) = result.ty.shape.split_last() else { return vec![] };
    let may_reach_beyond = result.reduce.is_none();
    let parts = |extent: usize| {
        (1..extent).filter(move |length| {
            extent.is_multiple_of(*length) || may_reach_beyond && length.is_power_of_two()
        })
    };
    let mut all = vec![];
    for (axis, &extent) in first.iter().enumerate() {
        let (ones, whole) = (vec![1; axis], &first[..axis]);
        let mut outers = vec![&ones[..], whole];
        outers.dedup();
        for outer in outers {
            all.extend(parts(extent).rev().map(|length| [outer, &[length]].concat()));
        }
    }
    let vectors = (1..last)
        .rev()
        .filter(|length| last.is_multiple_of(*length) && length.is_multiple_of(lanes));
    all.extend(vectors.map(|length| [first, &[length]].concat()));
    all
}

/// The part of the result, and the slices along each axis that is cut.
fn of_result(shape: &[usize], lengths: &[usize]) -> (Part, Vec<usize>) {
    let mut part = Part { starts: vec![], shape: shape.to_vec() };
    let counts: Vec<usize> = shape.iter().zip(lengths).map(|(e, l)| e.div_ceil(*l)).collect();
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
