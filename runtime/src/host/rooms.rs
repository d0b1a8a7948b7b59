//! `Spread` and `Shrink`: tensors whose size only the data decides, on the way to kernels, which
//! know the most that there may be, and back.
//!
//! ```text
//! [a b c]    -- spread, shape [5], count 0 -->    [a b c . .], 3
//! [a b c . .], 3    -- shrink, extents [s0] -->    [a b c]
//! ```
//!
//! No operators of ONNX.

use super::{Count, HostError, zeros};
use crate::boxes::{self, Corner};
use crate::dtype::DType;
use crate::extent::Extent;
use crate::tensor::Tensor;

pub(crate) const SPREAD: &str = "Spread";
pub(crate) const SHRINK: &str = "Shrink";

/// The extent of `x` along the axis that is counted, if one is; an error, if there is no room.
pub(crate) fn counted(
    x: &[usize],
    room: &[usize],
    count: Option<Count>,
) -> Result<Option<i64>, HostError> {
    let fits = x.len() == room.len() && x.iter().zip(room).all(|(own, most)| own <= most);
    if !fits {
        return Err(HostError::Shape { op: SPREAD, what: "x", shape: x.to_vec() });
    }
    let extent = |Count { axis, least, .. }| {
        let found = *x.get(axis).ok_or(HostError::Axis { op: SPREAD, axis, rank: x.len() })?;
        if found < least {
            return Err(HostError::TooFew { least, found });
        }
        // No tensor has more elements.
        Ok(i64::try_from(found).unwrap_or(i64::MAX))
    };
    count.map(extent).transpose()
}

/// The shape of the part of a tensor of the shape `x` that these extents tell.
pub(crate) fn part(
    x: &[usize],
    extents: &[Extent],
    sizes: &[i64],
) -> Result<Vec<usize>, HostError> {
    let bad = || HostError::Shape { op: SHRINK, what: "x", shape: x.to_vec() };
    let number = |extent: &Extent| usize::try_from(extent.at(sizes)?).ok();
    let shape: Vec<usize> = extents.iter().map(number).collect::<Option<_>>().ok_or_else(bad)?;
    let fits = shape.len() == x.len() && shape.iter().zip(x).all(|(own, most)| own <= most);
    if fits { Ok(shape) } else { Err(bad()) }
}

pub(super) fn spread(
    x: &Tensor,
    shape: &[usize],
    count: Option<Count>,
) -> Result<Vec<Tensor>, HostError> {
    let count = counted(x.shape(), shape, count)?;
    let mut whole = zeros(SPREAD, x.dtype(), shape)?;
    let corner = Corner { shape: x.shape(), room: shape, size: x.dtype().size() };
    boxes::spread(x.bytes(), corner, whole.bytes_mut(), &|n, body| body(0..n));
    let count = count.map(Tensor::scalar);
    Ok(std::iter::once(whole).chain(count).collect())
}

/// `sizes` are what the extents are of.
pub(super) fn shrink(
    x: &Tensor,
    extents: &[Extent],
    sizes: &[&Tensor],
) -> Result<Tensor, HostError> {
    if let Some(other) = sizes.iter().find(|t| t.dtype() != DType::I64 || t.len() != 1) {
        return Err(HostError::Type { op: SHRINK, what: "sizes", dtype: other.dtype() });
    }
    let sizes: Vec<i64> = sizes.iter().map(|size| size.as_slice::<i64>()[0]).collect();
    let shape = part(x.shape(), extents, &sizes)?;
    let mut dense = zeros(SHRINK, x.dtype(), &shape)?;
    let corner = Corner { shape: &shape, room: x.shape(), size: x.dtype().size() };
    boxes::gather(x.bytes(), corner, dense.bytes_mut(), &|n, body| body(0..n));
    Ok(dense)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(axis: usize) -> Count {
        Count { axis, number: 0, least: 0 }
    }

    #[test]
    fn there_and_back() {
        let x = Tensor::from_slice(&[2, 2], &[1f32, 2.0, 3.0, 4.0]);
        let [whole, size] = spread(&x, &[2, 3], Some(count(1))).unwrap().try_into().unwrap();
        assert_eq!(whole.as_slice::<f32>(), [1.0, 2.0, 0.0, 3.0, 4.0, 0.0]);
        assert_eq!(size.as_slice::<i64>(), [2]);
        let extents = [Extent::Constant(2), Extent::Size(0)];
        assert_eq!(shrink(&whole, &extents, &[&size]).unwrap(), x);
        let nothing = Tensor::scalar(0_i64);
        assert_eq!(shrink(&whole, &extents, &[&nothing]).unwrap().shape(), [2, 0]);
        assert_eq!(spread(&x, &[2, 3], None).unwrap().len(), 1);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let x = Tensor::from_slice(&[3], &[1_i32, 2, 3]);
        let shape = |op, what| HostError::Shape { op, what, shape: vec![3] };
        assert_eq!(spread(&x, &[2], None), Err(shape(SPREAD, "x")));
        assert_eq!(spread(&x, &[3, 1], None), Err(shape(SPREAD, "x")));
        let axis = HostError::Axis { op: SPREAD, axis: 1, rank: 1 };
        assert_eq!(spread(&x, &[3], Some(count(1))), Err(axis));
        let four = Some(Count { least: 4, ..count(0) });
        assert_eq!(spread(&x, &[3], four), Err(HostError::TooFew { least: 4, found: 3 }));
        for size in [4_i64, -1] {
            let size = Tensor::scalar(size);
            let all = shrink(&x, &[Extent::Size(0)], &[&size]);
            assert_eq!(all, Err(shape(SHRINK, "x")));
        }
        assert_eq!(shrink(&x, &[Extent::Size(0)], &[]), Err(shape(SHRINK, "x")));
        let float = HostError::Type { op: SHRINK, what: "sizes", dtype: DType::I32 };
        assert_eq!(shrink(&x, &[Extent::Size(0)], &[&x]), Err(float));
    }
}
