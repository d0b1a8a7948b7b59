//! Matrix product with numpy's broadcasting of the batch axes.
//!
//! ```text
//! matmul(f32[4, 8], f32[8, 6])  ->  matmul: f32[4, 6] = sum[8] mul(b0[v0, v2], b1[v2, v1])
//! ```
//!
//! One-dimensional operands are the importer's: it reshapes them around this operator.

use super::map::{broadcast_indices, broadcast_shapes};
use super::{OpError, sized, sum_types};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};

/// `a[..batch, m, k]` times `b[..batch, k, n]`.
pub fn matmul(a: &TensorType, b: &TensorType) -> Result<ComputeOp, OpError> {
    let (batch_a, [m, k]) = matrix(a, "the first operand of a matrix product")?;
    let (batch_b, [k_b, n]) = matrix(b, "the second operand of a matrix product")?;
    if k != k_b {
        return Err(OpError::Invalid(format!(
            "a matrix product of {:?} and {:?} has inner extents {k} and {k_b}",
            a.shape, b.shape
        )));
    }
    let (acc, out) = sum_types(a.dtype, b.dtype)?;
    let mut shape = broadcast_shapes([batch_a, batch_b])?;
    let batch = shape.len();
    shape.extend([m, n]);
    let [row, column, inner] = [batch, batch + 1, batch + 2].map(Expr::var);
    let load = |slot, ty: &TensorType, batch_shape, i: &Expr, j: &Expr| {
        let mut indices = broadcast_indices(batch_shape, batch);
        indices.extend([i.clone(), j.clone()]);
        Expr::cast(ty.dtype, acc, Expr::load(slot, indices))
    };
    let body = load(0, a, batch_a, &row, &inner) * load(1, b, batch_b, &inner, &column);
    let ty = sized(TensorType::new(acc, shape))?;
    let stage = Stage::reduction("matmul", ty, Combiner::Sum, vec![k], body);
    let expr = Compute::single(vec![a.clone(), b.clone()], stage);
    Ok(ComputeOp::new(Kind::MatMul, super::cast_result(expr, out)))
}

fn matrix<'a>(
    ty: &'a TensorType,
    what: &'static str,
) -> Result<(&'a [usize], [usize; 2]), OpError> {
    match ty.shape.as_slice() {
        [batch @ .., rows, columns] => Ok((batch, [*rows, *columns])),
        _ => Err(OpError::Rank { what, expected: "2 or more".into(), found: ty.shape.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;

    use super::*;

    fn product(a: &[usize], b: &[usize]) -> Result<Vec<usize>, OpError> {
        let ty = |s: &[usize]| TensorType::new(DType::F32, s);
        Ok(matmul(&ty(a), &ty(b))?.expr.output_types().remove(0).shape)
    }

    #[test]
    fn shapes() {
        assert_eq!(product(&[4, 8], &[8, 6]).unwrap(), [4, 6]);
        assert_eq!(product(&[5, 1, 4, 8], &[3, 8, 6]).unwrap(), [5, 3, 4, 6]);
        assert!(product(&[4, 8], &[7, 6]).is_err());
        assert!(product(&[8], &[8, 6]).is_err());
        assert!(product(&[2, 4, 8], &[3, 8, 6]).is_err());
    }
}
