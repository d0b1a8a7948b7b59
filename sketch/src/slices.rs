//! Which stages of a subgraph feed one another slice by slice of its last stage.
//!
//! ```text
//! points[i, j, t, c] = ..;                                                    t in 0..196
//! product[i, j, t, k] = sum{c} points[i, j, t, c] * u[i, j, c, k]
//! conv[y, x, k] = .. product[.., y // 4 * 14 + x // 4, k] ..                 y in 0..56
//! => in 14 slices, of 4 rows of `conv`
//! points'[i, j, 0..14, c] = ..;   product'[i, j, 0..14, k] = ..;   conv[p * 4 + 0..4, x, k] = ..
//! ```
//!
//! A stage belongs to slices if all that read it do, and no element is wanted by two of them; what
//! comes before, such as padding, is computed as a whole. The last slice may reach beyond the
//! result, of which it then writes the part that there is; what it makes beyond that is made of the
//! last elements that inputs have. [`Slices::compute`] is the subgraph of one slice, whose number
//! stands for variables from [`SLICE`] on.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ansc_graph::arith::{self, Linear};
use ansc_graph::{BufId, Compute, Expr, Stage, TensorType, VarId};

use crate::usage::readers;
use ansc_graph::flat::spread;

/// Variables that number the slices along each axis that is cut; no stage has so many axes.
const SLICE: u32 = u32::MAX - 16;
/// Stands in for the variables of a stage while others are replaced.
const KEPT: u32 = 1 << 30;

/// Where a stage's part for one slice begins along each axis, as multiples of the slices' numbers,
/// and its shape.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Part {
    starts: Vec<Vec<i64>>,
    pub(crate) shape: Vec<usize>,
}

/// The loads by which stages read one another.
pub(crate) struct Reads<'a> {
    compute: &'a Compute,
    /// For each stage its readers.
    of: Vec<Vec<Reader<'a>>>,
}

/// A stage, and the different indices along each axis of what it reads: most of its loads have the
/// same ones.
struct Reader<'a> {
    stage: usize,
    indices: Vec<BTreeSet<&'a Expr>>,
}

/// The slices of a subgraph, all of the same lengths.
pub(crate) struct Slices<'a> {
    whole: &'a Compute,
    reads: Rc<Reads<'a>>,
    /// Slices along each axis that is cut.
    counts: Vec<usize>,
    /// The first of the stages that belong to slices; all after it do.
    pub(crate) first: usize,
    /// The parts of the stages from `first` on.
    parts: BTreeMap<usize, Part>,
}

impl<'a> Reads<'a> {
    pub(crate) fn new(compute: &'a Compute) -> Rc<Self> {
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
    /// Slices of the last stage of `lengths` along its first axes, and of whole axes otherwise.
    /// None if that is no length for each of some axes, or one slice.
    pub(crate) fn of(reads: &Rc<Reads<'a>>, lengths: &[usize]) -> Option<Slices<'a>> {
        let (reads, whole) = (reads.clone(), reads.compute);
        let last = whole.stages.len().checked_sub(1)?;
        let shape = &whole.stages[last].ty.shape;
        let is_length = |(length, extent): (&usize, &usize)| (1..=*extent).contains(length);
        let is_empty = whole.stages.iter().any(|s| s.ty.is_empty());
        if is_empty || lengths.len() > shape.len() || !lengths.iter().zip(shape).all(is_length) {
            return None;
        }
        let (result, counts) = of_result(shape, lengths);
        let parts = BTreeMap::from([(last, result)]);
        let mut slices = Slices { whole, reads, counts, first: last, parts };
        while slices.first > 0
            && let Some(part) = slices.wanted(slices.first - 1)
        {
            slices.first -= 1;
            slices.parts.insert(slices.first, part);
        }
        (!slices.counts.is_empty()).then_some(slices)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.counts.iter().product()
    }

    /// The stages that belong to slices, each with its part.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, &Part)> {
        self.parts.iter().map(|(stage, part)| (*stage, part))
    }

    /// Whether they are of the same stages, with a single element along the same axes.
    pub(crate) fn have_loops_of(&self, other: &Slices<'_>) -> bool {
        let units = |slices: &Slices<'_>| -> Vec<Vec<bool>> {
            slices.parts.values().map(|p| p.shape.iter().map(|n| *n == 1).collect()).collect()
        };
        self.first == other.first && units(self) == units(other)
    }

    pub(crate) fn is_of_slice(&self, buffer: BufId) -> bool {
        self.whole.stage_of(buffer).is_some_and(|stage| stage >= self.first)
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

    /// Where along an axis of a stage all that is read of it begins, and how many elements that
    /// are.
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

    /// Whether what slices compute of a stage is of the stage; or only they see what is not, and it
    /// can be computed all the same, of the last elements that there are.
    fn has_all_of(&self, stage: usize, part: &Part) -> bool {
        let s = &self.whole.stages[stage];
        let extents = s.extents();
        let ranges = |v: VarId| self.range(v, &extents, part);
        let has_a_start = |index: &Expr| {
            arith::bounds(&part.moved(index), &ranges).is_some_and(|(low, _)| low >= 0)
        };
        let mut loads = s.body.loads().into_iter();
        let can_be_computed = |(_, at): (BufId, &[Expr])| at.iter().all(has_a_start);
        part.beyond(&s.ty.shape, &self.counts).next().is_none()
            || !self.whole.outputs.contains(&stage) && loads.all(can_be_computed)
    }

    /// Where along an axis of this extent an index in a part of a stage begins, and how many
    /// elements it covers.
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

    /// Elements along an axis of a slice, if slices that start there cover the axis, and each has
    /// some of it.
    fn length(&self, start: &[i64], extent: usize) -> Option<usize> {
        let mut covered = None;
        let mut steps: Vec<(&i64, &usize)> = start.iter().zip(&self.counts).collect();
        steps.retain(|(by, _)| **by != 0);
        steps.sort_unstable();
        for (&by, &count) in steps {
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

    /// About how many bytes one slice reads by a load of what is not of slices.
    pub(crate) fn read_by_one(
        &self,
        stage: usize,
        part: &Part,
        (buffer, at): (BufId, &[Expr]),
    ) -> usize {
        let (s, ty) = (&self.whole.stages[stage], self.whole.buffer_type(buffer));
        let extents = s.extents();
        let ranges = |v: VarId| match v.0 >= SLICE {
            true => Some((0, 0)),
            false => self.range(v, &extents, part),
        };
        let along = |(index, &extent): (&Expr, &usize)| {
            let bounds = arith::bounds(&part.moved(index), &ranges);
            bounds.map_or(extent, |(low, high)| (high - low + 1).clamp(0, extent as i64) as usize)
        };
        at.iter().zip(&ty.shape).map(along).product::<usize>() * ty.dtype.size()
    }

    /// The stages that are computed as a whole, and what slices read of them.
    pub(crate) fn before(&self) -> Compute {
        let stages = self.whole.stages[..self.first].to_vec();
        let read_later = |&stage: &usize| {
            let read = readers(self.whole, self.whole.stage_buffer(stage));
            self.whole.outputs.contains(&stage) || read.iter().any(|&r| r >= self.first)
        };
        let outputs = (0..self.first).filter(read_later).collect();
        Compute { inputs: self.whole.inputs.clone(), stages, outputs }
    }

    /// The subgraph of one slice. Stages before are as they were.
    pub(crate) fn compute(&self) -> Compute {
        let mut compute = self.whole.clone();
        for (&stage, part) in &self.parts {
            let body = self.value(stage, part);
            let s = &mut compute.stages[stage];
            s.body = body;
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

    /// The same of what is beyond a stage, made of the last elements that there are.
    fn within(&self, s: &Stage, part: &Part, body: &Expr) -> Expr {
        let extents = s.extents();
        let ranges = |v: VarId| self.range(v, &extents, part);
        let within = |(index, &extent): (&Expr, &usize)| {
            let last = arith::bounds(index, &ranges).map_or(0, |(_, high)| high);
            let reaches = last >= extent as i64;
            if reaches { index.clone().min(Expr::index(extent - 1)) } else { index.clone() }
        };
        body.rewrite(&mut |e| match e {
            Expr::Load(b, at) if !self.is_of_slice(*b) => {
                let shape = &self.whole.buffer_type(*b).shape;
                Some(Expr::Load(*b, at.iter().zip(shape).map(within).collect()))
            }
            _ => None,
        })
    }

    /// The expression with the number of a slice, of all, in place of those along each axis.
    pub(crate) fn numbered(&self, e: &Expr, slice: &Expr) -> Expr {
        let along = spread(slice, &self.counts);
        e.substitute(&|v| along.get(v.0.checked_sub(SLICE)? as usize).cloned())
    }

    /// The place in a stage along an axis of one in its part, given the number of the slice.
    pub(crate) fn place(&self, part: &Part, axis: usize, (slice, at): (&Expr, &Expr)) -> Expr {
        match part.moves(axis) {
            true => self.numbered(&part.start(axis), slice) + at.clone(),
            false => at.clone(),
        }
    }

    /// The value of a stage that belongs to slices at a place of its part. No result has places
    /// beyond it.
    pub(crate) fn value(&self, stage: usize, part: &Part) -> Expr {
        let s = &self.whole.stages[stage];
        let body = self.body(s, part);
        let is_result = self.whole.outputs.contains(&stage);
        let has_more = !is_result && part.beyond(&s.ty.shape, &self.counts).next().is_some();
        if has_more { self.within(s, part, &body) } else { body }
    }

    /// Axes along which the last slice reaches beyond the stage.
    pub(crate) fn beyond(&self, stage: usize, part: &Part) -> Vec<usize> {
        part.beyond(&self.whole.stages[stage].ty.shape, &self.counts).collect()
    }
}

impl Part {
    /// Whether it begins elsewhere in each slice.
    fn moves(&self, axis: usize) -> bool {
        self.starts.get(axis).is_some_and(|starts| starts.iter().any(|by| *by != 0))
    }

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
    pub(crate) fn is_same(&self, at: &[Expr]) -> bool {
        at.iter().all(|index| self.moved(index) == *index)
    }

    /// An expression of the whole at a place of the part.
    fn moved(&self, e: &Expr) -> Expr {
        e.substitute(&|v| self.moves(v.index()).then(|| self.start(v.index()) + Expr::Var(v)))
    }
}

/// Whether an expression depends on the numbers of slices alone.
pub(crate) fn tells_slice(e: &Expr) -> bool {
    let vars = e.vars();
    !vars.is_empty() && vars.iter().all(|v| v.0 >= SLICE)
}

fn number(j: usize) -> Expr {
    Expr::Var(VarId(SLICE + j as u32))
}

/// The part of the result, and the slices along each axis that is cut: first along those of which a
/// slice has one element, for the others share what is there for this one.
fn of_result(shape: &[usize], lengths: &[usize]) -> (Part, Vec<usize>) {
    let mut part = Part { starts: vec![], shape: shape.to_vec() };
    let counts: Vec<usize> = shape.iter().zip(lengths).map(|(e, l)| e.div_ceil(*l)).collect();
    let mut is_cut: Vec<usize> = (0..counts.len()).filter(|&axis| counts[axis] > 1).collect();
    is_cut.sort_by_key(|&axis| lengths[axis] > 1);
    part.shape[..lengths.len()].copy_from_slice(lengths);
    part.starts = (0..shape.len())
        .map(|axis| {
            let by = |&cut: &usize| if cut == axis { lengths[axis] as i64 } else { 0 };
            is_cut.iter().map(by).collect()
        })
        .collect();
    (part, is_cut.into_iter().map(|axis| counts[axis]).collect())
}
