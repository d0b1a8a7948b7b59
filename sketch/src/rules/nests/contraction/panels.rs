//! Operands in panels: a tile reads one front to back.
//!
//! ```text
//! b[k, j], 32 columns in a panel     =>   b'[j // 32, k, j % 32]
//! w[n, c, r], n the vector axis      =>   w'[n // 32, c, r, n % 32]
//! ```
//!
//! A constant is packed when compiling. Anything else is copied in a nest before.

use ansc_graph::{BufId, Expr, Stage, VarId};

use super::super::Nests;
use super::{OUTER, ROWS};
use crate::default::tile::operands::{self, Operands};
use crate::index_map::IndexMap;
use crate::schedule::Rest;
use crate::trace::{BlockVar, Number, StepError};

/// Elements of panels that are worth waking threads for.
const PARALLEL: usize = 16 * 1024;

/// One operand.
pub(super) struct Panel {
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

/// All of the stage's. None if one of them is no box of its buffer.
pub(super) fn all(
    nests: &Nests,
    stage: usize,
    operands: &Operands,
    width: usize,
) -> Option<Vec<Panel>> {
    let s = nests.stage(stage);
    let block = nests.recorder.schedule().block(&s.name).ok()?;
    let loads = block.body.value().loads();
    let program = nests.recorder.schedule().program();
    let one = |(buffer, indices): (BufId, &[Expr])| {
        let own = s.body.loads();
        let at = own.iter().position(|(b, at)| *b == buffer && *at == indices)?;
        let is_alone = own.iter().all(|(b, at)| *b != buffer || *at == indices);
        let shape = &nests.compute.buffer_type(buffer).shape;
        let (map, axis) = layout(s, indices, shape)?;
        let constant = nests.task.constant.get(buffer.index()).copied().unwrap_or(false);
        let is_sole = operands::is_sole_load(&nests.compute, s, &[stage], buffer, indices);
        let buffer = program.buffer(loads.get(at)?.0).name.clone();
        let columns = s.ty.shape[s.ty.rank() - 1];
        let elements = shape.iter().product::<usize>() / columns * columns.next_multiple_of(width);
        is_alone.then_some(Panel { buffer, is_constant: constant && is_sole, map, axis, elements })
    };
    operands.panels().map(one).collect()
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

impl Panel {
    pub(super) fn write(
        &self,
        nests: &mut Nests,
        block: BlockVar,
        vectors: Number,
        lanes: usize,
    ) -> Result<(), StepError> {
        let r = &mut nests.recorder;
        let width = [vectors, lanes.into()];
        if self.is_constant {
            return r.pack_input(&self.buffer, &self.map, self.axis, &width);
        }
        let copy = r.pack(block, &self.buffer, &self.map, self.axis, &width)?;
        let loops = r.get_loops(copy)?;
        let (outer, inner) = loops.split_at(self.axis + 1);
        let parts = r.split(inner[inner.len() - 1], &[0.into(), lanes.into()])?;
        r.vectorize(parts[1])?;
        r.unroll_jam(parts[0])?;
        for (place, &l) in outer.iter().enumerate() {
            r.annotate_loop(l, OUTER, place.into())?;
        }
        r.peel(outer[self.axis], Rest::Pieces)?;
        match self.elements >= PARALLEL {
            true => r.parallel_nests(OUTER, ROWS, 0.into()),
            false => r.fuse_nests(OUTER, ROWS, 0.into()),
        }
    }
}
