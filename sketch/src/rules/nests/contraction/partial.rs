//! Sums that are added up in a tile, block by block of terms: each is summed from zero, and its sum
//! added to the total.
//!
//! ```text
//! for c in 0..256 { tile += a[c] * b[c] }
//! => rfactor, and the sum of a block computed where it is added
//! for o in 0..4 {
//!   part = 0;  for i in 0..64 { part += a[o * 64 + i] * b[o * 64 + i] };  tile += part
//! }
//! ```
//!
//! Long sums are cut that way where rounding matters more than time. Nested sums are a stage of
//! their own (`nested`).

use super::super::Nests;
use super::lengths::Tile;
use super::{Loops, Plan, in_vectors, nested};
use crate::contraction::blocks::Blocks;
use crate::contraction::nested::Nested;
use crate::trace::{BlockVar, LoopVar, Number, Recorder, StepError};

/// The sums that a tile adds up, where it does not add up products.
pub(super) enum Parts {
    /// Blocks of terms of a long sum.
    Blocks(Blocks),
    /// Sums of a stage.
    Nested(usize, Box<Nested>),
}

/// The sums of blocks.
pub(super) struct Partial {
    pub(super) block: BlockVar,
    /// The axis of the tiled stage that each spatial axis of the block is; blocks that are numbered
    /// are after all spatial ones.
    pub(super) axes: Vec<usize>,
    /// Whether something is added to each sum, with which it begins instead.
    pub(super) begins: bool,
}

impl Parts {
    /// Extents of the terms of one part.
    pub(super) fn terms(&self) -> &[usize] {
        match self {
            Parts::Blocks(blocks) => &blocks.inner,
            Parts::Nested(_, of) => nested::terms(of),
        }
    }

    /// The block of the tiled stage goes on to add up what parts come to.
    pub(super) fn partial(
        &self,
        nests: &mut Nests,
        plan: &Plan,
        block: BlockVar,
    ) -> Result<Partial, StepError> {
        match self {
            Parts::Blocks(blocks) => Partial::of(nests, plan, blocks, block),
            Parts::Nested(stage, of) => nested::partial(nests, *stage, of),
        }
    }

    /// Loops over parts, of the loops over the terms that are left.
    pub(super) fn over(
        &self,
        r: &mut Recorder,
        terms: &[LoopVar],
    ) -> Result<Vec<LoopVar>, StepError> {
        match self {
            Parts::Blocks(blocks) => {
                let lengths: Vec<Number> = blocks.outer.iter().map(|&n| n.into()).collect();
                r.split(terms[0], &lengths)
            }
            Parts::Nested(..) => Ok(terms.to_vec()),
        }
    }
}

impl Partial {
    fn of(
        nests: &mut Nests,
        plan: &Plan,
        blocks: &Blocks,
        block: BlockVar,
    ) -> Result<Partial, StepError> {
        let (rank, outer_loops) = (plan.s.ty.rank(), nests.outer);
        let loops = nests.loops(block)?;
        let r = &mut nests.recorder;
        let terms = &loops[rank..];
        let whole = blocks.outer.len() - usize::from(blocks.part.is_some());
        let mut outer: Vec<LoopVar> = terms[..whole].to_vec();
        if let Some(part) = blocks.part {
            outer.push(r.split(terms[whole], &[0.into(), part.into()])?[0]);
        }
        let number = match outer[..] {
            [only] => only,
            _ => r.fuse(&outer)?,
        };
        let partial = r.rfactor(block, number, outer_loops + rank)?;
        nests.in_slices(block)?;
        Ok(Partial { block: partial, axes: (0..=rank).collect(), begins: false })
    }

    pub(super) fn pad(&self, nests: &mut Nests, plan: &Plan) -> Result<(), StepError> {
        let columns = plan.s.ty.rank() - 1;
        let iter = self.axes.iter().position(|&axis| axis == columns);
        plan.pad(nests, self.block, iter.ok_or(StepError::NoChoice)?)
    }

    /// Computes the sums of a block for a tile where they are added up, and cuts them like the
    /// tile.
    pub(super) fn write(
        &self,
        nests: &mut Nests,
        plan: &Plan,
        loops: &Loops,
        tile: &Tile,
    ) -> Result<(), StepError> {
        nests.recorder.compute_at(self.block, loops.last)?;
        nests.keep_local(self.block)?;
        let r = &mut nests.recorder;
        let rank = plan.s.ty.rank();
        let all = r.get_loops(self.block)?;
        let own = &all[all.len() - self.axes.len() - tile.terms.len()..];
        let (own, terms) = own.split_at(self.axes.len());
        let along = |wanted: usize| {
            let axes = self.axes.iter().zip(own);
            axes.filter(move |(axis, _)| **axis == wanted).map(|(_, l)| *l)
        };
        let in_tile = [plan.shape.upper_axis, plan.shape.row_axis];
        let rows: Vec<LoopVar> = in_tile.into_iter().flatten().flat_map(along).collect();
        let columns: Vec<LoopVar> = along(rank - 1).collect();
        let is_single = |l: &&LoopVar| !rows.contains(l) && !columns.contains(l);
        let singles: Vec<LoopVar> = own.iter().filter(is_single).copied().collect();
        let columns = r.split(columns[0], &[0.into(), plan.lanes.into()])?;
        let (over, written_out) = plan.cut_terms(r, terms, &tile.terms)?;
        r.reorder(&[&singles[..], &over, &written_out, &rows, &columns].concat())?;
        written_out.iter().chain(&rows).try_for_each(|&l| r.unroll(l))?;
        in_vectors(r, &columns)?;
        let init = r.decompose_reduction(self.block, over[0])?;
        if self.begins { r.lift_addend(init) } else { Ok(()) }
    }
}
