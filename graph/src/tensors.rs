//! Questions about the contents of constants.

use ansc_runtime::{DType, Tensor};

use crate::scalar::Scalar;

/// The value of all elements, if there is one and they are all alike bit for bit.
pub(crate) fn uniform(tensor: &Tensor) -> Option<Scalar> {
    let size = tensor.dtype().size();
    let first = tensor.bytes().get(..size)?;
    tensor.bytes().chunks_exact(size).all(|e| e == first).then(|| element(tensor.dtype(), first))
}

/// The element with these native-endian bytes.
fn element(dtype: DType, bytes: &[u8]) -> Scalar {
    let one = Tensor::from_bytes(dtype, &[], bytes).expect("bytes of one valid element");
    match one.to_i64_vec() {
        Some(ints) => Scalar::from_i64(dtype, ints[0]),
        // Only `u64` beyond `i64` and floats get here.
        None if dtype == DType::U64 => Scalar::from_i64(dtype, one.as_slice::<u64>()[0] as i64),
        None => Scalar::from_f64(dtype, one.to_f64_vec()[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_elements_are_uniform() {
        let all = |values: &[f32]| uniform(&Tensor::from_slice(&[values.len()], values));
        assert_eq!(all(&[2.0, 2.0]), Some(Scalar::from_f64(DType::F32, 2.0)));
        assert_eq!(all(&[0.0, -0.0]), None);
        assert_eq!(all(&[]), None);
        let huge = Tensor::scalar(u64::MAX);
        assert_eq!(uniform(&huge), Some(Scalar::highest(DType::U64)));
    }
}
