//! `TensorProto` to [`Tensor`].
//!
//! In: a tensor of the file, and access to its external data. Out: a tensor whose data has exactly
//! the length that type and shape demand, or the reason why not. Sizes are checked before anything
//! is allocated. Data is little-endian in the file, and so are the machines that ansc runs on.

use ansc_runtime::tensor::{TensorError, byte_len};
use ansc_runtime::{DType, Tensor};
use half::{bf16, f16};
use tract_onnx::pb::TensorProto;
use tract_onnx::pb::tensor_proto::{DataLocation, DataType};

use crate::external::External;
use crate::import::Memory;
use crate::nibbles;

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

/// A tensor as the file holds it.
pub(crate) fn encode(name: &str, tensor: &Tensor) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: tensor.shape().iter().map(|&extent| extent as i64).collect(),
        data_type: onnx_type(tensor.dtype()),
        raw_data: tensor.bytes().to_vec(),
        ..TensorProto::default()
    }
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

pub(crate) fn decode(
    proto: &TensorProto,
    external: &External,
    memory: &Memory,
) -> Result<Tensor, String> {
    if let Some(dtype) = nibbles::wide(proto.data_type) {
        return nibbles::widened(dtype, proto, external, memory);
    }
    let dtype = dtype(proto.data_type)?;
    let shape = extents(&proto.dims)?;
    let bytes = checked_bytes(dtype, &shape)?;
    if is_external(proto) {
        let mut tensor = external.read(proto, dtype, &shape, memory)?;
        normalise(&mut tensor);
        return Ok(tensor);
    }
    if proto.raw_data.is_empty() {
        return from_fields(dtype, &shape, proto, memory);
    }
    let data = &proto.raw_data;
    if data.len() != bytes {
        let error = TensorError::WrongLength { dtype, shape, expected: bytes, found: data.len() };
        return Err(error.to_string());
    }
    memory.take(bytes)?;
    let mut tensor = allocated(dtype, &shape)?;
    tensor.bytes_mut().copy_from_slice(data);
    normalise(&mut tensor);
    Ok(tensor)
}

/// Any byte but zero stands for true.
fn normalise(tensor: &mut Tensor) {
    if tensor.dtype() == DType::Bool {
        tensor.bytes_mut().iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
}

pub(crate) fn is_external(proto: &TensorProto) -> bool {
    proto.data_location == Some(DataLocation::External as i32)
}

/// The data in the field that ONNX assigns to the type.
fn from_fields(
    dtype: DType,
    shape: &[usize],
    proto: &TensorProto,
    memory: &Memory,
) -> Result<Tensor, String> {
    let ints = &proto.int32_data;
    let typed = Typed { shape, memory };
    match dtype {
        DType::F32 => typed.of(proto.float_data.iter().copied()),
        DType::F64 => typed.of(proto.double_data.iter().copied()),
        DType::I64 => typed.of(proto.int64_data.iter().copied()),
        DType::U64 => typed.of(proto.uint64_data.iter().copied()),
        DType::U32 => typed.of(proto.uint64_data.iter().map(|&v| v as u32)),
        DType::I32 => typed.of(ints.iter().copied()),
        DType::I16 => typed.of(ints.iter().map(|&v| v as i16)),
        DType::I8 => typed.of(ints.iter().map(|&v| v as i8)),
        DType::U16 => typed.of(ints.iter().map(|&v| v as u16)),
        DType::U8 => typed.of(ints.iter().map(|&v| v as u8)),
        DType::Bool => typed.of(ints.iter().map(|&v| v != 0)),
        DType::F16 => typed.of(ints.iter().map(|&v| f16::from_bits(v as u16))),
        DType::BF16 => typed.of(ints.iter().map(|&v| bf16::from_bits(v as u16))),
    }
}

/// The tensor to be made of values in a field.
struct Typed<'a> {
    shape: &'a [usize],
    memory: &'a Memory,
}

impl Typed<'_> {
    fn of<T: ansc_runtime::Element>(
        &self,
        values: impl ExactSizeIterator<Item = T>,
    ) -> Result<Tensor, String> {
        let shape = self.shape;
        let expected: usize = shape.iter().product();
        if values.len() != expected {
            let found = values.len();
            return Err(format!(
                "shape {shape:?} needs {expected} elements, but {found} were given"
            ));
        }
        self.memory.take(expected.saturating_mul(size_of::<T>()))?;
        let mut tensor = allocated(T::DTYPE, shape)?;
        tensor.as_mut_slice().iter_mut().zip(values).for_each(|(place, value)| *place = value);
        Ok(tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proto(data_type: DataType, dims: &[i64]) -> TensorProto {
        TensorProto { data_type: data_type as i32, dims: dims.to_vec(), ..TensorProto::default() }
    }

    fn decoded(proto: &TensorProto) -> Result<Tensor, String> {
        decode(proto, &External::none(), &Memory::for_file(0))
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
