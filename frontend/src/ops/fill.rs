//! Tensors made from little or nothing, and what is known about a tensor without reading it.

use ansc_graph::ops::fill;
use ansc_graph::{Scalar, ValueId};
use ansc_runtime::{DType, Tensor};

use super::OpEntry;
use super::args::{check_static, extent, extents, only_element, onnx_type};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Shape", 1, shape),
    OpEntry::onnx("Size", 1, size),
    OpEntry::onnx("ConstantOfShape", 9, constant_of_shape),
    OpEntry::onnx("EyeLike", 9, eye_like),
    OpEntry::onnx("Range", 11, range),
    OpEntry::onnx("OneHot", 9, one_hot),
];

fn shape(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    check_static(ctx, x)?;
    let extents: Vec<i64> = ctx.ty(x).shape.iter().map(|&d| d as i64).collect();
    let rank = extents.len() as i64;
    let bound = |i: i64| (if i < 0 { i.saturating_add(rank) } else { i }).clamp(0, rank) as usize;
    let (start, end) = (bound(ctx.int("start", 0)), bound(ctx.int("end", rank)));
    let part = extents.get(start..end).unwrap_or_default();
    Ok(vec![ctx.add_const(Tensor::from_slice(&[part.len()], part))?])
}

fn size(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    check_static(ctx, x)?;
    let len = ctx.ty(x).len() as i64;
    Ok(vec![ctx.add_const(Tensor::scalar(len))?])
}

fn constant_of_shape(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let shape = extents(ctx, &ctx.known_i64s(0, "shape")?, "shape")?;
    let value = match ctx.tensor("value") {
        None => Scalar::zero(DType::F32),
        Some(tensor) if tensor.len() == 1 => Scalar::at(&tensor, 0),
        Some(_) => return Err(ctx.problem("its value must be one element")),
    };
    ctx.emit(fill::constant(value, &shape), &[])
}

fn eye_like(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    check_static(ctx, x)?;
    let ty = ctx.ty(x);
    let &[rows, columns] = ty.shape.as_slice() else {
        return Err(ctx.problem(format!("its input must be a matrix, not {ty}")));
    };
    let dtype = match ctx.int_opt("dtype") {
        None => ty.dtype,
        Some(code) => onnx_type(ctx, code)?,
    };
    ctx.emit(fill::eye(dtype, rows, columns, ctx.int("k", 0)), &[])
}

fn range(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let start = only_element(ctx, 0, "start")?;
    let limit = only_element(ctx, 1, "limit")?;
    let step = only_element(ctx, 2, "delta")?;
    let len = steps(start, limit, step)
        .ok_or_else(|| ctx.problem(format!("no range leads from {start} to {limit} by {step}")))?;
    ctx.emit(fill::range(start, step, len), &[])
}

/// How many steps lead from `start` to before `limit`; `None` for a step of zero and the like.
fn steps(start: Scalar, limit: Scalar, step: Scalar) -> Option<usize> {
    if start.dtype() != limit.dtype() || start.dtype() != step.dtype() || step.is_zero() {
        return None;
    }
    if start.dtype().is_float() {
        let count = ((limit.as_f64() - start.as_f64()) / step.as_f64()).ceil();
        return (count < 9e15).then_some(count.max(0.0) as usize);
    }
    let [start, limit, step] = [start, limit, step].map(|s| i128::from(s.as_i64()));
    let distance = (limit - start) * step.signum();
    let step = step.abs();
    usize::try_from((distance.max(0) + step - 1) / step).ok()
}

fn one_hot(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (indices, values) = (ctx.input(0)?, ctx.input(2)?);
    let depth = extent(ctx, only_element(ctx, 1, "depth")?.as_i64(), "depth")?;
    let ty = ctx.ty(indices);
    let axis = ctx.axis(ctx.int("axis", -1), ty.rank() + 1)?;
    ctx.emit(fill::one_hot(&ty, &ctx.ty(values), axis, depth), &[indices, values])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_before_their_limit() {
        let ints = |a, b, c| {
            let [a, b, c] = [a, b, c].map(Scalar::index);
            steps(a, b, c)
        };
        assert_eq!(ints(0, 10, 3), Some(4));
        assert_eq!(ints(10, 0, -5), Some(2));
        assert_eq!(ints(0, 10, -1), Some(0));
        assert_eq!(ints(0, 10, 0), None);
        assert_eq!(ints(i64::MIN, i64::MAX, 1), Some(usize::MAX));
        let floats = |a, b, c| {
            let [a, b, c] = [a, b, c].map(|v| Scalar::from_f64(DType::F32, v));
            steps(a, b, c)
        };
        assert_eq!(floats(0.0, 1.0, 0.3), Some(4));
        assert_eq!(floats(1.0, 0.0, -0.5), Some(2));
        assert_eq!(floats(0.0, f64::INFINITY, 1.0), None);
        assert_eq!(floats(0.0, f64::NAN, 1.0), None);
    }
}
