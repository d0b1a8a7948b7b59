//! Cumulative sums and products, by doubling: stage `k` combines each element with the one `2^k`
//! before it.
//!
//! ```text
//! cumulative(sum, axis 0, f32[3])
//! ->  step: f32[3] = b0[v0] + select(1 <= v0, b0[v0 - 1], 0)
//!     step: f32[3] = b1[v0] + select(2 <= v0, b1[v0 - 2], 0)
//! ```

use super::stages::{Source, Stages};
use super::{OpError, check_axes};
use crate::compute::TensorType;
use crate::expr::{BinOp, Expr};
use crate::op::{ComputeOp, Kind};
use crate::scalar::Scalar;

/// Attributes of [`cumulative`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cumulative {
    /// The axis along which elements are combined.
    pub axis: usize,
    /// `Add` or `Mul`.
    pub op: BinOp,
    /// The element itself does not count.
    pub exclusive: bool,
    /// From the end.
    pub reverse: bool,
}

/// Each element combined with all that come before it.
pub fn cumulative(attrs: Cumulative, x: &TensorType) -> Result<ComputeOp, OpError> {
    check_axes(&[attrs.axis], x.rank())?;
    in_steps(attrs, x, steps(x.shape[attrs.axis]))
}

/// How many steps an axis of this extent takes.
pub fn steps(extent: usize) -> usize {
    extent.max(1).next_power_of_two().trailing_zeros() as usize
}

/// As [`cumulative`], in that many steps: [`steps`] tells how many are enough. More change nothing;
/// models for several sizes have as many as the largest one.
pub fn in_steps(attrs: Cumulative, x: &TensorType, steps: usize) -> Result<ComputeOp, OpError> {
    check_axes(&[attrs.axis], x.rank())?;
    let dtype = x.dtype;
    let acc = dtype.accumulator();
    let neutral = match attrs.op {
        BinOp::Add => Scalar::zero(acc),
        BinOp::Mul => Scalar::one(acc),
        other => return Err(OpError::Invalid(format!("`{}` does not accumulate", other.name()))),
    };
    let (mut s, [x]) = Stages::new([x]);
    let ty = TensorType::new(acc, x.ty().shape.clone());
    let extent = ty.shape[attrs.axis];
    let other = |source: &Source, distance: usize, i: &[Expr]| {
        Expr::select(
            within(attrs, extent, distance, i),
            far(attrs, source, distance, i),
            Expr::Const(neutral),
        )
    };
    let cast = |source: Source, s: &mut Stages| s.cast(source, acc);
    let mut y = match attrs.exclusive {
        true => {
            let wide = cast(x, &mut s);
            s.map("shift", ty.clone(), |i| other(&wide, 1, i))
        }
        false => cast(x, &mut s),
    };
    for step in 0..steps {
        let before = |i: &[Expr]| other(&y, 1 << step, i);
        y = s.map("step", ty.clone(), |i| Expr::binary(attrs.op, y.at(i), before(i)));
    }
    let y = s.map("result", TensorType::new(dtype, ty.shape), |i| y.at_as(dtype, i));
    Ok(s.finish(Kind::Other("CumSum".into()), &[&y]))
}

/// Whether there is an element `distance` before.
fn within(attrs: Cumulative, extent: usize, distance: usize, i: &[Expr]) -> Expr {
    let at = i[attrs.axis].clone();
    match attrs.reverse {
        false => Expr::index(distance).le(at),
        true => (at + Expr::index(distance)).lt(Expr::index(extent)),
    }
}

fn far(attrs: Cumulative, source: &Source, distance: usize, i: &[Expr]) -> Expr {
    let mut i = i.to_vec();
    let at = i[attrs.axis].clone();
    i[attrs.axis] = match attrs.reverse {
        false => at - Expr::index(distance),
        true => at + Expr::index(distance),
    };
    source.at(&i)
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp;

    #[test]
    fn all_directions() {
        let x = Tensor::from_slice(&[2, 5], &[1i32, 2, 3, 4, 5, 10, 20, 30, 40, 50]);
        let eval = |axis, op, exclusive, reverse| {
            let op = cumulative(Cumulative { axis, op, exclusive, reverse }, &TensorType::of(&x));
            interp::eval(&op.unwrap().expr, &[&x]).unwrap()[0].to_f64_vec()
        };
        assert_eq!(eval(1, BinOp::Add, false, false)[..5], [1.0, 3.0, 6.0, 10.0, 15.0]);
        assert_eq!(eval(1, BinOp::Add, true, false)[5..], [0.0, 10.0, 30.0, 60.0, 100.0]);
        assert_eq!(eval(1, BinOp::Add, false, true)[..5], [15.0, 14.0, 12.0, 9.0, 5.0]);
        assert_eq!(eval(1, BinOp::Add, true, true)[..5], [14.0, 12.0, 9.0, 5.0, 0.0]);
        assert_eq!(eval(1, BinOp::Mul, true, true)[..5], [120.0, 60.0, 20.0, 5.0, 1.0]);
        assert_eq!(eval(0, BinOp::Add, false, false)[5..], [11.0, 22.0, 33.0, 44.0, 55.0]);
        let attrs = Cumulative { axis: 1, op: BinOp::Add, exclusive: false, reverse: true };
        let more = in_steps(attrs, &TensorType::of(&x), 6).unwrap();
        let more = interp::eval(&more.expr, &[&x]).unwrap()[0].to_f64_vec();
        assert_eq!(more, eval(1, BinOp::Add, false, true));
        assert_eq!([0, 1, 2, 3, 4, 5, 8, 9].map(steps), [0, 0, 1, 2, 2, 3, 3, 4]);
        let scalar = TensorType::new(ansc_runtime::DType::F32, []);
        let attrs = Cumulative { axis: 0, op: BinOp::Add, exclusive: false, reverse: false };
        assert!(cumulative(attrs, &scalar).is_err());
    }
}
