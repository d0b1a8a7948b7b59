//! Long sums by blocks of terms, where rounding matters more than time: each block is summed from
//! zero, and its sum added to the total.
//!
//! ```text
//! for c in 0..256 { tile += a[c] * b[c] }
//! => rfactor, and the sum of a block computed where it is added
//! for o in 0..4 {
//!   part = 0;  for i in 0..64 { part += a[o * 64 + i] * b[o * 64 + i] };  tile += part
//! }
//! ```

use super::super::Nests;
use super::lengths::Tile;
use super::{Loops, Plan, in_vectors};
use crate::default::tile::blocks::Blocks;
use crate::trace::{BlockVar, LoopVar, Number, StepError};

/// The sums of blocks.
pub(super) struct Partial {
    block: BlockVar,
}

impl Partial {
    /// The block goes on to add up what blocks of terms come to.
    pub(super) fn of(
        nests: &mut Nests,
        plan: &Plan,
        blocks: &Blocks,
        block: BlockVar,
    ) -> Result<Partial, StepError> {
        let r = &mut nests.recorder;
        let rank = plan.s.ty.rank();
        let loops = r.get_loops(block)?;
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
        Ok(Partial { block: r.rfactor(block, number, rank)? })
    }

    pub(super) fn pad(&self, nests: &mut Nests, plan: &Plan) -> Result<(), StepError> {
        plan.pad(nests, self.block)
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
        let own = &all[all.len() - rank - 1 - tile.terms.len()..];
        let (axes, terms) = (&own[..rank], &own[rank + 1..]);
        let columns = r.split(axes[rank - 1], &[0.into(), plan.lanes.into()])?;
        let in_tile = [plan.shape.upper_axis, plan.shape.row_axis];
        let rows: Vec<LoopVar> = in_tile.into_iter().flatten().map(|axis| axes[axis]).collect();
        let is_single = |axis: &usize| !in_tile.contains(&Some(*axis));
        let singles = (0..rank - 1).filter(is_single).map(|axis| axes[axis]);
        let singles: Vec<LoopVar> = singles.chain([own[rank]]).collect();
        let (over, written_out) = plan.cut_terms(r, terms, &tile.terms)?;
        r.reorder(&[&singles[..], &over, &written_out, &rows, &columns].concat())?;
        written_out.iter().chain(&rows).try_for_each(|&l| r.unroll(l))?;
        in_vectors(r, &columns)?;
        r.decompose_reduction(self.block, over[0]).map(drop)
    }
}

/// The loop over blocks of terms, as the loops that blocks are numbered by.
pub(super) fn lengths(blocks: &Blocks) -> Vec<Number> {
    blocks.outer.iter().map(|&extent| extent.into()).collect()
}
