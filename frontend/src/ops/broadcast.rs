//! Broadcasting before opset 7: attributes `broadcast` and `axis` say that, and where, the second
//! operand's axes meet those of the first.
//!
//! ```text
//! Add(a[2, 3, 4, 5], b[3, 4], broadcast = 1, axis = 1)  ->  a + reshape(b, [3, 4, 1])
//! ```

use ansc_graph::ValueId;
use ansc_graph::ops::shape;

use crate::problem::Problem;
use crate::walk::NodeCtx;

/// The two operands, ready for broadcasting by numpy's rules.
pub(super) fn operands(ctx: &mut NodeCtx<'_>) -> Result<(ValueId, ValueId), Problem> {
    let (a, b) = (ctx.input(0)?, ctx.input(1)?);
    if ctx.opset() >= 7 {
        return Ok((a, b));
    }
    let (to, from) = (ctx.ty(a).shape, ctx.ty(b).shape);
    if ctx.int("broadcast", 0) == 0 {
        if to != from {
            let reason = format!("shapes {to:?} and {from:?} differ, and `broadcast` is not set");
            return Err(ctx.problem(reason));
        }
        return Ok((a, b));
    }
    match ctx.int_opt("axis") {
        None => Ok((a, b)),
        Some(axis) => Ok((a, align(ctx, b, axis, &to)?)),
    }
}

/// `b` with axes of extent 1 behind it, so that its first axis meets `axis`.
pub(super) fn align(
    ctx: &mut NodeCtx<'_>,
    b: ValueId,
    axis: i64,
    to: &[usize],
) -> Result<ValueId, Problem> {
    let ty = ctx.ty(b);
    let axis = ctx.axis(axis, to.len())?;
    let behind = to.len().checked_sub(axis + ty.rank()).ok_or_else(|| {
        ctx.problem(format!("shape {:?} does not fit {to:?} from axis {axis} on", ty.shape))
    })?;
    let mut padded = ty.shape.clone();
    padded.resize(ty.rank() + behind, 1);
    ctx.emit1(shape::reshape(&ty, &padded), &[b])
}
