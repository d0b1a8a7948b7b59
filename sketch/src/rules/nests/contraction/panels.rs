//! Operands in panels: a tile reads one front to back.
//!
//! ```text
//! b[k, j], 32 columns in a panel     =>   b'[j // 32, k, j % 32]
//! w[n, c, r], n the vector axis      =>   w'[n // 32, c, r, n % 32]
//! ```
//!
//! A constant is packed when compiling. Anything else is copied in a nest before.

use std::collections::BTreeSet;

use ansc_graph::{BufId, Expr, Stage, VarId};

use super::super::Nests;
use super::{OUTER, ROWS};
use crate::contraction::operands::{self, Operands};
use crate::index_map::IndexMap;
use crate::trace::{Number, StepError};

/// Elements of panels that are worth waking threads for.
const PARALLEL: usize = 16 * 1024;

/// Vectors of a row that needs no packing in a slice.
const MOST_SHORT: usize = 4;

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
    /// About how many there are.
    elements: usize,
}

/// All of the stage, which is made of `members`. An operand that is no box of its buffer stays
/// where it is. Short rows that a slice made are as good as panels, and in the cache.
pub(super) fn all(
    nests: &Nests,
    (s, members): (&Stage, &[usize]),
    operands: &Operands,
    (width, lanes): (usize, usize),
) -> Vec<Panel> {
    let one = |(buffer, indices): (BufId, &[Expr])| {
        let own = s.body.loads();
        let is_alone = own.iter().all(|(b, at)| *b != buffer || *at == indices);
        let shape = &nests.compute.buffer_type(buffer).shape;
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
        let buffer = name_in(nests, stage, buffer)?;
        fits.then_some(Panel { stage, buffer, is_constant, map, axis, elements })
    };
    let is_short = |buffer: BufId, indices: &[Expr]| {
        let columns = nests.compute.buffer_type(buffer).shape.last().copied().unwrap_or(0);
        let made = nests.outer > 0 && nests.compute.stage_of(buffer).is_some();
        let walked = indices.last() == Some(&Expr::var(s.ty.rank() - 1));
        made && walked && columns <= MOST_SHORT * lanes
    };
    let long = operands.panels().filter(|(buffer, indices)| !is_short(*buffer, indices));
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

/// From places in the buffer to the axes of the stage that it varies along, and which of these the
/// vector axis is.
fn layout(s: &Stage, indices: &[Expr], shape: &[usize]) -> Option<(IndexMap, usize)> {
    let (vector, extents) = (s.ty.rank() - 1, s.extents());
    let mentions = |axis: &usize| indices.iter().any(|e| e.vars().contains(&VarId::new(*axis)));
    let varies = |axis: &usize| extents[*axis] > 1 && mentions(axis);
    let before: Vec<usize> = (0..vector).filter(varies).collect();
    let after: Vec<usize> = (vector + 1..extents.len()).filter(varies).collect();
    let axes = [&before[..], &[vector], &after].concat();
    let place = |v: VarId| {
        let at = axes.iter().position(|&axis| axis == v.index());
        Some(at.map_or(Expr::int(0), Expr::var))
    };
    let at = indices.iter().map(|e| e.substitute(&place)).collect();
    let lengths: Vec<usize> = axes.iter().map(|&axis| extents[axis]).collect();
    let map = IndexMap::new(axes.len(), at).ok()?;
    let back = map.inverse(&lengths)?;
    (map.shape(&lengths)? == shape).then_some((back, before.len()))
}

/// The map for buffers with more axes, as many as there are loops around nests, before the others.
fn in_slices(map: &IndexMap, outer: usize) -> Result<IndexMap, StepError> {
    let shifted = |v: VarId| Some(Expr::var(v.index() + outer));
    let own = map.outputs().iter().map(|e| e.substitute(&shifted));
    let outputs = (0..outer).map(Expr::var).chain(own).collect();
    IndexMap::new(outer + map.inputs(), outputs).map_err(|_| StepError::Unfit)
}

impl Panel {
    pub(super) fn write(
        &self,
        nests: &mut Nests,
        vectors: Number,
        lanes: usize,
    ) -> Result<(), StepError> {
        let width = [vectors, lanes.into()];
        if self.is_constant {
            return nests.recorder.pack_input(&self.buffer, &self.map, self.axis, &width);
        }
        let (block, outer) = (nests.block(self.stage)?, nests.outer);
        let map = in_slices(&self.map, outer)?;
        let copy = nests.recorder.pack(block, &self.buffer, &map, outer + self.axis, &width)?;
        nests.in_slices(copy)?;
        let loops = nests.loops(copy)?;
        let parallel = self.elements >= PARALLEL && outer == 0;
        let r = &mut nests.recorder;
        let (outer, inner) = loops.split_at(self.axis + 1);
        let parts = r.split(inner[inner.len() - 1], &[0.into(), lanes.into()])?;
        r.vectorize(parts[1])?;
        r.unroll_jam(parts[0])?;
        for (place, &l) in outer.iter().enumerate() {
            r.annotate_loop(l, OUTER, place.into())?;
        }
        r.partition_guards(outer[self.axis])?;
        match parallel {
            true => r.parallel_nests(OUTER, ROWS, 0.into()),
            false => r.fuse_nests(OUTER, ROWS, 0.into()),
        }
    }
}
