//! `Col2Im`: columns of blocks put back into an image; where blocks overlap, their elements add up.
//!
//! A pixel is the sum, over positions in the block, of the column that has the pixel at that
//! position, if there is one: a reduction without any scattering.

use ansc_runtime::DType;

use super::{OpError, cast_result, sized};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BinOp, Expr};
use crate::op::{ComputeOp, Kind};
use crate::scalar::Scalar;

/// One value for each spatial axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Col2ImAttrs {
    /// Extents of the image.
    pub image: Vec<usize>,
    /// Extents of a block.
    pub block: Vec<usize>,
    /// Pixels between neighbouring blocks.
    pub strides: Vec<usize>,
    /// Pixels between neighbouring elements of a block.
    pub dilations: Vec<usize>,
    /// Pixels around the image that blocks reach into, before its first pixel.
    pub pads_begin: Vec<usize>,
    /// The same after its last pixel.
    pub pads_end: Vec<usize>,
}

/// `x` is `[n, c * block.., columns]`; the result `[n, c, image..]`.
pub fn col2im(x: &TensorType, attrs: &Col2ImAttrs) -> Result<ComputeOp, OpError> {
    let invalid = || {
        OpError::Invalid(format!(
            "columns of shape {:?} do not make an image of shape {:?} from blocks of {:?}",
            x.shape, attrs.image, attrs.block
        ))
    };
    let &[n, rows, columns] = x.shape.as_slice() else { return Err(invalid()) };
    let counts = positions(attrs).ok_or_else(invalid)?;
    let area = product(&attrs.block).filter(|&a| a > 0).ok_or_else(invalid)?;
    if x.dtype == DType::Bool || rows % area != 0 || product(&counts) != Some(columns) {
        return Err(invalid());
    }
    let shape = [&[n, rows / area], attrs.image.as_slice()].concat();
    let out = sized(TensorType::new(x.dtype.accumulator(), shape))?;
    let body = Expr::cast(x.dtype, out.dtype, body(x, attrs, &counts, area));
    let stage = Stage::reduction("sum", out, Combiner::Sum, attrs.block.clone(), body);
    let expr = cast_result(Compute::single(vec![x.clone()], stage), x.dtype);
    Ok(ComputeOp::new(Kind::Other("Col2Im".into()), expr))
}

/// How often a block fits along each axis.
fn positions(attrs: &Col2ImAttrs) -> Option<Vec<usize>> {
    let rank = attrs.image.len();
    let lists =
        [&attrs.block, &attrs.strides, &attrs.dilations, &attrs.pads_begin, &attrs.pads_end];
    if lists.iter().any(|list| list.len() != rank) {
        return None;
    }
    let count = |i: usize| {
        let padded =
            attrs.image[i].checked_add(attrs.pads_begin[i])?.checked_add(attrs.pads_end[i])?;
        let reach = attrs.block[i].checked_sub(1)?.checked_mul(attrs.dilations[i])?;
        let room = padded.checked_sub(reach)?.checked_sub(1)?;
        Some(room.checked_div(attrs.strides[i])? + 1)
    };
    (0..rank).map(count).collect()
}

fn product(extents: &[usize]) -> Option<usize> {
    extents.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

fn body(x: &TensorType, attrs: &Col2ImAttrs, counts: &[usize], area: usize) -> Expr {
    let rank = attrs.image.len();
    let (mut inside, mut column, mut within) = (Vec::new(), Expr::int(0), Expr::int(0));
    for (axis, &count) in counts.iter().enumerate() {
        let step = Expr::var(2 + rank + axis);
        let from = Expr::var(2 + axis) + Expr::index(attrs.pads_begin[axis])
            - step.clone() * Expr::index(attrs.dilations[axis]);
        let stride = attrs.strides[axis] as i64;
        let at = if stride == 1 { from.clone() } else { from.clone().floor_div(stride) };
        inside.push(Expr::int(0).le(from.clone()));
        inside.push(at.clone().lt(Expr::index(count)));
        if stride != 1 {
            inside.push(from.floor_mod(stride).eq(Expr::int(0)));
        }
        column = column * Expr::index(count) + at;
        within = within * Expr::index(attrs.block[axis]) + step;
    }
    let row = Expr::var(1) * Expr::index(area) + within;
    let element = Expr::load(0, vec![Expr::var(0), row, column]);
    let zero = Expr::Const(Scalar::zero(x.dtype));
    let all = inside.into_iter().reduce(|a, b| Expr::binary(BinOp::And, a, b));
    all.map_or(element.clone(), |all| Expr::select(all, element, zero))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_must_match_the_image() {
        let attrs = Col2ImAttrs {
            image: vec![5, 5],
            block: vec![1, 5],
            strides: vec![1, 1],
            dilations: vec![1, 1],
            pads_begin: vec![0, 0],
            pads_end: vec![0, 0],
        };
        let op = col2im(&TensorType::new(DType::F32, [1, 5, 5]), &attrs).unwrap();
        assert_eq!(op.expr.output_types()[0].shape, [1, 1, 5, 5]);
        assert!(col2im(&TensorType::new(DType::F32, [1, 5, 6]), &attrs).is_err());
        assert!(col2im(&TensorType::new(DType::F32, [1, 4, 5]), &attrs).is_err());
        let bad = Col2ImAttrs { strides: vec![0, 1], ..attrs.clone() };
        assert!(col2im(&TensorType::new(DType::F32, [1, 5, 5]), &bad).is_err());
        let short = Col2ImAttrs { strides: vec![1], ..attrs };
        assert!(col2im(&TensorType::new(DType::F32, [1, 5, 5]), &short).is_err());
    }
}
