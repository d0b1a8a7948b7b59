//! Constants with permuted axes.
//!
//! ```text
//! [[1, 2, 3],     axes 1, 0     [[1, 4],
//!  [4, 5, 6]]        ->          [2, 5],
//!                                [3, 6]]
//! ```
//!
//! Weights are large, and neither side of a transpose is read or written in order: so squares of
//! elements are moved that fill cache lines on both sides, and parts of the result side by side.

use ansc_runtime::Tensor;
use ansc_runtime::tensor::TensorError;
use rayon::prelude::*;

/// Elements of a side of a square: a cache line of the smallest common type, four of the largest.
const SIDE: usize = 32;

/// The tensor whose axis `i` is axis `perm[i]` of `x`.
pub(crate) fn transposed(x: &Tensor, perm: &[usize]) -> Result<Tensor, TensorError> {
    let shape: Vec<usize> = perm.iter().map(|&p| x.shape()[p]).collect();
    let mut result = Tensor::try_zeros(x.dtype(), &shape)?;
    if !result.is_empty() {
        let axes = joined(x.shape(), perm);
        match x.dtype().size() {
            1 => permute::<1>(x, &axes, &mut result),
            2 => permute::<2>(x, &axes, &mut result),
            4 => permute::<4>(x, &axes, &mut result),
            8 => permute::<8>(x, &axes, &mut result),
            size => unreachable!("no element has {size} bytes"),
        }
    }
    Ok(result)
}

/// An axis of the result: its extent, and the distance of its elements in the source.
#[derive(Clone, Copy)]
struct Axis {
    extent: usize,
    step: usize,
}

/// The axes of the result. Those that lie side by side in the source too are one.
fn joined(shape: &[usize], perm: &[usize]) -> Vec<Axis> {
    let steps: Vec<usize> = (0..shape.len()).map(|i| shape[i + 1..].iter().product()).collect();
    let mut axes: Vec<Axis> = vec![];
    for (extent, step) in perm.iter().map(|&p| (shape[p], steps[p])).filter(|(e, _)| *e > 1) {
        match axes.last_mut() {
            Some(last) if last.step == extent * step => {
                *last = Axis { extent: last.extent * extent, step };
            }
            _ => axes.push(Axis { extent, step }),
        }
    }
    axes
}

/// Where the element at `position` of the space of `axes` lies in the source.
fn offset(axes: &[Axis], mut position: usize) -> usize {
    let mut offset = 0;
    for axis in axes.iter().rev() {
        offset += position % axis.extent * axis.step;
        position /= axis.extent;
    }
    offset
}

fn size(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.extent).product()
}

/// Cuts the axes at the one that is contiguous in the source: `before`, that one, `after` and the
/// last one. Each part of the result is a few elements of that axis, with all that is after it.
fn permute<const BYTES: usize>(x: &Tensor, axes: &[Axis], result: &mut Tensor) {
    let (from, _) = x.bytes().as_chunks::<BYTES>();
    let (to, _) = result.bytes_mut().as_chunks_mut::<BYTES>();
    let Some(unit) = axes.iter().position(|axis| axis.step == 1) else {
        // A single element has no axes.
        to.copy_from_slice(from);
        return;
    };
    let (before, rest) = axes.split_at(unit);
    let row = size(&rest[1..]);
    let side = if rest.len() == 1 { rest[0].extent } else { SIDE };
    let slabs = to.par_chunks_mut(rest[0].extent * row).enumerate();
    let parts = slabs.flat_map(|(slab, to)| {
        let parts = to.par_chunks_mut(side * row).enumerate();
        parts.map(move |(part, to)| (offset(before, slab) + part * side, to))
    });
    parts.for_each(|(first, to)| match rest[1..].split_last() {
        None => to.copy_from_slice(&from[first..][..to.len()]),
        Some((last, middle)) => squares(from, first, middle, *last, to),
    });
}

/// Fills `to`, whose axes are a few elements that are contiguous in the source, `middle`, `last`.
fn squares<E: Copy>(from: &[E], first: usize, middle: &[Axis], last: Axis, to: &mut [E]) {
    let row = size(middle) * last.extent;
    for at in 0..size(middle) {
        let first = first + offset(middle, at);
        for start in (0..last.extent).step_by(SIDE) {
            let columns = start..last.extent.min(start + SIDE);
            for (i, to) in to.chunks_mut(row).enumerate() {
                let to = &mut to[at * last.extent..][columns.clone()];
                let source = from[first + i + start * last.step..].iter().step_by(last.step);
                to.iter_mut().zip(source).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Element;
    use proptest::prelude::*;

    use super::*;

    /// Element by element.
    fn expected<T: Element>(x: &Tensor, perm: &[usize]) -> Vec<T> {
        let shape: Vec<usize> = perm.iter().map(|&p| x.shape()[p]).collect();
        let count = shape.iter().product();
        let element = |mut position: usize| {
            let mut index = vec![0; perm.len()];
            for (i, &extent) in shape.iter().enumerate().rev() {
                index[perm[i]] = position % extent;
                position /= extent;
            }
            let at = index.iter().zip(x.shape()).fold(0, |at, (i, extent)| at * extent + i);
            x.as_slice::<T>()[at]
        };
        (0..count).map(element).collect()
    }

    fn check<T: Element + PartialEq + std::fmt::Debug>(
        shape: &[usize],
        perm: &[usize],
        value: impl Fn(usize) -> T,
    ) {
        let count = shape.iter().product();
        let x = Tensor::from_slice(shape, &(0..count).map(value).collect::<Vec<T>>());
        let result = transposed(&x, perm).unwrap();
        assert_eq!(result.as_slice::<T>(), expected::<T>(&x, perm));
    }

    proptest! {
        #[test]
        fn elements_go_where_their_indices_go(
            (shape, perm) in prop::collection::vec(1..40usize, 0..4).prop_flat_map(|shape| {
                let perm: Vec<usize> = (0..shape.len()).collect();
                (Just(shape), Just(perm).prop_shuffle())
            })
        ) {
            check(&shape, &perm, |i| i as u8);
            check(&shape, &perm, |i| i as u16);
            check(&shape, &perm, |i| i as f32);
            check(&shape, &perm, |i| i as i64);
        }
    }

    #[test]
    fn tensors_without_elements_have_the_permuted_shape() {
        let x = Tensor::from_slice::<f32>(&[3, 0, 2], &[]);
        assert_eq!(transposed(&x, &[2, 0, 1]).unwrap().shape(), [2, 3, 0]);
    }
}
