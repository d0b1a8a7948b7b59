//! Squares: a stage that reads across the rows of what it writes.
//!
//! ```text
//! y[v0, v1] = x[v1, v0], f32[64, 96], 8 lanes
//! =>
//! parallel p in 0..8 { for j in 0..12 { vectorized l in 0..8 { unrolled u in 0..8 { y[p * 8 + u, j * 8 + l] = x[j * 8 + l, p * 8 + u] } } } }
//! ```
//! Several squares along the rows of what is read may come before those below them.
//!
//! The vector lies along the last axis of the result, what is written out along the last axis of
//! what it reads: code generation loads rows of both and transposes in registers.

use std::collections::BTreeSet;

use ansc_graph::{Expr, Stage, VarId};

use super::Nests;
use crate::default::{is_transposed, run_of};
use crate::schedule::Rest;
use crate::trace::{LoopVar, StepError};
use crate::walk::{self, is_worthwhile, merged};

pub(super) fn apply(nests: &mut Nests, stage: usize, _: usize) -> Result<Option<usize>, StepError> {
    let s = nests.stage(stage);
    if s.reduce.is_some() || !is_transposed(&nests.compute, &nests.task.machine, s) {
        return Ok(None);
    }
    let groups = walk::groups(&nests.compute, s, 0..s.ty.rank());
    let Some(across) = across(s).and_then(|axis| groups.iter().position(|g| g.contains(&axis)))
    else {
        return Ok(None);
    };
    let last = groups.len() - 1;
    if across == last {
        return Ok(None);
    }
    let (lanes, worthwhile) = (nests.lanes(stage), is_worthwhile(s));
    let (extent, row_bytes) =
        (merged(s, &groups[across]), merged(s, &groups[last]) * s.ty.dtype.size());
    let runs = runs(extent / lanes, lanes * row_bytes);
    let block = nests.block(stage)?;
    let run = nests.choose(&runs)?;
    let loops = nests.loops(block)?;
    let mut outer = nests.merged(&loops, &groups)?;
    let r = &mut nests.recorder;
    let columns = outer.remove(last);
    let rows = outer.remove(across);
    let rows = r.split(rows, &[0.into(), run, lanes.into()])?;
    let columns = r.split(columns, &[0.into(), lanes.into()])?;
    // A loop with another one beside it, which peeling leaves, is not fused with those around it.
    let is_whole = extent.is_multiple_of(lanes);
    let alone = !is_whole && !outer.is_empty();
    if !alone {
        outer.insert(across, rows[0]);
    }
    let beside: Vec<LoopVar> = alone.then_some(rows[0]).into_iter().collect();
    let order = [&outer[..], &beside, &[columns[0], rows[1], columns[1], rows[2]]].concat();
    r.reorder(&order)?;
    r.vectorize(columns[1])?;
    r.unroll(rows[2])?;
    r.peel(columns[0], Rest::Pieces)?;
    r.peel(rows[0], Rest::Pieces)?;
    let outer = r.fuse(&outer)?;
    if worthwhile {
        nests.parallel(outer)?;
    }
    Ok(Some(1))
}

/// How many squares are done along the rows of what is read before the next ones below them: as
/// many as leave what is written in the cache until its lines are whole.
fn runs(squares: usize, bytes: usize) -> Vec<i64> {
    let mut all = vec![run_of(squares, bytes) as i64];
    all.extend([1, 2, 4].iter().filter(|&&run| squares.is_multiple_of(run as usize)));
    let mut seen = BTreeSet::new();
    all.retain(|run| seen.insert(*run));
    all
}

/// The axis of the result that the last index of what is read moves along.
fn across(s: &Stage) -> Option<usize> {
    let last = s.ty.rank().checked_sub(1)?;
    let loads = s.body.loads();
    let moved = |at: &[Expr]| {
        let index = at.last()?;
        (0..last).find(|&axis| *index == Expr::Var(VarId::new(axis)))
    };
    loads.iter().find_map(|(_, at)| moved(at))
}
