//! Elementwise operators with numpy broadcasting.
//!
//! ```text
//! map([f32[2, 3], f32[3]], f32, |v| v[0] + v[1])
//! ->  compute(f32[2, 3], f32[3])
//!       map: f32[2, 3] = add(b0[v0, v1], b1[v1])
//! ```
//!
//! An axis of extent 1 is always read at index 0, also where the result has extent 1 there.

use ansc_runtime::DType;

use super::{OpError, sized};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::{BinOp, Expr, UnOp};
use crate::op::{ComputeOp, Kind};

/// The common shape of operands under numpy's rules (aligned at the last axis).
pub fn broadcast_shapes<'a>(
    shapes: impl IntoIterator<Item = &'a [usize]>,
) -> Result<Vec<usize>, OpError> {
    shapes.into_iter().try_fold(Vec::new(), |a, b| broadcast_two(&a, b))
}

fn broadcast_two(a: &[usize], b: &[usize]) -> Result<Vec<usize>, OpError> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            _ => Err(OpError::Broadcast { a: a.to_vec(), b: b.to_vec() }),
        })
        .collect()
}

/// Indices at which an operand of `shape` is read for a result of rank `rank`.
pub fn broadcast_indices(shape: &[usize], rank: usize) -> Vec<Expr> {
    let skip = rank - shape.len();
    let index = |(i, &extent)| if extent == 1 { Expr::int(0) } else { Expr::var(i + skip) };
    shape.iter().enumerate().map(index).collect()
}

/// Combines the elements of `inputs` at each point by `f`, whose result has type `out`.
pub fn map(
    inputs: &[TensorType],
    out: DType,
    f: impl FnOnce(Vec<Expr>) -> Expr,
) -> Result<ComputeOp, OpError> {
    let shape = broadcast_shapes(inputs.iter().map(|t| t.shape.as_slice()))?;
    map_to(inputs, TensorType::new(out, shape), f)
}

/// As [`map`], with a result that may be larger than all inputs (as in `Expand`).
pub fn map_to(
    inputs: &[TensorType],
    out: TensorType,
    f: impl FnOnce(Vec<Expr>) -> Expr,
) -> Result<ComputeOp, OpError> {
    let out = sized(out)?;
    for input in inputs {
        if broadcast_two(&input.shape, &out.shape)? != out.shape {
            return Err(OpError::Broadcast { a: input.shape.clone(), b: out.shape });
        }
    }
    let load =
        |(i, t): (usize, &TensorType)| Expr::load(i, broadcast_indices(&t.shape, out.rank()));
    let body = f(inputs.iter().enumerate().map(load).collect());
    let stage = Stage::map("map", out, body);
    Ok(ComputeOp::new(Kind::Map, Compute::single(inputs.to_vec(), stage)))
}

/// An operation on each element.
pub fn unary(op: UnOp, x: &TensorType) -> Result<ComputeOp, OpError> {
    map(std::slice::from_ref(x), op.result(x.dtype), |v| Expr::unary(op, v[0].clone()))
}

/// An operation on the elements of two tensors, which broadcast as in numpy.
pub fn binary(op: BinOp, a: &TensorType, b: &TensorType) -> Result<ComputeOp, OpError> {
    if a.dtype != b.dtype {
        return Err(OpError::DType {
            what: "the second operand",
            expected: a.dtype.to_string(),
            found: b.dtype,
        });
    }
    map(&[a.clone(), b.clone()], op.result(a.dtype), |v| {
        Expr::binary(op, v[0].clone(), v[1].clone())
    })
}

/// Each element converted to another type.
pub fn cast(x: &TensorType, to: DType) -> Result<ComputeOp, OpError> {
    map(std::slice::from_ref(x), to, |v| Expr::cast(x.dtype, to, v[0].clone()))
}
