//! Indices of a block as places along their axis.

use crate::dtype::DType;

/// Indices that are looked at together.
pub(super) const MOST: usize = 256;

/// Writes the places of indices that are in range; negative ones count from the end of the axis.
pub(super) fn decode(dtype: DType, bytes: &[u8], extent: usize, places: &mut [usize]) {
    match dtype {
        DType::I64 => each(bytes, extent, places, i64::from_ne_bytes),
        DType::I32 => each(bytes, extent, places, |b| i32::from_ne_bytes(b).into()),
        DType::U64 => each(bytes, extent, places, |b| u64::from_ne_bytes(b) as i64),
        DType::U32 => each(bytes, extent, places, |b| u32::from_ne_bytes(b).into()),
        DType::I16 => each(bytes, extent, places, |b| i16::from_ne_bytes(b).into()),
        DType::U16 => each(bytes, extent, places, |b| u16::from_ne_bytes(b).into()),
        DType::I8 => each(bytes, extent, places, |b| i8::from_ne_bytes(b).into()),
        DType::U8 => each(bytes, extent, places, |b| u8::from_ne_bytes(b).into()),
        DType::Bool | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
            unreachable!("indices are integers")
        }
    }
}

fn each<const N: usize>(
    bytes: &[u8],
    extent: usize,
    places: &mut [usize],
    decode: impl Fn([u8; N]) -> i64,
) {
    let (indices, _) = bytes.as_chunks::<N>();
    for (place, index) in places.iter_mut().zip(indices) {
        let index = decode(*index);
        *place = (index as usize).wrapping_add(if index < 0 { extent } else { 0 });
    }
}
