//! Tensors made from little or nothing: one value, a ramp, a diagonal, one-hot rows.
//!
//! ```text
//! eye(f32, 2, 3, 1)  ->  eye: f32[2, 3] = select(eq(v1, v0 + 1), 1, 0)
//! ```

use ansc_runtime::DType;

use super::index::{shifted, wrapped};
use super::{OpError, sized};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};
use crate::scalar::Scalar;

fn made(kind: &str, inputs: &[TensorType], out: TensorType, body: Expr) -> ComputeOp {
    let stage = Stage::map("fill", out, body);
    ComputeOp::new(Kind::Other(kind.into()), Compute::single(inputs.to_vec(), stage))
}

/// `value` everywhere.
pub fn constant(value: Scalar, shape: &[usize]) -> Result<ComputeOp, OpError> {
    let out = sized(TensorType::new(value.dtype(), shape))?;
    Ok(made("ConstantOfShape", &[], out, Expr::Const(value)))
}

/// `start, start + step, ..`, `len` elements. Floats are computed as `start + i * step`.
pub fn range(start: Scalar, step: Scalar, len: usize) -> Result<ComputeOp, OpError> {
    let dtype = start.dtype();
    if step.dtype() != dtype || dtype == DType::Bool {
        let expected = if dtype == DType::Bool { "a number".into() } else { dtype.to_string() };
        return Err(OpError::DType { what: "the step", expected, found: step.dtype() });
    }
    let out = sized(TensorType::new(dtype, [len]))?;
    let i = Expr::cast(DType::I64, dtype, Expr::var(0));
    Ok(made("Range", &[], out, i * Expr::Const(step) + Expr::Const(start)))
}

/// One on the diagonal `column == row + k`, zero elsewhere.
pub fn eye(dtype: DType, rows: usize, columns: usize, k: i64) -> Result<ComputeOp, OpError> {
    let out = sized(TensorType::new(dtype, [rows, columns]))?;
    let diagonal = Expr::var(1).eq(shifted(Expr::var(0), k));
    let [one, zero] = [Scalar::one(dtype), Scalar::zero(dtype)].map(Expr::Const);
    Ok(made("EyeLike", &[], out, Expr::select(diagonal, one, zero)))
}

/// Inputs: indices and `[off, on]` values. The new axis of extent `depth` stands at `axis`;
/// negative indices count from `depth`, and one that is out of range gives `off` throughout.
pub fn one_hot(
    indices: &TensorType,
    values: &TensorType,
    axis: usize,
    depth: usize,
) -> Result<ComputeOp, OpError> {
    if axis > indices.rank() {
        return Err(OpError::Axis { axis, rank: indices.rank() + 1 });
    }
    if values.shape != [2] {
        return Err(OpError::Invalid("a one-hot tensor needs two values: off and on".into()));
    }
    let mut shape = indices.shape.clone();
    shape.insert(axis, depth);
    let out = sized(TensorType::new(values.dtype, shape))?;
    let at = (0..out.rank()).filter(|&a| a != axis).map(Expr::var).collect();
    let index = wrapped(Expr::cast(indices.dtype, DType::I64, Expr::load(0, at)), depth);
    let value = |i| Expr::load(1, vec![Expr::int(i)]);
    let body = Expr::select(Expr::var(axis).eq(index), value(1), value(0));
    Ok(made("OneHot", &[indices.clone(), values.clone()], out, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_that_cannot_exist() {
        let one = Scalar::one(DType::F32);
        assert!(constant(one, &[usize::MAX, 2]).is_err());
        assert!(constant(one, &[1 << 40]).is_ok());
        assert!(range(one, Scalar::one(DType::I64), 3).is_err());
        assert!(range(Scalar::bool(true), Scalar::bool(true), 3).is_err());
        assert!(eye(DType::F32, usize::MAX, 2, 0).is_err());
    }

    #[test]
    fn one_hot_inserts_an_axis() {
        let indices = TensorType::new(DType::I64, [2, 3]);
        let values = TensorType::new(DType::F32, [2]);
        let op = one_hot(&indices, &values, 1, 10).unwrap();
        assert_eq!(op.expr.output_types()[0].shape, [2, 10, 3]);
        assert!(one_hot(&indices, &values, 3, 10).is_err());
        assert!(one_hot(&indices, &indices, 0, 10).is_err());
    }
}
