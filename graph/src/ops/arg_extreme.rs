//! Positions of extreme elements along an axis.
//!
//! ```text
//! arg_extreme(largest, 1, f32[4, 8])  ->  position: i64[4, 1] = argmax[8] b0[v0, v2]
//! ```

use ansc_runtime::DType;

use super::OpError;
use super::reduce::{Reduced, compared};
use super::stages::Stages;
use crate::compute::{Combiner, TensorType};
use crate::op::{ComputeOp, Kind};

/// Attributes of [`arg_extreme`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArgExtreme {
    /// The axis along which elements are compared.
    pub axis: usize,
    /// The maximum, or the minimum.
    pub largest: bool,
    /// Keep the axis with extent 1.
    pub keep: bool,
    /// Take the last of several equal elements, and not the first.
    pub last: bool,
}

/// The position of the largest or smallest element along an axis, as `i64`.
pub fn arg_extreme(attrs: ArgExtreme, x: &TensorType) -> Result<ComputeOp, OpError> {
    let over = Reduced::new(&[attrs.axis], attrs.keep, &x.shape)?;
    if over.extents.contains(&0) {
        return Err(OpError::Invalid("an axis without elements has no extreme element".into()));
    }
    let last = attrs.last;
    let (name, combiner) = match attrs.largest {
        true => ("ArgMax", Combiner::ArgMax { last }),
        false => ("ArgMin", Combiner::ArgMin { last }),
    };
    let (mut s, [x]) = Stages::new([x]);
    let ty = TensorType::new(DType::I64, over.shape.clone());
    let compared = compared(x.dtype());
    let y = s.reduce("position", combiner, ty, &over.extents, |i, r| {
        x.at_as(compared, &over.element(i, r))
    });
    Ok(s.finish(Kind::Other(name.into()), &[&y]))
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp;

    #[test]
    fn ties_and_shapes() {
        let x = Tensor::from_slice(&[2, 3], &[5i8, 1, 5, 2, 7, 2]);
        let eval = |axis, largest, keep, last| {
            let attrs = ArgExtreme { axis, largest, keep, last };
            let op = arg_extreme(attrs, &TensorType::of(&x)).unwrap();
            interp::eval(&op.expr, &[&x]).unwrap().remove(0)
        };
        assert_eq!(eval(1, true, false, false).to_f64_vec(), [0.0, 1.0]);
        assert_eq!(eval(1, true, false, true).to_f64_vec(), [2.0, 1.0]);
        assert_eq!(eval(1, false, true, true).shape(), [2, 1]);
        assert_eq!(eval(1, false, true, true).to_f64_vec(), [1.0, 2.0]);
        assert_eq!(eval(0, true, false, false).to_f64_vec(), [0.0, 1.0, 0.0]);
    }

    #[test]
    fn positions_among_halves() {
        let x = Tensor::from_slice(&[4], &[0.5, 2.5, -1.0, 2.5].map(half::f16::from_f32));
        let attrs = ArgExtreme { axis: 0, largest: true, keep: false, last: true };
        let op = arg_extreme(attrs, &TensorType::of(&x)).unwrap();
        assert_eq!(interp::eval(&op.expr, &[&x]).unwrap()[0].to_f64_vec(), [3.0]);
    }
}
