//! `QuantizeLinear` of dequantised bytes that were only moved: the bytes are moved.
//!
//! ```text
//! quantize(transpose(dequantize(q, s, z)), s, z)   ->   transpose(q)
//! ```
//!
//! The largest of some numbers is one of them, so pools of maxima move too. A byte is the same
//! after both: `(q - z) * s / s` is off by less than half a step, unless the scale is so small or
//! so large that the product is no ordinary number.

use ansc_graph::op::{Kind, PoolMode};
use ansc_graph::ops::pool::max_pool;
use ansc_graph::ops::stored::stored;
use ansc_graph::{ComputeOp, Expr, ValueId};
use ansc_runtime::DType;

use super::integer::dequantised;
use crate::problem::Problem;
use crate::walk::NodeCtx;

/// `x` in steps of `scale` around `zero` as `to`; nothing if it is no such value.
pub(super) fn of_moved(
    ctx: &mut NodeCtx<'_>,
    to: DType,
    x: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
) -> Result<Option<ValueId>, Problem> {
    let Some((origin, path)) = path(ctx, x) else { return Ok(None) };
    let Some(bytes) = dequantised(ctx, origin) else { return Ok(None) };
    let zeros = match (bytes.zero, zero) {
        (None, None) => true,
        (Some(a), Some(b)) => same(ctx, a, b),
        _ => false,
    };
    let ordinary = |s: &f32| (1e-30..1e30).contains(s);
    let is_ordinary = |ctx: &NodeCtx<'_>, v| {
        ctx.constant(v)
            .is_some_and(|t| t.dtype() == DType::F32 && t.as_slice().iter().all(ordinary))
    };
    let scales = same(ctx, bytes.scale, scale) && is_ordinary(ctx, scale);
    if !bytes.is_plain(ctx) || ctx.dtype(bytes.value) != to || !scales || !zeros {
        return Ok(None);
    }
    let mut y = bytes.value;
    for op in path.iter().rev() {
        let moved = match &op.kind {
            Kind::Pool(attrs) => max_pool(attrs.clone(), &ctx.ty(y)),
            _ => Ok(stored(op, &[to])),
        };
        y = ctx.emit1(moved, &[y])?;
    }
    Ok(Some(y))
}

/// Operators that moved elements to `x`, the last one first, and where they come from.
fn path(ctx: &NodeCtx<'_>, x: ValueId) -> Option<(ValueId, Vec<ComputeOp>)> {
    let graph = ctx.graph_here();
    let (mut at, mut path) = (x, vec![]);
    while dequantised(ctx, at).is_none() {
        let op = graph.compute_of(at.node).filter(|op| moves(op))?;
        path.push(op.clone());
        at = *graph.operands(at.node).first()?;
    }
    Some((at, path))
}

/// Whether every element of the only result is one of the only operand.
fn moves(op: &ComputeOp) -> bool {
    let one = op.expr.inputs.len() == 1 && op.expr.outputs.len() == 1;
    let all =
        |is: fn(&Expr) -> bool| op.expr.stages.iter().all(|s| s.reduce.is_none() && is(&s.body));
    let largest = matches!(&op.kind, Kind::Pool(attrs) if attrs.mode == PoolMode::Max);
    one && op.expr.inputs[0].dtype == DType::F32
        && (largest || all(|body| matches!(body, Expr::Load(..))))
}

fn same(ctx: &NodeCtx<'_>, a: ValueId, b: ValueId) -> bool {
    a == b
        || matches!((ctx.constant(a), ctx.constant(b)), (Some(a), Some(b))
        if a.dtype() == b.dtype() && a.bytes() == b.bytes())
}
