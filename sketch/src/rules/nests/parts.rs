//! A stage as one block or two, and how each goes into vectors.
//!
//! ```text
//! y[p, j] = f(..)         whole: for i { vectorized l { y[p, i * 8 + l] = .. } }
//! s[p, j] = sum[k] ..     columns: for i { acc = 0; for k { acc += .. }; s[p, i * 32 + ..] = acc }
//! s[p] = sum[k] ..        partial: acc = 0; for k { acc += .. }; acc by halves; s[p] = acc[0]
//! ```
//!
//! A reduction keeps its running values, `acc`, in registers: vectors along the innermost spatial
//! axis where that is long enough, otherwise vectors of partial results along the innermost reduced
//! axis.
//!
//! A stage is parted while it has a nest of its own; when its last block has its place, the first
//! one follows it there; at last loops become vectors.

use std::collections::BTreeSet;

use ansc_graph::{Combiner, Stage};

use super::Nests;
use crate::schedule::Rest;
use crate::trace::{BlockVar, LoopVar, Number, StepError};

/// Vectors of a map that are written out in a row.
const IN_A_ROW: [i64; 3] = [1, 2, 4];
/// Vectors of running values of a reduction.
const PARTIALS: [i64; 4] = [4, 1, 2, 8];

/// A stage whose first axes are those of loops around.
pub(super) struct Part {
    /// The block that gives the result.
    pub(super) last: BlockVar,
    /// The axes that are left: their loops are the innermost ones of the block.
    own: usize,
    lanes: usize,
    kind: Kind,
}

enum Kind {
    /// One block.
    Whole,
    /// The running value of each point in a register.
    Points { terms: BlockVar },
    /// Vectors of running values, so many at a time.
    Columns { terms: BlockVar, vectors: Number, place: Option<LoopVar> },
    /// Vectors of partial results along the last reduced axis.
    Partial { terms: BlockVar, reduced: usize },
}

impl Part {
    /// The stage as blocks, each of which has a nest at the root.
    pub(super) fn of(nests: &mut Nests, stage: usize, bound: usize) -> Result<Part, StepError> {
        let s = nests.stage(stage).clone();
        let (own, lanes) = (s.ty.rank() - bound, nests.lanes(stage));
        let block = nests.block(stage)?;
        let part = |last, lanes, kind| Part { last, own, lanes, kind };
        if s.reduce.is_none() {
            return Ok(part(block, lanes, Kind::Whole));
        }
        if is_wide(&s, bound, lanes) {
            let vectors = s.ty.shape[s.ty.rank() - 1] / lanes;
            let vectors = nests.choose(&at_most(&PARTIALS, vectors))?;
            let last = nests.cache_write(block)?;
            let kind = Kind::Columns { terms: block, vectors, place: None };
            return Ok(part(last, lanes, kind));
        }
        let extents = &s.extents()[s.ty.rank()..];
        let narrow = extents.last().map_or(1, |&extent| narrowed(lanes, extent));
        if is_arg(&s) || extents.last().is_none_or(|&extent| extent < narrow) {
            let last = nests.cache_write(block)?;
            nests.keep_local(block)?;
            return Ok(part(last, lanes, Kind::Points { terms: block }));
        }
        let vectors = nests.choose(&at_most(&PARTIALS, extents[extents.len() - 1] / narrow))?;
        let axes = nests.outer + s.ty.rank();
        let r = &mut nests.recorder;
        let loops = r.get_loops(block)?;
        let parts = r.split(loops[loops.len() - 1], &[0.into(), vectors, narrow.into()])?;
        let lane = r.fuse(&parts[1..])?;
        let terms = r.rfactor(block, lane, axes)?;
        nests.keep_local(terms)?;
        nests.in_slices(block)?;
        Ok(part(block, narrow, Kind::Partial { terms, reduced: extents.len() }))
    }

    /// The block before follows the last one, which is under the loop `row`, if there is one.
    pub(super) fn follow(
        &mut self,
        nests: &mut Nests,
        row: Option<LoopVar>,
    ) -> Result<(), StepError> {
        let r = &mut nests.recorder;
        match &mut self.kind {
            Kind::Whole => Ok(()),
            Kind::Points { terms } | Kind::Partial { terms, .. } => {
                let terms = *terms;
                let folded = usize::from(matches!(self.kind, Kind::Partial { .. }));
                let loops = r.get_loops(self.last)?;
                let spatial = &loops[..loops.len().saturating_sub(folded)];
                let own = innermost(spatial, self.own)?;
                match own.last().copied().or(row) {
                    Some(l) => r.compute_at(terms, l),
                    None => Ok(()),
                }
            }
            Kind::Columns { terms, vectors, place } => {
                let loops = r.get_loops(self.last)?;
                let lengths = [0.into(), *vectors, self.lanes.into()];
                let parts = r.split(loops[loops.len() - 1], &lengths)?;
                *place = Some(parts[0]);
                r.compute_at(*terms, parts[0])?;
                written_out(nests, &parts[1..])
            }
        }
    }

    /// The loop over vectors of results, if it is there whatever is chosen.
    pub(super) fn over_vectors(&self, nests: &Nests, stage: usize) -> Option<LoopVar> {
        let most = PARTIALS.iter().max().map_or(1, |&n| n as usize);
        let columns = nests.stage(stage).ty.shape.last().copied().unwrap_or(1);
        match self.kind {
            Kind::Columns { place, .. } if columns >= 2 * most * self.lanes => place,
            _ => None,
        }
    }

    /// Loops become vectors, and nothing that they do is guarded.
    pub(super) fn in_vectors(&self, nests: &mut Nests) -> Result<(), StepError> {
        match &self.kind {
            Kind::Whole => {
                let loops = nests.recorder.get_loops(self.last)?;
                let own = innermost(&loops, self.own)?;
                own.last().map_or(Ok(()), |&last| in_vectors(nests, last, self.lanes).map(drop))
            }
            Kind::Points { .. } => Ok(()),
            Kind::Columns { terms, place, .. } => {
                columns(nests, *terms, self.lanes)?;
                let place = place.ok_or(StepError::NoChoice)?;
                nests.recorder.peel(place, Rest::Pieces)
            }
            Kind::Partial { terms, reduced } => {
                partial(nests, *terms, *reduced, self.lanes)?;
                nests.recorder.fold_tree(self.last)
            }
        }
    }
}

/// A map along one axis; the loop over its vectors.
pub(super) fn in_vectors(
    nests: &mut Nests,
    axis: LoopVar,
    lanes: usize,
) -> Result<LoopVar, StepError> {
    if nests.recorder.extent(axis)? == 1 {
        return Ok(axis);
    }
    let in_a_row = nests.choose(&IN_A_ROW)?;
    let parts = nests.recorder.split(axis, &[0.into(), in_a_row, lanes.into()])?;
    written_out(nests, &parts[1..])?;
    nests.recorder.peel(parts[0], Rest::Overlap)?;
    Ok(parts[0])
}

/// A reduction under the loop over its vectors: `last, k.. => k.., vectors, lanes`.
fn columns(nests: &mut Nests, terms: BlockVar, lanes: usize) -> Result<(), StepError> {
    let r = &mut nests.recorder;
    let reduced = r.reduced(terms)?;
    let loops = r.get_loops(terms)?;
    let (around, reduced) = loops.split_at(loops.len() - reduced);
    let parts = r.split(around[around.len() - 1], &[0.into(), lanes.into()])?;
    r.reorder(&[reduced, &parts].concat())?;
    written_out(nests, &parts)?;
    let Some(&first) = reduced.first() else { return Ok(()) };
    nests.recorder.decompose_reduction(terms, first).map(drop)
}

/// Terms in vectors of partial results: `k.., lane => k.., vectors, lanes`.
fn partial(
    nests: &mut Nests,
    terms: BlockVar,
    reduced: usize,
    lanes: usize,
) -> Result<(), StepError> {
    let r = &mut nests.recorder;
    let loops = r.get_loops(terms)?;
    let inner = innermost(&loops, 2)?[0];
    let first = innermost(&loops, 1 + reduced)?[0];
    let parts = r.split(loops[loops.len() - 1], &[0.into(), lanes.into()])?;
    written_out(nests, &parts)?;
    nests.recorder.decompose_reduction(terms, first)?;
    nests.recorder.peel_terms(terms, inner, Rest::Pieces)
}

/// The last so many loops. Axes of one element have no loop where a block was moved.
fn innermost(loops: &[LoopVar], count: usize) -> Result<&[LoopVar], StepError> {
    let first = loops.len().checked_sub(count).ok_or(StepError::Unfit)?;
    Ok(&loops[first..])
}

/// Vectors that are written out.
fn written_out(nests: &mut Nests, parts: &[LoopVar]) -> Result<(), StepError> {
    nests.recorder.unroll(parts[0])?;
    nests.recorder.vectorize(parts[1])
}

fn is_arg(s: &Stage) -> bool {
    let combiner = s.reduce.as_ref().map(|r| r.combiner);
    matches!(combiner, Some(Combiner::ArgMax { .. } | Combiner::ArgMin { .. }))
}

/// Whether vectors lie along the last spatial axis.
fn is_wide(s: &Stage, bound: usize, lanes: usize) -> bool {
    !is_arg(s) && s.ty.shape[bound..].last().is_some_and(|&extent| extent >= lanes.min(4))
}

/// Those of the candidates that are not more than there are.
pub(super) fn at_most(candidates: &[i64], most: usize) -> Vec<i64> {
    let most = most.max(1) as i64;
    let mut seen = BTreeSet::new();
    candidates.iter().map(|&n| n.min(most)).filter(|n| seen.insert(*n)).collect()
}

/// Vectors that are no longer than the axis, as long as they are worth their sum at the end.
fn narrowed(lanes: usize, extent: usize) -> usize {
    let fits = |n: &usize| *n <= extent;
    [lanes, lanes / 2, lanes / 4].into_iter().filter(|&n| n >= 4).find(fits).unwrap_or(lanes)
}
