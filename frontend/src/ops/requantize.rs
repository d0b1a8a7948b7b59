//! `QuantizeLinear` of what a product of integers gives, with what cuts off a range between.
//!
//! ```text
//! quantize(clip(f32(acc) * f, low, high), s, z)
//! ->  u8(clip(f32(acc) * (f / s), low / s, high / s) rounded, + z)
//! ```
//!
//! One multiplication takes the place of a multiplication and a division, as `QLinearConv` is
//! defined: the results are those of ONNX Runtime's fused operators. Bounds that the integers have
//! anyway are left out.

use ansc_graph::ops::map::map;
use ansc_graph::ops::quantize::quantized;
use ansc_graph::{BinOp, Expr, TensorType, ValueId};
use ansc_runtime::DType;

use super::integer::scaled_op;
use crate::problem::Problem;
use crate::walk::NodeCtx;

/// `x` in steps of `scale` around `zero` (scalars) as `to`; nothing if it is no such value.
pub(super) fn of_sum(
    ctx: &mut NodeCtx<'_>,
    to: DType,
    x: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
) -> Result<Option<ValueId>, Problem> {
    let is_byte = [DType::I8, DType::U8].contains(&to);
    let step = ctx.constant(scale).filter(|s| s.len() == 1 && s.dtype() == DType::F32);
    let Some(step) = step.filter(|_| is_byte).map(|s| s.as_slice::<f32>()[0]) else {
        return Ok(None);
    };
    let Some(Sum { acc, factor, bounds }) = sum(ctx, x) else { return Ok(None) };
    let offset = match zero.map(|zero| ctx.constant(zero)) {
        None => 0.0,
        Some(Some(zero)) => zero.to_f64_vec()[0] as f32,
        Some(None) => return Ok(None),
    };
    let factor = ctx.binary(BinOp::Div, factor, scale)?;
    let least = if to == DType::I8 { -128.0 } else { 0.0 };
    let inside = |bound: &Bound| match bound.low {
        true => bound.value / step + offset > least,
        false => bound.value / step + offset < least + 255.0,
    };
    let bounds: Vec<Bound> = bounds.into_iter().filter(inside).collect();
    let inputs: Vec<ValueId> = [acc, factor].into_iter().chain(zero).collect();
    let zero_type = zero.map(|zero| ctx.dtype(zero));
    let y = ctx.map(&inputs, to, |v| {
        let mut real = Expr::cast(DType::I32, DType::F32, v[0].clone()) * v[1].clone();
        for bound in &bounds {
            let value = Expr::float(DType::F32, (bound.value / step).into());
            real = if bound.low { real.max(value) } else { real.min(value) };
        }
        let zero = zero_type.map(|ty| Expr::cast(ty, DType::F32, v[2].clone()));
        quantized(DType::F32, to, real, zero)
    })?;
    Ok(Some(y))
}

/// A sum of integers, what a unit of it stands for, and what is cut off afterwards, in order.
struct Sum {
    acc: ValueId,
    factor: ValueId,
    bounds: Vec<Bound>,
}

#[derive(Clone, Copy)]
struct Bound {
    value: f32,
    low: bool,
}

fn sum(ctx: &NodeCtx<'_>, x: ValueId) -> Option<Sum> {
    let graph = ctx.graph_here();
    let (mut at, mut bounds) = (x, vec![]);
    loop {
        let op = graph.compute_of(at.node)?;
        let operands = graph.operands(at.node);
        if let [acc, factor] = operands[..] {
            let [acc_ty, factor_ty] = &op.expr.inputs[..] else { return None };
            let expected = scaled_op(acc_ty, factor_ty).ok()?;
            bounds.reverse();
            return (*op == expected).then_some(Sum { acc, factor, bounds });
        }
        let [operand] = operands[..] else { return None };
        let [ty] = &op.expr.inputs[..] else { return None };
        // The expression of a clip is its bounds around the operand.
        let [stage] = &op.expr.stages[..] else { return None };
        let mut inner = &stage.body;
        let mut here = vec![];
        while let Expr::Binary(op @ (BinOp::Max | BinOp::Min), rest, bound) = inner {
            let Expr::Const(value) = **bound else { return None };
            here.push(Bound { value: value.as_f64() as f32, low: *op == BinOp::Max });
            inner = rest;
        }
        if here.is_empty() || ty.dtype != DType::F32 || !is_the_operand(ty, &stage.body, inner) {
            return None;
        }
        bounds.extend(here);
        at = operand;
    }
}

/// Whether `inner`, a part of `body`, is the element of the operand at the place of the result.
fn is_the_operand(ty: &TensorType, body: &Expr, inner: &Expr) -> bool {
    let same = map(std::slice::from_ref(ty), ty.dtype, |v| v[0].clone());
    let is_element = |op: ansc_graph::ComputeOp| op.expr.stages[0].body == *inner;
    body != inner && same.is_ok_and(is_element)
}
