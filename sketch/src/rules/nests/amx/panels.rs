//! Panels of a factor that is made in the same run.
//!
//! ```text
//! panels[p, t, g, l, q] = b[t * 32 + g * 2 + q, p * 16 + l]   columns side by side
//! => parallel p, t { for g { vectorized l in 0..16 { unrolled q in 0..2 { .. } } } }
//!
//! panels[p, t, g, l, q] = b[p * 16 + l, t * 32 + g * 2 + q]   terms side by side
//! => parallel p, t { vectorized g in 0..16 { unrolled u in 0..32 { panels[p, t, g, u // 2, u % 2] = .. } } }
//! ```
//!
//! Vectors and what is written out inside of them are squares, which code generation transposes.

use ansc_graph::{Expr, VarId};

use super::super::{Nests, Way};
use super::shape::Tiled;
use crate::trace::StepError;
use crate::usage::readers;
use crate::walk::is_worthwhile;

/// One stage, which a product in tiles reads.
pub(in super::super) fn apply(
    nests: &mut Nests,
    stage: usize,
    _: &Way,
) -> Result<Option<usize>, StepError> {
    if !is_panels(nests, stage) {
        return Ok(None);
    }
    let s = nests.stage(stage);
    let (rank, worthwhile) = (s.ty.rank(), is_worthwhile(s));
    let columns = VarId::new(rank - 2);
    let loads = s.body.loads();
    let innermost = loads.first().and_then(|(_, at)| at.last());
    let by_columns = innermost.is_some_and(|e: &Expr| e.vars().contains(&columns));
    let block = nests.block(stage)?;
    let r = &mut nests.recorder;
    let loops = r.get_loops(block)?;
    let (outer, inner) = loops.split_at(rank - 3);
    let [groups, columns, terms] = [inner[0], inner[1], inner[2]];
    if by_columns {
        r.vectorize(columns)?;
        r.unroll(terms)?;
    } else {
        let both = r.fuse(&[columns, terms])?;
        r.vectorize(groups)?;
        r.unroll(both)?;
    }
    let outer = r.fuse(outer)?;
    if worthwhile {
        r.parallel(outer)?;
    }
    Ok(Some(1))
}

fn is_panels(nests: &Nests, stage: usize) -> bool {
    let (compute, buffer) = (&nests.compute, nests.compute.stage_buffer(stage));
    let s = nests.stage(stage);
    let second = |reader: usize| {
        let loads = compute.stages[reader].body.loads();
        Tiled::of(compute, reader).is_some() && loads.get(1).is_some_and(|(b, _)| *b == buffer)
    };
    s.reduce.is_none() && s.ty.rank() > 3 && readers(compute, buffer).into_iter().any(second)
}
