//! `Clip`: bounds are attributes before opset 11, optional inputs since.

use ansc_graph::ops::{elementwise, map};
use ansc_graph::{BinOp, Scalar, ValueId};
use ansc_runtime::{DType, Tensor};

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("Clip", 1, clip)];

/// A bound that is known becomes part of the expression.
enum Bound {
    None,
    Known(Scalar),
    Computed(ValueId),
}

fn clip(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    if ty.dtype == DType::Bool {
        return Err(ctx.problem("its operand must be a number, but is bool"));
    }
    let low = bound(ctx, "min", 1, ty.dtype)?;
    let high = bound(ctx, "max", 2, ty.dtype)?;
    let (low, high) = match (low, high) {
        (Bound::Computed(low), high) => (Bound::Computed(low), computed(ctx, high)),
        (low, Bound::Computed(high)) => (computed(ctx, low), Bound::Computed(high)),
        known => known,
    };
    if let (Some(low), Some(high)) = (scalar(&low), scalar(&high)) {
        return ctx.emit(elementwise::clip(low, high, &ty), &[x]);
    }
    let mut y = x;
    for (op, bound) in [(BinOp::Max, low), (BinOp::Min, high)] {
        if let Bound::Computed(bound) = bound {
            y = ctx.emit1(map::binary(op, &ty, &ctx.ty(bound)), &[y, bound])?;
        }
    }
    Ok(vec![y])
}

fn bound(ctx: &NodeCtx<'_>, attribute: &str, input: usize, dtype: DType) -> Result<Bound, Problem> {
    if ctx.opset() < 11 {
        let value = ctx.float_opt(attribute).map(|v| Scalar::from_f64(dtype, f64::from(v)));
        return Ok(value.map_or(Bound::None, Bound::Known));
    }
    let Some(value) = ctx.optional(input) else { return Ok(Bound::None) };
    let ty = ctx.ty(value);
    if ty.len() != 1 || ty.rank() > 1 || ty.dtype != dtype {
        return Err(ctx.problem(format!("its `{attribute}` must be a {dtype}[], but is {ty}")));
    }
    Ok(ctx.constant(value).map_or(Bound::Computed(value), |t| Bound::Known(only(&t))))
}

/// The one element of a tensor, exactly.
fn only(tensor: &Tensor) -> Scalar {
    match tensor.to_i64_vec() {
        Some(ints) => Scalar::from_i64(tensor.dtype(), ints[0]),
        None => Scalar::from_f64(tensor.dtype(), tensor.to_f64_vec()[0]),
    }
}

/// The values of both bounds if neither is computed.
fn scalar(bound: &Bound) -> Option<Option<Scalar>> {
    match bound {
        Bound::None => Some(None),
        Bound::Known(value) => Some(Some(*value)),
        Bound::Computed(_) => None,
    }
}

/// A known bound as a tensor, next to one that is computed.
fn computed(ctx: &mut NodeCtx<'_>, bound: Bound) -> Bound {
    match bound {
        Bound::Known(value) => {
            let op = ansc_graph::ops::fill::constant(value, &[]);
            ctx.emit1(op, &[]).map_or(Bound::None, Bound::Computed)
        }
        other => other,
    }
}
