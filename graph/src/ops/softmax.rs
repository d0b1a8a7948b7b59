//! Softmax, its logarithm and its limit, over one or several axes together.
//!
//! ```text
//! softmax([1], f32[4, 8])
//! ->  max: f32[4, 1] = max[8] b0[v0, v2]
//!     exp: f32[4, 8] = exp(b0[v0, v1] - b1[v0, 0])
//!     sum: f32[4, 1] = sum[8] b2[v0, v2]
//!     result: f32[4, 8] = b2[v0, v1] * (1 / b3[v0, 0])
//! ```
//!
//! The sum is at least one, so that its reciprocal is a number wherever the quotient is; a row
//! needs one division.

use ansc_runtime::DType;

use super::OpError;
use super::activation::float_accumulator;
use super::reduce::Reduced;
use super::stages::{Source, Stages};
use crate::compute::{Combiner, TensorType};
use crate::expr::{Expr, UnOp};
use crate::op::{ComputeOp, Kind};
use crate::scalar::Scalar;

/// Exponentials divided by their sum along axes, without overflow.
pub fn softmax(axes: &[usize], x: &TensorType) -> Result<ComputeOp, OpError> {
    let over = Reduced::new(axes, true, &x.shape)?;
    let acc = float_accumulator(x.dtype)?;
    let (mut s, [x]) = Stages::new([x]);
    let (whole, max) =
        (TensorType::new(acc, x.ty().shape.clone()), push_max(&mut s, &over, acc, &x));
    let exp =
        s.map("exp", whole, |i| Expr::unary(UnOp::Exp, x.at_as(acc, i) - max.broadcast(acc, i)));
    let ty = TensorType::new(acc, over.shape.clone());
    let sum = s.sum("sum", ty, &over.extents, |i, r| exp.at(&over.element(i, r)));
    let y = s.map("result", x.ty().clone(), |i| {
        let inverse = Expr::Const(Scalar::one(acc)) / sum.broadcast(acc, i);
        Expr::cast(acc, x.dtype(), exp.at(i) * inverse)
    });
    Ok(s.finish(kind("Softmax", axes), &[&y]))
}

/// The logarithm of the softmax along axes, without overflow.
pub fn log_softmax(axes: &[usize], x: &TensorType) -> Result<ComputeOp, OpError> {
    let over = Reduced::new(axes, true, &x.shape)?;
    let acc = float_accumulator(x.dtype)?;
    let (mut s, [x]) = Stages::new([x]);
    let max = push_max(&mut s, &over, acc, &x);
    let ty = TensorType::new(acc, over.shape.clone());
    let sum = s.sum("sum", ty, &over.extents, |i, r| {
        Expr::unary(UnOp::Exp, x.at_as(acc, &over.element(i, r)) - max.at(i))
    });
    let y = s.map("result", x.ty().clone(), |i| {
        let log = Expr::unary(UnOp::Log, sum.broadcast(acc, i));
        Expr::cast(acc, x.dtype(), x.at_as(acc, i) - max.broadcast(acc, i) - log)
    });
    Ok(s.finish(Kind::Other("LogSoftmax".into()), &[&y]))
}

/// One at the first maximum, zero elsewhere.
pub fn hardmax(axes: &[usize], x: &TensorType) -> Result<ComputeOp, OpError> {
    let over = Reduced::new(axes, true, &x.shape)?;
    float_accumulator(x.dtype)?;
    let (mut s, [x]) = Stages::new([x]);
    let ty = TensorType::new(DType::I64, over.shape.clone());
    let first = Combiner::ArgMax { last: false };
    let position = s.reduce("position", first, ty, &over.extents, |i, r| x.at(&over.element(i, r)));
    let y = s.map("result", x.ty().clone(), |i| {
        let own = axes.iter().map(|&a| (i[a].clone(), x.ty().shape[a]));
        let own = own.reduce(|(at, _), (i, extent)| (at * Expr::index(extent) + i, extent));
        let own = own.map_or(Expr::int(0), |(at, _)| at);
        let [one, zero] = [Scalar::one(x.dtype()), Scalar::zero(x.dtype())].map(Expr::Const);
        Expr::select(own.eq(position.broadcast(DType::I64, i)), one, zero)
    });
    Ok(s.finish(Kind::Other("Hardmax".into()), &[&y]))
}

fn push_max(s: &mut Stages, over: &Reduced, acc: DType, x: &Source) -> Source {
    let ty = TensorType::new(acc, over.shape.clone());
    let at = |i: &[Expr], r: &[Expr]| x.at_as(acc, &over.element(i, r));
    s.reduce("max", Combiner::Max, ty, &over.extents, at)
}

fn kind(name: &str, axes: &[usize]) -> Kind {
    match axes {
        [axis] => Kind::Softmax { axis: *axis },
        _ => Kind::Other(name.into()),
    }
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp;

    fn eval(op: Result<ComputeOp, OpError>, x: &Tensor) -> Vec<f64> {
        interp::eval(&op.unwrap().expr, &[x]).unwrap()[0].to_f64_vec()
    }

    #[test]
    fn rows_sum_to_one_and_logarithms_agree() {
        let x = Tensor::from_slice(&[2, 3], &[1.0f64, 2.0, 1000.0, 3.0, 3.0, 3.0]);
        let ty = TensorType::of(&x);
        let y = eval(softmax(&[1], &ty), &x);
        assert_eq!(y[2], 1.0);
        assert!((y[3] - 1.0 / 3.0).abs() < 1e-15);
        let log = eval(log_softmax(&[1], &ty), &x);
        assert!((log[0] + 999.0).abs() < 1e-12 && (log[4] + 3f64.ln()).abs() < 1e-12);
        let together = eval(softmax(&[0, 1], &ty), &x);
        assert!((together.iter().sum::<f64>() - 1.0).abs() < 1e-15 && together[3] < 1e-300);
        assert!(softmax(&[2], &ty).is_err());
    }

    #[test]
    fn hardmax_takes_the_first() {
        let x = Tensor::from_slice(&[2, 3], &[1.0f32, 5.0, 5.0, 9.0, 0.0, 9.0]);
        let ty = TensorType::of(&x);
        assert_eq!(eval(hardmax(&[1], &ty), &x), [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(eval(hardmax(&[0, 1], &ty), &x), [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    }
}
