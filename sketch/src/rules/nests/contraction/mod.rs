//! Contractions: products and convolutions, with running results in registers.
//!
//! ```text
//! c[i, j] = sum[k] a[i, k] * b[k, j];  y[i, j] = max(c[i, j] + d[j], 0)
//! =>
//! parallel (panels, rows) {
//!   c[6, 32] = 0
//!   for k { unrolled 6 x 2 { vectorized 16 { c[..] += a[io * 6 + ., k] * b'[jo, k, .] } } }
//!   y[io * 6 + ., jo * 32 + .] = max(c[..] + d[..], 0)
//! }
//! ```
//!
//! Vectors lie along the last axis. Operands that vary along it, and not along rows, are read from
//! panels, in the order in which a tile goes through them (`panels`). Lengths of tiles are ranked
//! before there is a program, by the cycles of their instructions. Each length is a choice, the
//! first of which is that of the best tile. What tiles leave over at the ends of axes is parted
//! from the rest, and so are the borders of padding. Sums whose terms are sums are one nest
//! (`nested`), and so are long sums by blocks of terms (`partial`).

mod lengths;
mod nested;
mod order;
mod panels;
mod partial;

use ansc_graph::{Combiner, Stage};

use super::{Nests, Way};
use crate::contraction::epilogue::Epilogue;
use crate::contraction::nested::Nested;
use crate::contraction::operands::{Around, Operands};
use crate::contraction::shapes::{Shape, adds_apart, ranked};
use crate::contraction::{blocks::Blocks, goes_along_terms, is_tileable};
use crate::schedule::Rest;
use crate::task::Sums;
use crate::trace::{BlockVar, LoopVar, Number, Recorder, StepError};
use crate::walk::{self, PARALLEL_WORK};
use lengths::{Lengths, Summed, Tile, enough};
use panels::Panel;
use partial::Parts;

/// Notes of loops: their place among those around tiles; loops over rows of tiles; those over the
/// vectors of a tile.
const OUTER: &str = "outer";
const ROWS: &str = "rows";
const VECTORS: &str = "vectors";

/// Places of loops around tiles. Panels come before all others but blocks of rows, after all
/// others, or before every second place between, which leaves room for them.
const BLOCK: i64 = 100;
const PANELS: [i64; 2] = [200, 500];
const FREE: i64 = 300;
const UPPER: i64 = 400;

/// The sum, the one that adds it up, if its terms are sums, and the map that reads it, if it
/// follows.
pub(super) fn apply(nests: &mut Nests, stage: usize, _: &Way) -> Result<Option<usize>, StepError> {
    let Some(plan) = Plan::of(nests, stage) else { return Ok(None) };
    plan.write(nests)?;
    let last = plan.reader.map_or(plan.stage, |reader| reader.stage);
    Ok(Some(last + 1 - stage))
}

/// The facts that the rule knows before it writes anything.
struct Plan {
    /// The stage that tiles are of: of nested sums, the outer one.
    stage: usize,
    /// The same, with the terms of a nested sum as well.
    s: Stage,
    panels: Vec<Panel>,
    /// Whether a panel that is no constant is copied in the loop over panels.
    near: bool,
    /// The parts that are summed up before they are added to a tile.
    parts: Option<Parts>,
    reader: Option<Epilogue>,
    lengths: Lengths,
    lanes: usize,
    /// The best tile, whose axes all have.
    shape: Shape,
    /// Spatial axes outside of tiles along which panels vary, and the others.
    fixed: Vec<usize>,
    free: Vec<usize>,
    /// Columns are rounded up to a multiple of this: what lies beyond is zero in all panels.
    multiple: usize,
}

/// Loops of the sum.
struct Loops {
    /// The innermost loop around a tile.
    at: LoopVar,
    panels: LoopVar,
    /// Blocks of tiles of rows, and the tiles of one of them.
    rows: Option<[LoopVar; 2]>,
    uppers: Option<LoopVar>,
    /// The first loop over terms, and the last one.
    first: LoopVar,
    last: LoopVar,
}

/// A sum, the one that it is a term of, if there is one, and what reads the result.
struct Sum {
    first: usize,
    stage: usize,
    s: Stage,
    nested: Option<Nested>,
    reader: Option<Epilogue>,
}

impl Sum {
    fn of(nests: &Nests, first: usize) -> Option<Sum> {
        let compute = &nests.compute;
        let done: Vec<bool> = (0..compute.stages.len()).map(|other| other < first).collect();
        let nested = nested::of(compute, first, &done);
        let stage = nested.as_ref().map_or(first, |nested| nested.outer);
        let s = nested.as_ref().map_or(nests.stage(first), |nested| &nested.merged).clone();
        let reader = Epilogue::of(compute, stage, &done);
        // Stages in between would come before what they read.
        let follows = stage <= first + 1 && reader.as_ref().is_none_or(|r| r.stage == stage + 1);
        let has_terms = s.reduce.as_ref().is_some_and(|reduce| !reduce.extents.is_empty());
        let fits = follows && has_terms && is_tileable(&s);
        fits.then_some(Sum { first, stage, s, nested, reader })
    }
}

impl Plan {
    fn of(nests: &Nests, stage: usize) -> Option<Plan> {
        let Sum { first, stage, s, nested, reader } = Sum::of(nests, stage)?;
        let (compute, machine) = (&nests.compute, &nests.task.machine);
        let lanes = walk::lanes(compute, machine, &s);
        let around = Around { compute, constant: &nests.task.constant, machine };
        let members = [stage, first];
        let operands = Operands::of(around, &s);
        if would_gather(&s, &operands, lanes) {
            return None;
        }
        let width =
            |(buffer, _): (ansc_graph::BufId, _)| *nests.task.wishes.widths.get(buffer.index())?;
        let width = operands.panels().find_map(width);
        let tiles = 1 + usize::from(nested.is_some());
        let shapes = ranked(machine, &s, &operands, (lanes, tiles), width);
        let shape = shapes.first()?.clone();
        let panels = panels::all(nests, (&s, &members), &operands, (shape.panel, lanes));
        let padded = operands.padded && panels.len() == operands.panels().count();
        let parts = parts(nests, &s, (first, nested));
        // Only once parts are inside of the loop over panels could a copy be, too.
        let near = parts.is_none() && is_near(nests, (&s, &operands, &shape), &panels);
        let tile = [shape.upper_axis, shape.row_axis];
        let outside = (0..s.ty.rank() - 1).filter(|axis| !tile.contains(&Some(*axis)));
        let (fixed, free) = outside.partition(|axis| operands.fixed_axes.contains(axis));
        let terms = &s.reduce.as_ref()?.extents[..];
        let terms = parts.as_ref().map_or(terms, Parts::terms);
        let windows = !matches!(parts, Some(Parts::Nested(..)));
        let adds_apart = adds_apart(machine, &s);
        let summed = Summed { stage: &s, terms, windows, adds_apart };
        let around =
            order::Around { compute, machine, stage: &s, operands: &operands, shape: &shape };
        let is_copied = near || !operands.shared || panels.is_empty();
        let order = if is_copied { None } else { around.best() };
        let mut lengths = Lengths::of(&summed, &operands, &shapes, lanes, order);
        if near {
            lengths.panels = vec![PANELS[0]];
        }
        let columns = s.ty.shape[s.ty.rank() - 1];
        let rest = (columns % lanes).next_power_of_two();
        let multiple = if padded && !columns.is_multiple_of(lanes) { rest } else { 1 };
        Some(Plan {
            stage,
            s,
            panels,
            near,
            parts,
            reader,
            lengths,
            lanes,
            shape,
            fixed,
            free,
            multiple,
        })
    }

    fn write(&self, nests: &mut Nests) -> Result<(), StepError> {
        let block = nests.block(self.stage)?;
        let tile = self.lengths.choose(nests)?;
        let copies = self.pack(nests, &tile)?;
        let parts = self.parts.as_ref();
        let partial = parts.map(|parts| parts.partial(nests, self, block)).transpose()?;
        let store = self.store(nests, block)?;
        partial.iter().try_for_each(|partial| partial.pad(nests, self))?;
        self.pad(nests, block, self.s.ty.rank() - 1)?;
        let loops = self.cut(nests, block, &tile)?;
        for (panel, copy) in copies {
            panel.within(nests, copy, loops.panels, self.lanes)?;
        }
        nests.recorder.reverse_compute_at(store, loops.at)?;
        nests.keep_local(block)?;
        self.cut_store(nests, store)?;
        nests.recorder.decompose_reduction(block, loops.first)?;
        partial.iter().try_for_each(|partial| partial.write(nests, self, &loops, &tile))?;
        nests.recorder.jam_noted(VECTORS)?;
        self.part(nests, &loops)?;
        self.spread(nests)
    }

    /// Packs operands into panels: those that are to be copied in the loop over panels, with the
    /// blocks that copy them.
    fn pack(&self, nests: &mut Nests, tile: &Tile) -> Result<Vec<(&Panel, BlockVar)>, StepError> {
        let mut near = vec![];
        for panel in &self.panels {
            match panel.pack(nests, tile.vectors, self.lanes)? {
                Some(copy) if self.near => near.push((panel, copy)),
                Some(copy) => panel.before(nests, copy, self.lanes)?,
                None => {}
            }
        }
        Ok(near)
    }

    /// Rounds columns, which an iterator of the block is, up to whole vectors, if there are zeros.
    fn pad(&self, nests: &mut Nests, block: BlockVar, columns: usize) -> Result<(), StepError> {
        if self.multiple == 1 {
            return Ok(());
        }
        nests.recorder.pad(block, nests.outer + columns, &[self.multiple.into()])
    }

    /// The block that takes the results from the tile.
    fn store(&self, nests: &mut Nests, block: BlockVar) -> Result<BlockVar, StepError> {
        let Some(reader) = &self.reader else {
            return nests.cache_write(block);
        };
        let store = nests.block(reader.stage)?;
        let rank = nests.stage(reader.stage).ty.rank();
        if let Some(map) = reader.layout(nests.outer, rank)? {
            nests.recorder.transform_block_layout(store, &map)?;
        }
        Ok(store)
    }

    /// Cuts the sum into tiles: loops around tiles, terms, and what is in a tile.
    fn cut(&self, nests: &mut Nests, block: BlockVar, tile: &Tile) -> Result<Loops, StepError> {
        let own = nests.loops(block)?;
        let r = &mut nests.recorder;
        let (axes, terms) = own.split_at(self.s.ty.rank());
        let columns =
            r.split(axes[axes.len() - 1], &[0.into(), tile.vectors, self.lanes.into()])?;
        let of = |axes_of: &[usize]| -> Vec<LoopVar> { axes_of.iter().map(|&a| axes[a]).collect() };
        let (mut outer, mut inner, free) = (of(&self.fixed), vec![], of(&self.free));
        let place = |r: &mut Recorder, l, at: Number| r.annotate_loop(l, OUTER, at);
        // What is inside of the loop over panels stays there, beside the copy of a panel.
        let inside = |r: &mut Recorder, l, at| {
            if self.near { Ok(()) } else { place(r, l, Number::Known(at)) }
        };
        for (i, &l) in outer.iter().enumerate() {
            place(r, l, i.into())?;
        }
        for (i, &l) in free.iter().enumerate() {
            inside(r, l, FREE + 2 * i as i64)?;
        }
        place(r, columns[0], tile.panels)?;
        match self.near {
            true => outer.extend([&columns[..1], &free].concat()),
            false => outer.extend([&free, &columns[..1]].concat()),
        }
        let mut uppers = None;
        if let Some(axis) = self.shape.upper_axis {
            let parts = match tile.upper {
                Number::Known(1) => vec![axes[axis]],
                upper => r.split(axes[axis], &[0.into(), upper])?,
            };
            inside(r, parts[0], UPPER)?;
            outer.push(parts[0]);
            uppers = Some(parts[0]);
            inner.extend(&parts[1..]);
        }
        let mut rows = None;
        if let Some(axis) = self.shape.row_axis {
            let parts = r.split(axes[axis], &[0.into(), tile.block, tile.rows])?;
            inside(r, parts[0], BLOCK)?;
            outer.push(parts[0]);
            r.annotate_loop(parts[1], ROWS, 0.into())?;
            rows = Some([parts[0], parts[1]]);
            inner.push(parts[2]);
        }
        let at = rows.map_or(uppers.unwrap_or(columns[0]), |[_, rows]| rows);
        let (over_terms, written_out) = match &self.parts {
            None => self.cut_terms(r, terms, &tile.terms)?,
            Some(parts) => (parts.over(r, terms)?, vec![]),
        };
        let tiles: Vec<LoopVar> = rows.into_iter().map(|[_, rows]| rows).collect();
        let in_tile = [&written_out[..], &inner, &columns[1..]].concat();
        r.reorder(&[&outer[..], &tiles, &over_terms, &in_tile].concat())?;
        written_out.iter().chain(&inner).try_for_each(|&l| r.unroll(l))?;
        in_vectors(r, &columns[1..])?;
        let (first, last) = (over_terms[0], over_terms[over_terms.len() - 1]);
        Ok(Loops { at, panels: columns[0], rows, uppers, first, last })
    }

    /// Loops over terms, and those that are written out.
    fn cut_terms(
        &self,
        r: &mut Recorder,
        terms: &[LoopVar],
        factors: &[Number],
    ) -> Result<(Vec<LoopVar>, Vec<LoopVar>), StepError> {
        let (mut over, mut written_out) = (vec![], vec![]);
        for (&l, &factor) in terms.iter().zip(factors) {
            let parts = match factor {
                Number::Known(1) => vec![l],
                factor => r.split(l, &[0.into(), factor])?,
            };
            over.push(parts[0]);
            written_out.extend(&parts[1..]);
        }
        Ok((over, written_out))
    }

    /// Cuts what is stored of a tile like the tile. Where rows lie side by side in the result, they
    /// are inside of vectors, and code generation transposes them.
    fn cut_store(&self, nests: &mut Nests, store: BlockVar) -> Result<(), StepError> {
        let rank = self.s.ty.rank();
        let of_axis = |axis: usize| self.reader.as_ref().map_or(axis, |reader| reader.axis(axis));
        let r = &mut nests.recorder;
        let all = r.get_loops(store)?;
        let own = &all[all.len() - rank..];
        let columns = r.split(own[of_axis(rank - 1)], &[0.into(), self.lanes.into()])?;
        let [upper, row] = [self.shape.upper_axis, self.shape.row_axis]
            .map(|axis| axis.map(|axis| own[of_axis(axis)]));
        let is_single =
            |l: &&LoopVar| Some(**l) != upper && Some(**l) != row && **l != own[of_axis(rank - 1)];
        let singles: Vec<LoopVar> = own.iter().filter(is_single).copied().collect();
        let last = |reader: &Epilogue| self.shape.row_axis.is_some_and(|a| reader.walks_last(a));
        let crosses = self.reader.as_ref().is_some_and(last);
        let rows: Vec<LoopVar> = row.into_iter().collect();
        let uppers: Vec<LoopVar> = upper.into_iter().collect();
        let order = match crosses {
            true => [&singles[..], &uppers, &columns, &rows].concat(),
            false => [&singles[..], &uppers, &rows, &columns].concat(),
        };
        r.reorder(&order)?;
        uppers.iter().chain(&rows).try_for_each(|&l| r.unroll(l))?;
        in_vectors(r, &columns)
    }

    /// Parts what tiles leave over, and borders of padding outside of rows.
    fn part(&self, nests: &mut Nests, loops: &Loops) -> Result<(), StepError> {
        let r = &mut nests.recorder;
        if let Some([blocks, _]) = loops.rows {
            r.peel(blocks, Rest::Pieces)?;
        }
        if let Some(uppers) = loops.uppers {
            r.partition_guards(uppers)?;
        }
        r.peel(loops.panels, Rest::Again)
    }

    /// Loops around tiles become one in each nest.
    fn spread(&self, nests: &mut Nests) -> Result<(), StepError> {
        let few = match self.near {
            true => 0.into(),
            false => nests.choose(&enough(&self.s, nests.task.cores))?,
        };
        let work: usize = self.s.extents().iter().product();
        let parallel = work >= PARALLEL_WORK && nests.outer == 0;
        let r = &mut nests.recorder;
        match parallel {
            true => r.parallel_nests(OUTER, ROWS, few)?,
            false => r.fuse_nests(OUTER, ROWS, few)?,
        }
        r.partition_noted(ROWS)?;
        if self.near { panels::part_columns(nests) } else { Ok(()) }
    }
}

/// Whether panels that are no constants are copied in the loop over panels: there are enough of
/// them, and each stays in the cache.
fn is_near(nests: &Nests, (s, operands, best): (&Stage, &Operands, &Shape), all: &[Panel]) -> bool {
    let fixed: usize = operands.fixed_axes.iter().map(|&axis| s.ty.shape[axis]).product();
    let panels = fixed * s.ty.shape[s.ty.rank() - 1].div_ceil(best.panel);
    let mut copied = all.iter().filter(|panel| !panel.is_constant()).peekable();
    copied.peek().is_some() && copied.all(|panel| panel.is_near(nests, panels))
}

/// Whether vectors of a sum that uses elements again would gather what lies in rows of its terms:
/// so few results use them that no panel of columns is made.
pub(super) fn gathers(nests: &Nests, stage: usize) -> bool {
    let (compute, s) = (&nests.compute, nests.stage(stage));
    let around = Around { compute, constant: &nests.task.constant, machine: &nests.task.machine };
    would_gather(s, &Operands::of(around, s), nests.lanes(stage))
}

fn would_gather(s: &Stage, operands: &Operands, lanes: usize) -> bool {
    operands.panels().next().is_none() && goes_along_terms(s, lanes)
}

/// Nested sums, or blocks of terms of a long sum of floats, where rounding matters.
fn parts(nests: &Nests, s: &Stage, (first, nested): (usize, Option<Nested>)) -> Option<Parts> {
    if let Some(nested) = nested {
        return Some(Parts::Nested(first, Box::new(nested)));
    }
    let reduce = s.reduce.as_ref()?;
    let rounds = nests.task.sums == Sums::Direct && s.ty.dtype.is_float();
    let by_blocks = rounds && reduce.combiner == Combiner::Sum;
    by_blocks.then(|| Blocks::of(&reduce.extents)).flatten().map(Parts::Blocks)
}

/// The loop over vectors, and that over their lanes.
fn in_vectors(r: &mut Recorder, parts: &[LoopVar]) -> Result<(), StepError> {
    r.annotate_loop(parts[0], VECTORS, 0.into())?;
    r.unroll(parts[0])?;
    r.vectorize(parts[1])
}

#[cfg(test)]
mod tests;
