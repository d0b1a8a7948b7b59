//! `SparseTensorProto` to a dense tensor.
//!
//! ```text
//! dims [2, 3], values [5, 7], indices [1, 5] or [[0, 1], [1, 2]]   ->   [[0, 5, 0], [0, 0, 7]]
//! ```
//!
//! The dense tensor takes more memory than the file, so its size counts towards the import's limit.

use ansc_runtime::{DType, Tensor};
use tract_onnx::pb::SparseTensorProto;

use crate::external::External;
use crate::memory::Memory;
use crate::tensor;
use crate::tensor_type::{allocated, checked_bytes, extents};

pub(crate) fn decode(
    proto: &SparseTensorProto,
    external: &External,
    memory: &Memory,
) -> Result<Tensor, String> {
    let missing = |what: &str| format!("the sparse tensor has no {what}");
    let values = proto.values.as_ref().ok_or_else(|| missing("values"))?;
    let indices = proto.indices.as_ref().ok_or_else(|| missing("indices"))?;
    let values = tensor::decode(values, external, memory)?;
    let indices = tensor::decode(indices, external, memory)?;
    let shape = extents(&proto.dims)?;
    memory.take(checked_bytes(values.dtype(), &shape)?)?;
    let places = places(&indices, values.len(), &shape)?;
    let mut dense = allocated(values.dtype(), &shape)?;
    let size = values.dtype().size();
    for (value, place) in values.bytes().chunks_exact(size).zip(places) {
        dense.bytes_mut()[place * size..][..size].copy_from_slice(value);
    }
    Ok(dense)
}

/// Where each value stands, in row-major order.
fn places(indices: &Tensor, count: usize, shape: &[usize]) -> Result<Vec<usize>, String> {
    let given = indices.to_i64_vec().filter(|_| indices.dtype() == DType::I64);
    let given = given.ok_or("the indices of a sparse tensor must be i64")?;
    let len: usize = shape.iter().product();
    let places: Option<Vec<usize>> = match indices.shape() {
        &[n] if n == count => given.iter().map(|&i| within(i, len)).collect(),
        &[n, rank] if n == count && rank == shape.len() && rank > 0 => {
            given.chunks_exact(rank).map(|at| row_major(at, shape)).collect()
        }
        found => {
            return Err(format!("{count} values of shape {shape:?} have indices of {found:?}"));
        }
    };
    let places = places.ok_or("an index of the sparse tensor is out of range")?;
    let ascend = places.windows(2).all(|pair| pair[0] < pair[1]);
    ascend.then_some(places).ok_or_else(|| "the indices must be unique and ascend".into())
}

fn within(index: i64, extent: usize) -> Option<usize> {
    usize::try_from(index).ok().filter(|&i| i < extent)
}

fn row_major(at: &[i64], shape: &[usize]) -> Option<usize> {
    let axes = at.iter().zip(shape);
    axes.into_iter().try_fold(0, |place, (&i, &n)| Some(place * n + within(i, n)?))
}

#[cfg(test)]
mod tests {
    use tract_onnx::pb::TensorProto;
    use tract_onnx::pb::tensor_proto::DataType;

    use super::*;

    fn sparse(dims: &[i64], values: &[f32], shape: &[i64], indices: &[i64]) -> SparseTensorProto {
        let values = TensorProto {
            data_type: DataType::Float as i32,
            dims: vec![values.len() as i64],
            float_data: values.to_vec(),
            ..TensorProto::default()
        };
        let indices = TensorProto {
            data_type: DataType::Int64 as i32,
            dims: shape.to_vec(),
            int64_data: indices.to_vec(),
            ..TensorProto::default()
        };
        SparseTensorProto { values: Some(values), indices: Some(indices), dims: dims.to_vec() }
    }

    fn dense(proto: &SparseTensorProto) -> Result<Tensor, String> {
        decode(proto, &External::none(), &Memory::for_file(0))
    }

    #[test]
    fn both_forms_of_indices() {
        let expected = Tensor::from_slice(&[2, 3], &[0f32, 5.0, 0.0, 0.0, 0.0, 7.0]);
        assert_eq!(dense(&sparse(&[2, 3], &[5.0, 7.0], &[2], &[1, 5])), Ok(expected.clone()));
        let pairs = sparse(&[2, 3], &[5.0, 7.0], &[2, 2], &[0, 1, 1, 2]);
        assert_eq!(dense(&pairs), Ok(expected));
        assert_eq!(dense(&sparse(&[4], &[], &[0], &[])), Ok(Tensor::zeros(DType::F32, &[4])));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let cases = [
            (sparse(&[2, 3], &[5.0], &[1], &[6]), "out of range"),
            (sparse(&[2, 3], &[5.0], &[1], &[-1]), "out of range"),
            (sparse(&[2, 3], &[5.0], &[1, 2], &[0, 3]), "out of range"),
            (sparse(&[2, 3], &[5.0], &[1, 3], &[0, 0, 0]), "have indices of [1, 3]"),
            (sparse(&[2, 3], &[5.0, 6.0], &[1], &[0]), "have indices of [1]"),
            (sparse(&[2, 3], &[5.0, 6.0], &[2], &[3, 3]), "unique"),
            (sparse(&[1 << 40], &[5.0], &[1], &[3]), "out of proportion"),
            (sparse(&[-1], &[5.0], &[1], &[0]), "negative"),
            (SparseTensorProto::default(), "no values"),
        ];
        for (proto, cause) in cases {
            let error = dense(&proto).unwrap_err();
            assert!(error.contains(cause), "{error}");
        }
    }
}
