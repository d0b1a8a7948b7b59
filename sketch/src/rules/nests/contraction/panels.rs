//! Operands in panels: a tile reads one front to back.
//!
//! ```text
//! b[k, j], 32 columns in a panel     =>   b'[j // 32, k, j % 32]
//! w[n, c, r], n the vector axis      =>   w'[n // 32, c, r, n % 32]
//! ```
//!
//! A constant is packed when compiling. Anything else is copied: each panel right before the tiles
//! that read it, if there are enough panels for all threads, and all of them in a nest before
//! otherwise. Rows that go along terms are copied by squares, which turn in registers.
//!
//! ```text
//! c[i, j] sum= a[i, k] * b[j, k]
//! =>
//! parallel panels { for squares { b'[k, j] = b[j, k] }   rows { c[..] sum= a[i, k] * b'[k, j] } }
//! ```

use std::collections::BTreeSet;
use std::ops::Range;

use ansc_graph::arith::Linear;
use ansc_graph::{BufId, Expr, Stage, TensorType, VarId};

use super::super::Nests;
use super::super::squares::{self, Turned};
use super::lengths::FOR_EACH;
use super::{OUTER, ROWS};
use crate::contraction::operands::{self, Operands};
use crate::index_map::IndexMap;
use crate::slices::tells_slice;
use crate::trace::{BlockVar, LoopVar, Number, StepError};

/// Elements of panels that are worth waking threads for.
const PARALLEL: usize = 16 * 1024;

/// Vectors of a row that needs no packing in a slice.
const MOST_SHORT: usize = 4;

/// Bytes of a panel that a thread copies for itself, at most: they stay in its cache.
const NEAR_BYTES: usize = 512 << 10;

/// The note of loops over the columns of a panel.
const COLUMNS: &str = "columns";

/// One operand.
pub(super) struct Panel {
    /// A stage that reads it.
    stage: usize,
    /// The name of its buffer.
    buffer: String,
    /// Whether the buffer itself may take the layout.
    is_constant: bool,
    /// Axes that it varies along: those outside of panels, the vector axis, terms.
    map: IndexMap,
    /// Which of them the vector axis is.
    axis: usize,
    /// Whether a stage makes it, in each slice if there are slices.
    is_made: bool,
    /// About how many there are.
    elements: usize,
    one: One,
}

/// A single panel.
struct One {
    /// Bytes of an element.
    element: usize,
    /// Columns.
    width: usize,
    /// Extents of the axes of terms, and which of them the operand walks last, if one does.
    terms: Vec<usize>,
    across: Option<usize>,
}

/// All of the stage, which is made of `members`. An operand that is no box of its buffer stays
/// where it is. Short rows that a slice made are as good as panels, and in the cache; and a slice
/// reads rows of an input too few times to copy them.
pub(super) fn all(
    nests: &Nests,
    (s, members): (&Stage, &[usize]),
    operands: &Operands,
    (width, lanes): (usize, usize),
) -> Vec<Panel> {
    let one = |(buffer, indices): (BufId, &[Expr])| {
        let own = s.body.loads();
        let is_alone = own.iter().all(|(b, at)| *b != buffer || *at == indices);
        let TensorType { shape, dtype } = nests.compute.buffer_type(buffer);
        let (map, axis) = layout(s, indices, shape)?;
        let constant = nests.task.constant.get(buffer.index()).copied().unwrap_or(false);
        let is_sole = operands::is_sole_load(&nests.compute, s, members, buffer, indices);
        let is_constant = constant && is_sole;
        let reads =
            |stage: &&usize| nests.stage(**stage).body.loads().iter().any(|l| l.0 == buffer);
        let readers: BTreeSet<usize> = members.iter().filter(reads).copied().collect();
        let stage = *readers.first()?;
        let columns = s.ty.shape[s.ty.rank() - 1];
        let elements = shape.iter().product::<usize>() / columns * columns.next_multiple_of(width);
        let fits = is_alone && (is_constant || readers.len() == 1);
        let is_made = nests.is_made(buffer);
        let buffer = name_in(nests, stage, buffer)?;
        let one = One::of(s, indices, width, dtype.size());
        fits.then_some(Panel { stage, buffer, is_constant, map, axis, is_made, elements, one })
    };
    let stays = |buffer: BufId, indices: &[Expr]| {
        let columns = nests.compute.buffer_type(buffer).shape.last().copied().unwrap_or(0);
        let is_short = columns <= MOST_SHORT * lanes;
        let is_constant = nests.task.constant.get(buffer.index()).copied().unwrap_or(false);
        let walked = indices.last() == Some(&Expr::var(s.ty.rank() - 1));
        nests.outer > 0 && walked && if nests.is_made(buffer) { is_short } else { !is_constant }
    };
    let long = operands.panels().filter(|(buffer, indices)| !stays(*buffer, indices));
    long.filter_map(one).collect()
}

/// The name of the buffer as the block of a stage knows it.
fn name_in(nests: &Nests, stage: usize, buffer: BufId) -> Option<String> {
    let s = nests.stage(stage);
    let at = s.body.loads().iter().position(|(b, _)| *b == buffer)?;
    let schedule = nests.recorder.schedule();
    let loads = schedule.block(&s.name).ok()?.body.value().loads();
    Some(schedule.program().buffer(loads.get(at)?.0).name.clone())
}

/// Those of the axes along which an access varies.
fn varying(s: &Stage, indices: &[Expr], axes: Range<usize>) -> Vec<usize> {
    let extents = s.extents();
    let mentions = |axis: usize| indices.iter().any(|e| e.vars().contains(&VarId::new(axis)));
    axes.filter(|&axis| extents[axis] > 1 && mentions(axis)).collect()
}

/// From places in the buffer to the axes of the stage that it varies along, and which of these the
/// vector axis is. Before them are the axes along which a slice reads at one place.
fn layout(s: &Stage, indices: &[Expr], shape: &[usize]) -> Option<(IndexMap, usize)> {
    let (vector, extents) = (s.ty.rank() - 1, s.extents());
    let of_slices: Vec<usize> = (0..shape.len()).filter(|&a| tells_slice(&indices[a])).collect();
    let before = varying(s, indices, 0..vector);
    let after = varying(s, indices, vector + 1..extents.len());
    let axes = [&before[..], &[vector], &after].concat();
    let place = |v: VarId| {
        let at = axes.iter().position(|&axis| axis == v.index());
        Some(at.map_or(Expr::int(0), |at| Expr::var(of_slices.len() + at)))
    };
    let at = indices.iter().enumerate().map(|(a, e)| {
        let of_slice = of_slices.iter().position(|&other| other == a);
        of_slice.map_or_else(|| e.substitute(&place), Expr::var)
    });
    let own = axes.iter().map(|&axis| extents[axis]);
    let lengths: Vec<usize> = of_slices.iter().map(|&a| shape[a]).chain(own).collect();
    let map = IndexMap::new(lengths.len(), at.collect()).ok()?;
    let back = map.inverse(&lengths)?;
    (map.shape(&lengths)? == shape).then_some((back, of_slices.len() + before.len()))
}

/// The map for buffers with more axes, as many as there are loops around nests, before the others.
fn in_slices(map: &IndexMap, outer: usize) -> Result<IndexMap, StepError> {
    let shifted = |v: VarId| Some(Expr::var(v.index() + outer));
    let own = map.outputs().iter().map(|e| e.substitute(&shifted));
    let outputs = (0..outer).map(Expr::var).chain(own).collect();
    IndexMap::new(outer + map.inputs(), outputs).map_err(|_| StepError::Unfit)
}

impl One {
    fn of(s: &Stage, indices: &[Expr], width: usize, element: usize) -> One {
        let extents = s.extents();
        let axes = varying(s, indices, s.ty.rank()..extents.len());
        let last = indices.last().map(Linear::from_expr);
        let is_walked =
            |axis: &usize| last.as_ref().is_some_and(|l| l.coefficient(&Expr::var(*axis)) == 1);
        let across = axes.iter().position(is_walked);
        One { element, width, terms: axes.iter().map(|&axis| extents[axis]).collect(), across }
    }

    fn bytes(&self) -> usize {
        self.terms.iter().product::<usize>() * self.width * self.element
    }

    /// The nest of a copy: loops over terms, and the one over columns.
    fn copy(&self, nests: &mut Nests, loops: Vec<LoopVar>, lanes: usize) -> Result<(), StepError> {
        let columns = loops[loops.len() - 1];
        // Where columns are few, only those are copied that are read.
        let width = nests.recorder.extent(columns)?;
        if let Some(turned) = self.turned(width, lanes) {
            return squares::nest(nests, &turned, loops).map(drop);
        }
        let r = &mut nests.recorder;
        let parts = r.split(columns, &[0.into(), lanes.into()])?;
        r.vectorize(parts[1])?;
        r.unroll_jam(parts[0])
    }

    /// How so many columns are turned, if rows of the operand go along terms: by the largest
    /// squares that fit.
    fn turned(&self, width: usize, lanes: usize) -> Option<Turned> {
        let across = self.across?;
        let side = lanes.min(width).min(self.terms[across]);
        let lanes = 1 << side.checked_ilog2()?;
        let extents = [&self.terms[..], &[width]].concat();
        let (bytes, note) = (self.element, Some(COLUMNS));
        Some(Turned { extents, across, bytes, lanes, note }).filter(Turned::is_wide)
    }
}

impl Panel {
    /// The block that copies the operand, unless that is done when compiling.
    pub(super) fn pack(
        &self,
        nests: &mut Nests,
        vectors: Number,
        lanes: usize,
    ) -> Result<Option<BlockVar>, StepError> {
        let width = [vectors, lanes.into()];
        if self.is_constant {
            nests.recorder.pack_input(&self.buffer, &self.map, self.axis, &width)?;
            return Ok(None);
        }
        // Only buffers that are made in slices have an axis for these.
        let outer = if self.is_made { nests.outer } else { 0 };
        let block = nests.block(self.stage)?;
        let map = in_slices(&self.map, outer)?;
        let copy = nests.recorder.pack(block, &self.buffer, &map, outer + self.axis, &width)?;
        Ok(Some(copy))
    }

    pub(super) fn is_constant(&self) -> bool {
        self.is_constant
    }

    /// Whether each of so many panels is copied by the thread that reads it.
    pub(super) fn is_near(&self, nests: &Nests, panels: usize) -> bool {
        let enough = nests.task.cores <= 1 || panels >= nests.task.cores * FOR_EACH;
        nests.outer == 0 && self.one.bytes() <= NEAR_BYTES && enough
    }

    /// Copies all panels before anything reads one.
    pub(super) fn before(
        &self,
        nests: &mut Nests,
        copy: BlockVar,
        lanes: usize,
    ) -> Result<(), StepError> {
        // All slices read the panels of an input.
        let is_of_slices = self.is_made && nests.outer > 0;
        let mut outer = match is_of_slices {
            true => {
                nests.in_slices(copy)?;
                nests.loops(copy)?
            }
            false => nests.recorder.get_loops(copy)?,
        };
        let inner = outer.split_off(self.axis + 1);
        self.one.copy(nests, inner, lanes)?;
        for (place, &l) in outer.iter().enumerate() {
            nests.recorder.annotate_loop(l, OUTER, place.into())?;
        }
        let parallel = self.elements >= PARALLEL && !is_of_slices;
        let r = &mut nests.recorder;
        r.partition_guards(outer[self.axis])?;
        match parallel {
            true => r.parallel_nests(OUTER, ROWS, 0.into())?,
            false => r.fuse_nests(OUTER, ROWS, 0.into())?,
        }
        part_columns(nests)
    }

    /// Copies a panel in each iteration of the loop over them.
    pub(super) fn within(
        &self,
        nests: &mut Nests,
        copy: BlockVar,
        panels: LoopVar,
        lanes: usize,
    ) -> Result<(), StepError> {
        nests.recorder.compute_at(copy, panels)?;
        nests.keep_local(copy)?;
        let mut all = nests.loops(copy)?;
        let inner = all.split_off(all.len() - self.one.terms.len() - 1);
        self.one.copy(nests, inner, lanes)
    }
}

/// Parts panels where columns end: what is before is turned without asking where it ends.
pub(super) fn part_columns(nests: &mut Nests) -> Result<(), StepError> {
    nests.recorder.partition_noted(COLUMNS)
}
