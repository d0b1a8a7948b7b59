//! Operators that only move elements: reshape and transpose.
//!
//! ```text
//! reshape(f32[4, 6], [4, 2, 3])  ->  reshape: f32[4, 2, 3] = b0[v0, v1 * 3 + v2]
//! transpose(f32[2, 3], [1, 0])   ->  transpose: f32[3, 2] = b0[v1, v0]
//! ```

use std::ops::Range;

use super::{OpError, sized};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::flat::{flattened, spread};
use crate::op::{ComputeOp, Kind};

/// The elements of `x` in row-major order under `shape`.
pub fn reshape(x: &TensorType, shape: &[usize]) -> Result<ComputeOp, OpError> {
    let out = sized(TensorType::new(x.dtype, shape))?;
    if out.len() != x.len() {
        return Err(OpError::Invalid(format!(
            "{} elements of shape {:?} cannot have shape {shape:?}",
            x.len(),
            x.shape
        )));
    }
    let body = Expr::load(0, reshape_indices(&x.shape, shape));
    let stage = Stage::map("reshape", out, body);
    Ok(ComputeOp::new(Kind::Reshape, Compute::single(vec![x.clone()], stage)))
}

/// Indices into `from` of the element at `v0, v1, ..` of `to`, which has as many elements.
///
/// Runs of axes with equal products are treated on their own, so that an axis that the reshape
/// leaves alone is indexed by a plain variable.
pub fn reshape_indices(from: &[usize], to: &[usize]) -> Vec<Expr> {
    let mut indices = vec![Expr::int(0); from.len()];
    for (left, right) in reshape_groups(from, to) {
        let axes: Vec<Expr> = right.clone().map(Expr::var).collect();
        let flat = flattened(&axes, &to[right]);
        indices[left.clone()].clone_from_slice(&spread(&flat, &from[left]));
    }
    indices
}

/// The smallest runs of axes of `from` and of `to` that have as many elements as each other. Axes
/// of extent 1 at the end may be in no run; there is no run at all if there are no elements.
pub(crate) fn reshape_groups(from: &[usize], to: &[usize]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut groups = Vec::new();
    if from.contains(&0) {
        return groups;
    }
    let (mut i, mut o) = (0, 0);
    while i < from.len() && o < to.len() {
        let (i0, o0) = (i, o);
        let (mut left, mut right) = (from[i], to[o]);
        (i, o) = (i + 1, o + 1);
        while left != right {
            if left < right {
                left *= from[i];
                i += 1;
            } else {
                right *= to[o];
                o += 1;
            }
        }
        groups.push((i0..i, o0..o));
    }
    groups
}

/// Output axis `i` is input axis `perm[i]`.
pub fn transpose(x: &TensorType, perm: &[usize]) -> Result<ComputeOp, OpError> {
    let mut indices = vec![None; x.rank()];
    for (i, &axis) in perm.iter().enumerate() {
        let slot = indices.get_mut(axis).ok_or(OpError::Axis { axis, rank: x.rank() })?;
        *slot = Some(Expr::var(i));
    }
    let indices: Option<Vec<Expr>> = indices.into_iter().collect();
    let Some(indices) = indices.filter(|all| all.len() == perm.len()) else {
        return Err(OpError::Invalid(format!(
            "{perm:?} is not a permutation of the axes of shape {:?}",
            x.shape
        )));
    };
    let out = TensorType::new(x.dtype, perm.iter().map(|&p| x.shape[p]).collect::<Vec<_>>());
    let stage = Stage::map("transpose", out, Expr::load(0, indices));
    Ok(ComputeOp::new(Kind::Transpose(perm.to_vec()), Compute::single(vec![x.clone()], stage)))
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;

    use super::*;

    fn body(op: &ComputeOp) -> &Expr {
        &op.expr.stages[0].body
    }

    #[test]
    fn a_reshape_keeps_untouched_axes_plain() {
        let x = TensorType::new(DType::F32, [4, 6, 1]);
        let split = reshape(&x, &[4, 2, 3]).unwrap();
        let inner = Expr::var(1) * Expr::int(3) + Expr::var(2);
        assert_eq!(body(&split), &Expr::load(0, vec![Expr::var(0), inner, Expr::int(0)]));
        let merged = reshape(&TensorType::new(DType::F32, [2, 3]), &[6]).unwrap();
        let v = Expr::var(0);
        assert_eq!(body(&merged), &Expr::load(0, vec![v.clone().floor_div(3), v.floor_mod(3)]));
        assert!(reshape(&x, &[5, 5]).is_err());
    }

    #[test]
    fn a_permutation_is_checked() {
        let x = TensorType::new(DType::F32, [2, 3]);
        let t = transpose(&x, &[1, 0]).unwrap();
        assert_eq!(t.expr.output_types()[0].shape, [3, 2]);
        for bad in [&[0, 2][..], &[0, 0], &[0], &[0, 1, 0]] {
            assert!(transpose(&x, bad).is_err(), "{bad:?}");
        }
    }
}
