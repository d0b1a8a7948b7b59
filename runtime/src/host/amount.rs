//! `Amount`: a number that is computed from the data, on the way to become a size.
//!
//! ```text
//! [[17]]: i32 -- amount, at most 40 -->  17: i64          [[41]] -->  an error
//! ```
//!
//! No operator of ONNX.

use super::HostError;
use crate::tensor::Tensor;

pub(super) const NAME: &str = "Amount";

pub(super) fn run(x: &Tensor, least: usize, most: usize) -> Result<Tensor, HostError> {
    let values = x.to_i64_vec();
    let values = values.ok_or(HostError::Type { op: NAME, what: "x", dtype: x.dtype() })?;
    let [found] = values[..] else {
        return Err(HostError::Shape { op: NAME, what: "x", shape: x.shape().to_vec() });
    };
    match usize::try_from(found) {
        Ok(size) if size > most => Err(HostError::TooLarge { most, found }),
        Ok(size) if size >= least => Ok(Tensor::scalar(found)),
        few => Err(HostError::TooFew { least, found: few.unwrap_or(0) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn a_number_has_to_be_in_its_range() {
        let of = |found: i64| run(&Tensor::scalar(found), 2, 40);
        assert_eq!([2, 17, 40].map(of), [2, 17, 40].map(|n: i64| Ok(Tensor::scalar(n))));
        assert_eq!(of(41), Err(HostError::TooLarge { most: 40, found: 41 }));
        assert_eq!(of(1), Err(HostError::TooFew { least: 2, found: 1 }));
        assert_eq!(of(-5), Err(HostError::TooFew { least: 2, found: 0 }));
        let narrow = Tensor::from_slice(&[1, 1], &[17_i32]);
        assert_eq!(run(&narrow, 0, 40), Ok(Tensor::scalar(17_i64)));
    }

    #[test]
    fn nothing_but_one_whole_number_is_one() {
        let two = Tensor::from_slice(&[2], &[1_i64, 2]);
        let shape = HostError::Shape { op: NAME, what: "x", shape: vec![2] };
        assert_eq!(run(&two, 0, 40), Err(shape));
        let float = HostError::Type { op: NAME, what: "x", dtype: DType::F32 };
        assert_eq!(run(&Tensor::scalar(1_f32), 0, 40), Err(float));
    }
}
