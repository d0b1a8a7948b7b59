//! Tensors of `INT4` and `UINT4`: two elements in a byte, the first one in the low bits.
//!
//! No element of ansc has 4 bits: such a tensor is one of bytes. A large constant stays packed, and
//! a node unpacks it (`ansc_graph::ops::nibbles`); a small one is widened here.

use ansc_runtime::{DType, Tensor};
use tract_onnx::pb::TensorProto;
use tract_onnx::pb::tensor_proto::DataType;

use crate::external::External;
use crate::memory::Memory;
use crate::tensor_type::{allocated, checked_bytes, extents, is_external};

/// Constants of no more elements are widened.
const FEW: usize = 1 << 16;

/// The type that elements of 4 bits get, by the number of their own type in ONNX.
pub(crate) fn wide(onnx: i32) -> Option<DType> {
    match DataType::try_from(onnx) {
        Ok(DataType::Int4) => Some(DType::I8),
        Ok(DataType::Uint4) => Some(DType::U8),
        _ => None,
    }
}

/// Whether a constant had better stay packed.
pub(crate) fn stays_packed(proto: &TensorProto) -> bool {
    let elements = proto.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
    wide(proto.data_type).is_some() && elements.is_none_or(|n| n > FEW as i64)
}

/// The shape, and the bytes as they are.
pub(crate) fn packed(
    proto: &TensorProto,
    external: &External,
    memory: &Memory,
) -> Result<(Vec<usize>, Tensor), String> {
    let shape = extents(&proto.dims)?;
    let bytes = checked_bytes(DType::U8, &shape)?.div_ceil(2);
    if is_external(proto) {
        return Ok((shape, external.read(proto, DType::U8, &[bytes], memory)?));
    }
    memory.take(bytes)?;
    let mut tensor = allocated(DType::U8, &[bytes])?;
    let given =
        if proto.raw_data.is_empty() { proto.int32_data.len() } else { proto.raw_data.len() };
    if given != bytes {
        return Err(format!(
            "shape {shape:?} needs {bytes} bytes of two elements, but {given} were given"
        ));
    }
    match proto.raw_data.is_empty() {
        true => {
            let given = tensor.bytes_mut().iter_mut().zip(&proto.int32_data);
            given.for_each(|(byte, &value)| *byte = value as u8);
        }
        false => tensor.bytes_mut().copy_from_slice(&proto.raw_data),
    }
    Ok((shape, tensor))
}

/// The tensor with an element of `dtype` in each byte.
pub(crate) fn widened(
    dtype: DType,
    proto: &TensorProto,
    external: &External,
    memory: &Memory,
) -> Result<Tensor, String> {
    let (shape, packed) = packed(proto, external, memory)?;
    memory.take(checked_bytes(dtype, &shape)?)?;
    let mut tensor = allocated(dtype, &shape)?;
    let low_high = packed.bytes().iter().flat_map(|byte| [byte & 15, byte >> 4]);
    let sign = if dtype == DType::I8 { 8 } else { 0 };
    let all = tensor.bytes_mut().iter_mut().zip(low_high);
    all.for_each(|(place, bits)| *place = (bits ^ sign).wrapping_sub(sign));
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proto(ty: DataType, dims: &[i64]) -> TensorProto {
        TensorProto { data_type: ty as i32, dims: dims.to_vec(), ..TensorProto::default() }
    }

    fn decoded(proto: &TensorProto) -> Result<Vec<f64>, String> {
        let tensor = crate::tensor::decode(proto, &External::none(), &Memory::for_file(0))?;
        Ok(tensor.to_f64_vec())
    }

    #[test]
    fn raw_and_typed_data_agree() {
        for (ty, expected) in [
            (DataType::Int4, [1.0, 2.0, -8.0, -1.0, 7.0]),
            (DataType::Uint4, [1.0, 2.0, 8.0, 15.0, 7.0]),
        ] {
            let raw = TensorProto { raw_data: vec![0x21, 0xf8, 0x07], ..proto(ty, &[5]) };
            let typed = TensorProto { int32_data: vec![0x21, 0xf8, 0x07], ..proto(ty, &[1, 5]) };
            assert_eq!(decoded(&raw).unwrap(), expected);
            assert_eq!(decoded(&typed).unwrap(), expected);
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let five = proto(DataType::Int4, &[5]);
        for bytes in [0, 2, 5] {
            let raw = TensorProto { raw_data: vec![0; bytes], ..five.clone() };
            assert!(decoded(&raw).is_err(), "{bytes}");
        }
        assert!(decoded(&proto(DataType::Int4, &[-1])).is_err());
        assert!(decoded(&proto(DataType::Int4, &[i64::MAX, i64::MAX])).is_err());
        assert!(stays_packed(&proto(DataType::Int4, &[1 << 10, 1 << 10])) && !stays_packed(&five));
        assert!(!stays_packed(&proto(DataType::Int8, &[1 << 20])));
    }
}
