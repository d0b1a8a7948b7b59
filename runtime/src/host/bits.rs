//! `BitCast`: the bits of elements as elements of another type of the same size.
//!
//! `1.0f32` -> `0x3f800000i32`. A byte other than 0 and 1 becomes a truth value that is true.

use super::{HostError, list};
use crate::dtype::DType;
use crate::tensor::Tensor;

const OP: &str = "BitCast";

pub(super) fn run(x: &Tensor, to: DType) -> Result<Tensor, HostError> {
    if x.dtype().size() != to.size() {
        return Err(HostError::Type { op: OP, what: "x", dtype: x.dtype() });
    }
    let truths: Vec<u8>;
    let bytes = match to {
        DType::Bool => {
            truths = list(OP, x.bytes().iter().map(|&b| u8::from(b != 0)))?;
            &truths
        }
        _ => x.bytes(),
    };
    Tensor::from_bytes(to, x.shape(), bytes).map_err(|source| HostError::Tensor { op: OP, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_stay_as_they_are() {
        let x = Tensor::from_slice(&[2], &[1.0f32, -0.0]);
        let y = run(&x, DType::I32).unwrap();
        assert_eq!(y.as_slice::<i32>(), [0x3f80_0000, i32::MIN]);
        assert_eq!(run(&y, DType::F32), Ok(x));
        assert!(run(&y, DType::F16).is_err());
    }

    #[test]
    fn truth_values_are_valid() {
        let y = run(&Tensor::from_slice(&[3], &[0u8, 1, 7]), DType::Bool).unwrap();
        assert_eq!(y.as_slice::<bool>(), [false, true, true]);
    }
}
