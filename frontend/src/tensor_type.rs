//! Element types and sizes of ONNX's tensors, before anything looks at their elements.

use ansc_runtime::tensor::byte_len;
use ansc_runtime::{DType, Tensor};
use tract_onnx::pb::TensorProto;
use tract_onnx::pb::tensor_proto::{DataLocation, DataType};

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

/// The ONNX type number of an element type.
pub(crate) fn onnx_type(dtype: DType) -> i32 {
    let known = match dtype {
        DType::Bool => DataType::Bool,
        DType::U8 => DataType::Uint8,
        DType::U16 => DataType::Uint16,
        DType::U32 => DataType::Uint32,
        DType::U64 => DataType::Uint64,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bfloat16,
        DType::F32 => DataType::Float,
        DType::F64 => DataType::Double,
    };
    known as i32
}

/// The shape of a tensor of the file.
pub(crate) fn extents(dims: &[i64]) -> Result<Vec<usize>, String> {
    dims.iter()
        .map(|&d| usize::try_from(d).map_err(|_| format!("dimension {d} is negative")))
        .collect()
}

/// A tensor of zeros, if there is memory for it.
pub(crate) fn allocated(dtype: DType, shape: &[usize]) -> Result<Tensor, String> {
    Tensor::try_zeros(dtype, shape).map_err(|e| e.to_string())
}

/// Whether the elements lie in a file of their own.
pub(crate) fn is_external(proto: &TensorProto) -> bool {
    proto.data_location == Some(DataLocation::External as i32)
}
