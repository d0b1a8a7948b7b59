//! Facts of products and convolutions, which are sums that use elements again, before they are
//! scheduled.
//!
//! - `operands`: what they read along vectors, and what of that lies in panels;
//! - `shapes`: register tiles, the one priced lowest first;
//! - `epilogue`: the map that reads the result;
//! - `nested`: sums whose terms are sums;
//! - `blocks`: long sums by blocks of terms.

pub(crate) mod blocks;
pub(crate) mod epilogue;
pub(crate) mod nested;
pub(crate) mod operands;
pub(crate) mod shapes;

use ansc_graph::{Combiner, Reduce, Stage};

use crate::usage::has_reuse;

/// Whether a stage is a reduction with a tile: vectors along its last axis use elements again.
pub(crate) fn is_tileable(s: &Stage) -> bool {
    let plain =
        |r: &Reduce| !matches!(r.combiner, Combiner::ArgMax { .. } | Combiner::ArgMin { .. });
    let wide = s.ty.shape.last().is_some_and(|&extent| extent > 1);
    s.reduce.as_ref().is_some_and(plain) && wide && has_reuse(s) && !s.extents().contains(&0)
}
