//! Indices that are data, checked before generated code reads them: that code clamps what no axis
//! has, so that it is safe, but what it then computes is not what the model says.
//!
//! In: integers, and the extents of the axes that they are indices of. Out: the first that is out
//! of range.
//!
//! ```text
//! [[0, 7], [-1, 2]], extents [5]  ->  7 at [0, 1]
//! [[0, 7], [4, 2]], extents [5, 8]  ->  none: the last axis holds an index of each axis
//! ```

use super::{HostError, indices_of};
use crate::dtype::DType;
use crate::tensor::Tensor;

/// Elements that are looked at together, about.
const CHUNK: usize = 4096;

/// An index out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outside {
    /// Where it is among the elements, in row-major order.
    pub(crate) position: usize,
    pub(crate) index: i64,
    pub(crate) extent: usize,
}

pub(super) fn run(op: &'static str, x: &Tensor, extents: &[usize]) -> Result<(), HostError> {
    indices_of(op, x)?;
    if !fits(x.dtype(), x.shape(), extents) {
        return Err(HostError::Shape { op, what: "indices", shape: x.shape().to_vec() });
    }
    match first_outside(x.dtype(), x.bytes(), extents) {
        None => Ok(()),
        Some(Outside { position, index, extent }) => {
            Err(HostError::Index { op, position: point(position, x.shape()), index, extent })
        }
    }
}

/// Whether `extents` can be those of indices of this type and shape.
pub(crate) fn fits(dtype: DType, shape: &[usize], extents: &[usize]) -> bool {
    let one_each = || !extents.is_empty() && shape.last() == Some(&extents.len());
    dtype.is_int() && (extents.len() == 1 || one_each())
}

/// The first index out of range among elements that have the `extents` in turns.
pub(crate) fn first_outside(dtype: DType, bytes: &[u8], extents: &[usize]) -> Option<Outside> {
    let len = chunk_bytes(dtype, extents);
    let mut chunks = bytes.chunks(len).enumerate();
    chunks.find_map(|(at, chunk)| {
        let found =
            any_outside(dtype, chunk, extents).then(|| exactly(dtype, chunk, extents))??;
        Some(Outside { position: at * (len / dtype.size()) + found.position, ..found })
    })
}

/// Bytes of the parts in which indices may be looked at separately: full turns of the extents.
pub(crate) fn chunk_bytes(dtype: DType, extents: &[usize]) -> usize {
    let turn = extents.len().max(1);
    CHUNK.div_ceil(turn) * turn * dtype.size()
}

/// The place of an element of a tensor, axis by axis.
pub(crate) fn point(mut position: usize, shape: &[usize]) -> Vec<usize> {
    let mut point: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let at = position % extent.max(1);
            position /= extent.max(1);
            at
        })
        .collect();
    point.reverse();
    point
}

/// Whether an index may be out of range; never false if one is.
pub(crate) fn any_outside(dtype: DType, bytes: &[u8], extents: &[usize]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: this processor has the feature.
        return unsafe { any_outside_avx2(dtype, bytes, extents) };
    }
    any_of_type(dtype, bytes, extents)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn any_outside_avx2(dtype: DType, bytes: &[u8], extents: &[usize]) -> bool {
    any_of_type(dtype, bytes, extents)
}

/// Evaluates `$f::<N>(.., decode)` where `decode` makes an index of the `N` bytes of an element.
macro_rules! of_type {
    ($dtype:expr, $f:ident($($argument:expr),*), else $otherwise:expr) => {
        match $dtype {
            DType::I64 => $f::<8>($($argument),*, i64::from_ne_bytes),
            // As generated code reads it.
            DType::U64 => $f::<8>($($argument),*, |b| u64::from_ne_bytes(b) as i64),
            DType::I32 => $f::<4>($($argument),*, |b| i32::from_ne_bytes(b).into()),
            DType::U32 => $f::<4>($($argument),*, |b| u32::from_ne_bytes(b).into()),
            DType::I16 => $f::<2>($($argument),*, |b| i16::from_ne_bytes(b).into()),
            DType::U16 => $f::<2>($($argument),*, |b| u16::from_ne_bytes(b).into()),
            DType::I8 => $f::<1>($($argument),*, |b| i8::from_ne_bytes(b).into()),
            DType::U8 => $f::<1>($($argument),*, |b| u8::from_ne_bytes(b).into()),
            DType::Bool | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => $otherwise,
        }
    };
}

#[inline(always)]
fn any_of_type(dtype: DType, bytes: &[u8], extents: &[usize]) -> bool {
    of_type!(dtype, any(bytes, extents), else false)
}

#[inline(always)]
fn any<const N: usize>(bytes: &[u8], extents: &[usize], decode: impl Fn([u8; N]) -> i64) -> bool {
    let (elements, _) = bytes.as_chunks::<N>();
    if let [extent] = *extents {
        let extent = signed(extent);
        // Either sum is negative if the index is on the wrong side; no comparison of 64 bits is
        // needed.
        let sign = |i: i64| i.wrapping_add(extent) | (extent - 1).wrapping_sub(i);
        return elements.iter().fold(0, |signs, e| signs | sign(decode(*e))) < 0;
    }
    let is_outside = |(e, extent): (&[u8; N], &usize)| is_outside(decode(*e), *extent);
    elements.chunks(extents.len().max(1)).any(|turn| turn.iter().zip(extents).any(is_outside))
}

fn exactly(dtype: DType, bytes: &[u8], extents: &[usize]) -> Option<Outside> {
    of_type!(dtype, first(bytes, extents), else None)
}

fn first<const N: usize>(
    bytes: &[u8],
    extents: &[usize],
    decode: impl Fn([u8; N]) -> i64,
) -> Option<Outside> {
    let (elements, _) = bytes.as_chunks::<N>();
    let mut all = elements.iter().map(|e| decode(*e)).zip(extents.iter().cycle()).enumerate();
    all.find(|(_, (index, extent))| is_outside(*index, **extent))
        .map(|(position, (index, &extent))| Outside { position, index, extent })
}

fn is_outside(index: i64, extent: usize) -> bool {
    let extent = signed(extent);
    index < -extent || index >= extent
}

/// No axis of a tensor in memory is longer than this.
fn signed(extent: usize) -> i64 {
    i64::try_from(extent).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(x: &Tensor, extents: &[usize]) -> Option<(Vec<usize>, i64, usize)> {
        match run("x", x, extents) {
            Ok(()) => None,
            Err(HostError::Index { position, index, extent, .. }) => {
                Some((position, index, extent))
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn the_first_index_out_of_range_is_found() {
        let x = Tensor::from_slice(&[2, 2], &[0i64, 7, -1, 9]);
        assert_eq!(found(&x, &[10]), None);
        assert_eq!(found(&x, &[5]), Some((vec![0, 1], 7, 5)));
        assert_eq!(found(&x, &[1]), Some((vec![0, 1], 7, 1)));
        assert_eq!(found(&x, &[1, 8]), Some((vec![1, 1], 9, 8)));
        assert_eq!(found(&x, &[1, 10]), None);
        assert_eq!(found(&Tensor::scalar(3i32), &[3]), Some((vec![], 3, 3)));
        assert_eq!(found(&Tensor::scalar(-4i32), &[3]), Some((vec![], -4, 3)));
    }

    #[test]
    fn every_type_and_every_limit() {
        for extent in [1usize, 2, 127, 128, 255, 256, 40_000, 1 << 31, usize::MAX] {
            let limit = i64::try_from(extent).unwrap_or(i64::MAX);
            let of_i64 = [0, -1, 1, limit - 1, limit, -limit, -limit - 1, i64::MIN, i64::MAX];
            for index in of_i64 {
                let expected =
                    (index < -limit || index >= limit).then_some((vec![0], index, extent));
                assert_eq!(found(&Tensor::from_slice(&[1], &[index]), &[extent]), expected);
                let cases = [
                    i32::try_from(index).ok().map(|i| Tensor::from_slice(&[1], &[i])),
                    i16::try_from(index).ok().map(|i| Tensor::from_slice(&[1], &[i])),
                    i8::try_from(index).ok().map(|i| Tensor::from_slice(&[1], &[i])),
                    u32::try_from(index).ok().map(|i| Tensor::from_slice(&[1], &[i])),
                    u16::try_from(index).ok().map(|i| Tensor::from_slice(&[1], &[i])),
                    u8::try_from(index).ok().map(|i| Tensor::from_slice(&[1], &[i])),
                ];
                for x in cases.into_iter().flatten() {
                    assert_eq!(found(&x, &[extent]), expected, "{x:?}");
                }
            }
        }
    }

    #[test]
    fn long_tensors_are_searched_to_the_end() {
        for extents in [&[5usize][..], &[5, 5, 5]] {
            let n = 3 * CHUNK + 3;
            let mut all = vec![4i64; n - n % 3];
            assert_eq!(found(&Tensor::from_slice(&[all.len() / 3, 3], &all), extents), None);
            for at in [all.len() - 1, 2 * CHUNK + 1, CHUNK, 0] {
                all[at] = -6;
                let x = Tensor::from_slice(&[all.len() / 3, 3], &all);
                assert_eq!(found(&x, extents), Some((vec![at / 3, at % 3], -6, 5)));
            }
        }
    }
}
