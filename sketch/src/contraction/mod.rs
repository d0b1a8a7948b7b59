//! Facts of products and convolutions, which are sums that use elements again, before they are
//! scheduled.
//!
//! - `operands`: what they read along vectors, and what of that lies in panels;
//! - `slide`: rows that read the same vectors for different terms;
//! - `shapes`: register tiles, the one priced lowest first;
//! - `epilogue`: the map that reads the result;
//! - `nested`: sums whose terms are sums;
//! - `blocks`: long sums by blocks of terms.

pub(crate) mod blocks;
pub(crate) mod epilogue;
pub(crate) mod nested;
pub(crate) mod operands;
pub(crate) mod shapes;
pub(crate) mod slide;

use ansc_graph::{Combiner, Reduce, Stage, VarId};

use crate::usage::has_reuse;

/// Whether terms of a result are neighbours in memory, as many as a vector has lanes, and results
/// are not: vectors along the last axis would gather.
pub(crate) fn goes_along_terms(s: &Stage, lanes: usize) -> bool {
    let rank = s.ty.rank();
    let (Some(last), Some(term)) = (rank.checked_sub(1), s.extents().len().checked_sub(1)) else {
        return false;
    };
    let is_near = |axis: usize| {
        let vars = s.body.loads().into_iter().filter_map(|(_, at)| Some(at.last()?.vars()));
        vars.into_iter().any(|vars| vars.contains(&VarId::new(axis)))
    };
    term >= rank && s.extents()[term] >= lanes && is_near(term) && !is_near(last)
}

/// Whether a stage is a reduction with a tile: vectors along its last axis use elements again.
pub(crate) fn is_tileable(s: &Stage) -> bool {
    let plain =
        |r: &Reduce| !matches!(r.combiner, Combiner::ArgMax { .. } | Combiner::ArgMin { .. });
    let wide = s.ty.shape.last().is_some_and(|&extent| extent > 1);
    s.reduce.as_ref().is_some_and(plain) && wide && has_reuse(s) && !s.extents().contains(&0)
}
