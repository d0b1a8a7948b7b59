//! `TensorProto` to [`Tensor`].
//!
//! In: a tensor of the file, and access to its external data. Out: a tensor whose data has exactly
//! the length that type and shape demand, or the reason why not. Sizes are checked before anything
//! is allocated. Data is little-endian in the file, and so are the machines that ansc runs on.

use ansc_runtime::tensor::TensorError;
use ansc_runtime::{DType, Tensor};
use half::{bf16, f16};
use tract_onnx::pb::TensorProto;

use crate::external::External;
use crate::memory::Memory;
use crate::nibbles;
use crate::tensor_type::{allocated, checked_bytes, dtype, extents, is_external, onnx_type};

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
    use tract_onnx::pb::tensor_proto::DataType;

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
