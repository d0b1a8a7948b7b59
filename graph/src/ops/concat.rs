//! `Concat`: tensors one after another along an axis.
//!
//! ```text
//! concat([f32[2, 3], f32[2, 4]], 1)
//! ->  concat: f32[2, 7] = select(lt(v1, 3), b0[v0, v1], b1[v0, v1 - 3])
//! ```
//!
//! The conditions stay at the top, in this form: lowering splits the loop at them.

use super::index::{check_axis, own, shifted};
use super::{OpError, sized};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};

/// All inputs one after another along an axis.
pub fn concat(inputs: &[TensorType], axis: usize) -> Result<ComputeOp, OpError> {
    let first =
        inputs.first().ok_or_else(|| OpError::Invalid("there is nothing to concatenate".into()))?;
    check_axis(axis, first.rank())?;
    for other in &inputs[1..] {
        check_alike(first, other, axis)?;
    }
    let mut shape = first.shape.clone();
    shape[axis] = inputs
        .iter()
        .try_fold(0usize, |sum, t| sum.checked_add(t.shape[axis]))
        .ok_or_else(|| OpError::TooLarge(first.clone()))?;
    let out = sized(TensorType::new(first.dtype, shape))?;
    let stage = Stage::map("concat", out, body(inputs, axis));
    Ok(ComputeOp::new(Kind::Concat { axis }, Compute::single(inputs.to_vec(), stage)))
}

/// Inputs that have elements, in order; the last one needs no condition.
fn body(inputs: &[TensorType], axis: usize) -> Expr {
    let mut begin = 0i64;
    let mut pieces = Vec::new();
    for (i, input) in inputs.iter().enumerate().filter(|(_, t)| t.shape[axis] > 0) {
        let mut indices = own(input.rank());
        indices[axis] = shifted(Expr::var(axis), -begin);
        begin += input.shape[axis] as i64;
        pieces.push((begin, Expr::load(i, indices)));
    }
    let chain = pieces.into_iter().rev().fold(None, |rest, (end, piece)| match rest {
        None => Some(piece),
        Some(rest) => Some(Expr::select(Expr::var(axis).lt(Expr::int(end)), piece, rest)),
    });
    chain.unwrap_or_else(|| Expr::load(0, own(inputs[0].rank())))
}

fn check_alike(a: &TensorType, b: &TensorType, axis: usize) -> Result<(), OpError> {
    if a.dtype != b.dtype {
        let expected = a.dtype.to_string();
        return Err(OpError::DType { what: "a concatenated tensor", expected, found: b.dtype });
    }
    let same = |(i, (x, y)): (usize, (&usize, &usize))| i == axis || x == y;
    if a.rank() != b.rank() || !a.shape.iter().zip(&b.shape).enumerate().all(same) {
        return Err(OpError::Invalid(format!(
            "shapes {:?} and {:?} do not fit together along axis {axis}",
            a.shape, b.shape
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;

    use super::*;

    fn f32s(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    #[test]
    fn empty_pieces_need_no_condition() {
        let op = concat(&[f32s(&[2, 0]), f32s(&[2, 3]), f32s(&[2, 0])], 1).unwrap();
        assert_eq!(op.expr.stages[0].body, Expr::load(1, own(2)));
        let two = concat(&[f32s(&[1]), f32s(&[2])], 0).unwrap();
        let v = Expr::var(0);
        let second = Expr::load(1, vec![v.clone() + Expr::int(-1)]);
        let chain = Expr::select(v.clone().lt(Expr::int(1)), Expr::load(0, vec![v]), second);
        assert_eq!(two.expr.stages[0].body, chain);
    }

    #[test]
    fn pieces_must_fit() {
        assert!(concat(&[], 0).is_err());
        assert!(concat(&[f32s(&[2])], 1).is_err());
        assert!(concat(&[f32s(&[2, 3]), f32s(&[3, 3])], 1).is_err());
        assert!(concat(&[f32s(&[2]), TensorType::new(DType::I32, [2])], 0).is_err());
        assert!(concat(&[f32s(&[usize::MAX]), f32s(&[1])], 0).is_err());
    }
}
