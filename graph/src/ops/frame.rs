//! Overlapping pieces of a signal, one after the other.
//!
//! ```text
//! frames(f32[b, t, c], step 2, length 4)  ->  frames: f32[b, n, 4, c] = b0[v0, v1 * 2 + v2, v3]
//! ```

use super::{OpError, sized};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};

/// As many frames as lie wholly in the signal `[batch, time, components]`.
pub fn frames(signal: &TensorType, step: usize, length: usize) -> Result<ComputeOp, OpError> {
    let &[batch, time, components] = signal.shape.as_slice() else {
        return Err(OpError::Rank {
            what: "a signal",
            expected: "3".into(),
            found: signal.shape.clone(),
        });
    };
    if step == 0 || length == 0 || length > time {
        return Err(OpError::Invalid(format!(
            "frames of {length} elements, {step} apart, do not fit {time} elements"
        )));
    }
    let count = (time - length) / step + 1;
    let ty = sized(TensorType::new(signal.dtype, [batch, count, length, components]))?;
    let at = Expr::var(1) * Expr::index(step) + Expr::var(2);
    let body = Expr::load(0, vec![Expr::var(0), at, Expr::var(3)]);
    let expr = Compute::single(vec![signal.clone()], Stage::map("frames", ty, body));
    Ok(ComputeOp::new(Kind::Other("Frames".into()), expr))
}

#[cfg(test)]
mod tests {
    use ansc_runtime::{DType, Tensor};

    use super::*;

    #[test]
    fn frames_overlap() {
        let x = Tensor::from_slice(&[1, 6, 1], &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let op = frames(&TensorType::of(&x), 2, 3).unwrap();
        let y = crate::interp::eval(&op.expr, &[&x]).unwrap();
        assert_eq!(y[0].as_slice::<f32>(), [0.0, 1.0, 2.0, 2.0, 3.0, 4.0]);
        for (step, length) in [(0, 3), (1, 7), (1, 0)] {
            assert!(frames(&TensorType::new(DType::F32, [1, 6, 1]), step, length).is_err());
        }
    }
}
