//! Sums whose terms are sums: the inner ones are computed where they are added up.
//!
//! ```text
//! part[i, b, j] = sum[r] w[b, r, j] * x[i, b, r]
//! y[i, j]       = sum[b] (part[i, b, j] + c[i, b]) * scale[b, j]
//! =>
//! for b { part = c[i, b];  for r { part += w * x };  y += part * scale[b, j] }
//! ```
//!
//! Both are in registers. An inner sum begins with what is added to it, if that is the same for
//! all columns.

use ansc_graph::Compute;

use super::super::Nests;
use super::partial::Partial;
use crate::contraction::nested::Nested;
use crate::trace::StepError;

/// The stage and its reader, if they are such sums.
pub(super) fn of(compute: &Compute, stage: usize, done: &[bool]) -> Option<Nested> {
    let nested = Nested::of(compute, stage, done)?;
    let terms = nested.merged.reduce.as_ref()?.extents.len();
    (0 < nested.axes && nested.axes < terms).then_some(nested)
}

/// Extents of the terms of an inner sum.
pub(super) fn terms(nested: &Nested) -> &[usize] {
    let all = nested.merged.reduce.as_ref().map_or(&[][..], |r| &r.extents);
    &all[nested.axes..]
}

/// The inner sums of the stage.
pub(super) fn partial(
    nests: &mut Nests,
    stage: usize,
    nested: &Nested,
) -> Result<Partial, StepError> {
    let block = nests.block(stage)?;
    Ok(Partial { block, axes: nested.places.clone(), begins: nested.start.is_some() })
}
