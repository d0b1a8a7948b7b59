//! `TensorProto` to [`Tensor`].
//!
//! In: a tensor of the file, and access to its external data. Out: a tensor whose data has exactly the
//! length that type and shape demand, or the reason why not. Sizes are checked before anything is
//! allocated. Data is little-endian in the file, and so are the machines that ansc runs on.

use ansc_runtime::tensor::byte_len;
use ansc_runtime::{DType, Tensor};
use half::{bf16, f16};
use tract_onnx::pb::TensorProto;
use tract_onnx::pb::tensor_proto::{DataLocation, DataType};

use crate::external::External;

/// No tensor of a model may be larger, constant or not: more than machines have, little enough that
/// sums of sizes cannot overflow.
pub(crate) const MAX_TENSOR_BYTES: usize = 1 << 42;

/// Bytes of a tensor of this type, if it is of a size that a machine can hold.
pub(crate) fn checked_bytes(dtype: DType, shape: &[usize]) -> Result<usize, String> {
    byte_len(dtype, shape)
        .filter(|&bytes| bytes <= MAX_TENSOR_BYTES)
        .ok_or_else(|| format!("a tensor {dtype}{shape:?} is larger than any machine's memory"))
}

/// The element type of an ONNX type number.
pub(crate) fn dtype(onnx: i32) -> Result<DType, String> {
    let known = DataType::try_from(onnx).map_err(|_| format!("element type {onnx} is unknown"))?;
    match known {
        DataType::Bool => Ok(DType::Bool),
        DataType::Uint8 => Ok(DType::U8),
        DataType::Uint16 => Ok(DType::U16),
        DataType::Uint32 => Ok(DType::U32),
        DataType::Uint64 => Ok(DType::U64),
        DataType::Int8 => Ok(DType::I8),
        DataType::Int16 => Ok(DType::I16),
        DataType::Int32 => Ok(DType::I32),
        DataType::Int64 => Ok(DType::I64),
        DataType::Float16 => Ok(DType::F16),
        DataType::Bfloat16 => Ok(DType::BF16),
        DataType::Float => Ok(DType::F32),
        DataType::Double => Ok(DType::F64),
        DataType::Undefined => Err("the element type is not given".into()),
        other => Err(format!("element type {} is not supported", other.as_str_name())),
    }
}

/// The shape of a tensor of the file.
pub(crate) fn shape(proto: &TensorProto) -> Result<Vec<usize>, String> {
    proto
        .dims
        .iter()
        .map(|&d| usize::try_from(d).map_err(|_| format!("dimension {d} is negative")))
        .collect()
}

pub(crate) fn decode(proto: &TensorProto, external: &External) -> Result<Tensor, String> {
    let dtype = dtype(proto.data_type)?;
    let shape = shape(proto)?;
    let bytes = checked_bytes(dtype, &shape)?;
    if is_external(proto) {
        return from_raw(dtype, &shape, &external.read(proto, bytes)?);
    }
    if proto.raw_data.is_empty() {
        from_fields(dtype, &shape, proto)
    } else {
        from_raw(dtype, &shape, &proto.raw_data)
    }
}

pub(crate) fn is_external(proto: &TensorProto) -> bool {
    proto.data_location == Some(DataLocation::External as i32)
}

fn from_raw(dtype: DType, shape: &[usize], data: &[u8]) -> Result<Tensor, String> {
    if dtype == DType::Bool {
        let normal: Vec<u8> = data.iter().map(|&b| u8::from(b != 0)).collect();
        return Tensor::from_bytes(dtype, shape, &normal).map_err(|e| e.to_string());
    }
    Tensor::from_bytes(dtype, shape, data).map_err(|e| e.to_string())
}

/// The data in the field that ONNX assigns to the type.
fn from_fields(dtype: DType, shape: &[usize], proto: &TensorProto) -> Result<Tensor, String> {
    let ints = &proto.int32_data;
    match dtype {
        DType::F32 => typed(shape, proto.float_data.iter().copied()),
        DType::F64 => typed(shape, proto.double_data.iter().copied()),
        DType::I64 => typed(shape, proto.int64_data.iter().copied()),
        DType::U64 => typed(shape, proto.uint64_data.iter().copied()),
        DType::U32 => typed(shape, proto.uint64_data.iter().map(|&v| v as u32)),
        DType::I32 => typed(shape, ints.iter().copied()),
        DType::I16 => typed(shape, ints.iter().map(|&v| v as i16)),
        DType::I8 => typed(shape, ints.iter().map(|&v| v as i8)),
        DType::U16 => typed(shape, ints.iter().map(|&v| v as u16)),
        DType::U8 => typed(shape, ints.iter().map(|&v| v as u8)),
        DType::Bool => typed(shape, ints.iter().map(|&v| v != 0)),
        DType::F16 => typed(shape, ints.iter().map(|&v| f16::from_bits(v as u16))),
        DType::BF16 => typed(shape, ints.iter().map(|&v| bf16::from_bits(v as u16))),
    }
}

fn typed<T: ansc_runtime::Element>(
    shape: &[usize],
    values: impl ExactSizeIterator<Item = T>,
) -> Result<Tensor, String> {
    let expected: usize = shape.iter().product();
    if values.len() != expected {
        let found = values.len();
        return Err(format!("shape {shape:?} needs {expected} elements, but {found} were given"));
    }
    Ok(Tensor::from_slice(shape, &values.collect::<Vec<T>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proto(data_type: DataType, dims: &[i64]) -> TensorProto {
        TensorProto { data_type: data_type as i32, dims: dims.to_vec(), ..TensorProto::default() }
    }

    fn decoded(proto: &TensorProto) -> Result<Tensor, String> {
        decode(proto, &External::none())
    }

    #[test]
    fn raw_and_typed_data_agree() {
        let raw =
            TensorProto { raw_data: vec![0, 0x3c, 0, 0xbc], ..proto(DataType::Float16, &[2]) };
        let fields =
            TensorProto { int32_data: vec![0x3c00, 0xbc00], ..proto(DataType::Float16, &[2]) };
        let expected = Tensor::from_slice(&[2], &[f16::from_f32(1.0), f16::from_f32(-1.0)]);
        assert_eq!(decoded(&raw), Ok(expected.clone()));
        assert_eq!(decoded(&fields), Ok(expected));
        let bools = TensorProto { raw_data: vec![0, 1, 7], ..proto(DataType::Bool, &[3]) };
        assert_eq!(decoded(&bools), Ok(Tensor::from_slice(&[3], &[false, true, true])));
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let cases = [
            TensorProto { raw_data: vec![0; 7], ..proto(DataType::Float, &[2]) },
            TensorProto { float_data: vec![1.0], ..proto(DataType::Float, &[2]) },
            TensorProto { raw_data: vec![0; 8], ..proto(DataType::Int64, &[-1]) },
            proto(DataType::Float, &[i64::MAX, i64::MAX]),
            proto(DataType::Float, &[1 << 45]),
            proto(DataType::Complex64, &[1]),
            proto(DataType::Undefined, &[]),
        ];
        for case in cases {
            assert!(decoded(&case).is_err(), "{case:?}");
        }
        assert_eq!(decoded(&proto(DataType::Float, &[0, 5])).unwrap().shape(), [0, 5]);
    }
}
