//! Optional values, and `Identity`, which takes values of every kind.
//!
//! Whether an optional value has an element is known at import: one that has is its element, one
//! that has not is an absent input.

use ansc_runtime::Tensor;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::{Binding, NodeCtx};

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::any("Identity", 1, element),
    OpEntry::any("Optional", 15, |ctx| Ok(vec![ctx.binding(0)])),
    OpEntry::any("OptionalGetElement", 15, element),
    OpEntry::any("OptionalHasElement", 15, has_element),
];

fn element(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    match ctx.binding(0) {
        Binding::Absent => Err(ctx.problem("its input has no element")),
        present => Ok(vec![present]),
    }
}

fn has_element(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    let present = ctx.binding(0) != Binding::Absent;
    Ok(vec![Binding::Value(ctx.add_const(Tensor::scalar(present))?)])
}
