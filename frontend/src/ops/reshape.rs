//! Operators that give the same elements another shape, and `Transpose`.
//!
//! Where the shape stays as it is, the operator's input is its output.

use ansc_graph::ops::shape;
use ansc_graph::{TensorType, ValueId};

use super::OpEntry;
use super::args::extents;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Reshape", 1, reshape),
    OpEntry::onnx("Flatten", 1, flatten),
    OpEntry::onnx("Squeeze", 1, squeeze),
    OpEntry::onnx("Unsqueeze", 1, unsqueeze),
    OpEntry::onnx("Transpose", 1, transpose),
];

/// `x` under `shape`.
pub(super) fn reshaped(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    shape: &[usize],
) -> Result<ValueId, Problem> {
    let ty = ctx.ty(x);
    if ctx.passes_on(x, ty.shape == shape) {
        return Ok(x);
    }
    ctx.emit1(shape::reshape(&ty, shape), &[x])
}

fn reshape(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let wanted = match ctx.ints("shape") {
        Some(shape) if ctx.opset() < 5 => shape,
        _ => ctx.known_i64s(1, "shape")?,
    };
    let copy_zeros = ctx.int("allowzero", 0) == 0;
    let ty = ctx.ty(x);
    let shape = resolve(&ty, &wanted, copy_zeros).ok_or_else(|| {
        ctx.problem(format!("a tensor of shape {:?} cannot have shape {wanted:?}", ty.shape))
    })?;
    Ok(vec![reshaped(ctx, x, &shape)?])
}

/// The extents that -1 (what is left) and 0 (as in the input, if `copy_zeros`) stand for.
fn resolve(x: &TensorType, wanted: &[i64], copy_zeros: bool) -> Option<Vec<usize>> {
    let mut open = None;
    let mut shape = Vec::with_capacity(wanted.len());
    for (axis, &extent) in wanted.iter().enumerate() {
        shape.push(match extent {
            0 if copy_zeros => *x.shape.get(axis)?,
            -1 if open.is_none() => {
                open = Some(axis);
                1
            }
            _ => usize::try_from(extent).ok()?,
        });
    }
    let rest = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    if let Some(axis) = open {
        shape[axis] = x.len().checked_div(rest)?;
    }
    (shape.iter().product::<usize>() == x.len()).then_some(shape)
}

fn flatten(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    // One past the last axis is legal here, and means the same as no axis behind.
    let axis = match ctx.int("axis", 1) {
        axis if axis == ty.rank() as i64 => ty.rank(),
        axis => ctx.axis(axis, ty.rank())?,
    };
    let (rows, columns) = ty.shape.split_at(axis);
    Ok(vec![reshaped(ctx, x, &[rows.iter().product(), columns.iter().product()])?])
}

fn squeeze(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let gone = match axes(ctx)? {
        None => ty.shape.iter().map(|&d| d == 1).collect(),
        Some(axes) => marked(ctx, &axes, ty.rank())?,
    };
    if let Some(axis) = (0..ty.rank()).find(|&a| gone[a] && ty.shape[a] != 1) {
        let reason = format!("axis {axis} of {ty} cannot be removed, since its extent is not 1");
        return Err(ctx.problem(reason));
    }
    let kept: Vec<usize> = (0..ty.rank()).filter(|&a| !gone[a]).map(|a| ty.shape[a]).collect();
    Ok(vec![reshaped(ctx, x, &kept)?])
}

fn unsqueeze(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let axes = axes(ctx)?.ok_or_else(|| ctx.problem("it has no axes"))?;
    let new = marked(ctx, &axes, ty.rank() + axes.len())?;
    let mut old = ty.shape.iter().copied();
    let shape: Option<Vec<usize>> =
        new.iter().map(|&is_new| if is_new { Some(1) } else { old.next() }).collect();
    let shape = shape.ok_or_else(|| ctx.problem(format!("axes {axes:?} repeat")))?;
    Ok(vec![reshaped(ctx, x, &shape)?])
}

/// The axes, from where the opset keeps them.
fn axes(ctx: &NodeCtx<'_>) -> Result<Option<Vec<i64>>, Problem> {
    if ctx.opset() < 13 {
        return Ok(ctx.ints("axes"));
    }
    ctx.optional(1).map(|_| ctx.known_i64s(1, "axes")).transpose()
}

/// Which of `rank` axes are listed.
fn marked(ctx: &NodeCtx<'_>, axes: &[i64], rank: usize) -> Result<Vec<bool>, Problem> {
    let mut marks = vec![false; rank];
    for &axis in axes {
        marks[ctx.axis(axis, rank)?] = true;
    }
    Ok(marks)
}

fn transpose(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let perm: Vec<usize> = match ctx.ints("perm") {
        None => (0..ty.rank()).rev().collect(),
        Some(perm) => extents(ctx, &perm, "permutation")?,
    };
    if perm.iter().copied().eq(0..ty.rank()) {
        return Ok(vec![x]);
    }
    ctx.emit(shape::transpose(&ty, &perm), &[x])
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;

    use super::*;

    #[test]
    fn shapes_resolve_or_are_refused() {
        let x = TensorType::new(DType::F32, [2, 3, 4]);
        let empty = TensorType::new(DType::F32, [0, 3, 4]);
        let shape = |x, wanted: &[i64]| resolve(x, wanted, true);
        assert_eq!(shape(&x, &[0, -1]), Some(vec![2, 12]));
        assert_eq!(shape(&x, &[4, 0, -1]), Some(vec![4, 3, 2]));
        assert_eq!(shape(&x, &[24]), Some(vec![24]));
        for bad in [&[-1, -1][..], &[5, -1], &[23], &[-2, 12], &[1, 1, 1, 0], &[i64::MAX, 9]] {
            assert_eq!(shape(&x, bad), None, "{bad:?}");
        }
        assert_eq!(shape(&empty, &[3, 4, -1]), Some(vec![3, 4, 0]));
        assert_eq!(shape(&empty, &[0, -1]), None);
        assert_eq!(resolve(&empty, &[3, 0, 4], false), Some(vec![3, 0, 4]));
        assert_eq!(resolve(&empty, &[3, 1, 4], false), None);
    }
}
