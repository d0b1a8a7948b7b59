//! Reductions along axes, and what is a reduction but for a function before or after it.
//!
//! ```text
//! reduce(Mean, [1], keep, f16[4, 8])
//! ->  sum:    f32[4, 1] = sum[8] f32(b0[v0, v2])
//!     result: f16[4, 1] = f16(b1[v0, v1] / 8)
//! ```
//!
//! Nothing reduced gives the identity of the combiner: zero for sums, minus infinity for maxima.

use ansc_runtime::DType;

use super::stages::{Source, Stages, real};
use super::{OpError, check_axes, sized};
use crate::compute::{Combiner, TensorType};
use crate::expr::{Expr, UnOp};
use crate::op::{ComputeOp, Kind};

/// How a reduction of ONNX combines the elements along its axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The largest one.
    Max,
    /// The smallest one.
    Min,
    /// Their product.
    Prod,
    /// The sum of absolute values.
    L1,
    /// The root of the sum of squares.
    L2,
    /// The logarithm of the sum.
    LogSum,
    /// The logarithm of the sum of exponentials.
    LogSumExp,
    /// The sum of squares.
    SumSquare,
}

/// Axes of a reduction: which elements of the operand an element of the result depends on.
pub(super) struct Reduced {
    axes: Vec<usize>,
    keep: bool,
    /// Shape of the result.
    pub(super) shape: Vec<usize>,
    /// Extents of the reduced axes.
    pub(super) extents: Vec<usize>,
}

impl Reduced {
    pub(super) fn new(axes: &[usize], keep: bool, shape: &[usize]) -> Result<Reduced, OpError> {
        let axes = check_axes(axes, shape.len())?;
        let reduced = |i: &usize| axes.binary_search(i).is_ok();
        let result = (0..shape.len())
            .filter(|i| keep || !reduced(i))
            .map(|i| if reduced(&i) { 1 } else { shape[i] })
            .collect();
        let extents = axes.iter().map(|&a| shape[a]).collect();
        Ok(Reduced { axes, keep, shape: result, extents })
    }

    /// Indices into the operand, from those of the result and the reduced ones.
    pub(super) fn element(&self, i: &[Expr], r: &[Expr]) -> Vec<Expr> {
        let rank = if self.keep { i.len() } else { i.len() + r.len() };
        let (mut kept, mut reduced) = (i.iter(), r.iter());
        (0..rank)
            .map(|axis| {
                let is_reduced = self.axes.binary_search(&axis).is_ok();
                let own = if is_reduced && !self.keep { None } else { kept.next() };
                let source = if is_reduced { reduced.next() } else { own };
                source.expect("one index per axis").clone()
            })
            .collect()
    }

    fn fold(
        &self,
        s: &mut Stages,
        name: &str,
        combiner: Combiner,
        dtype: DType,
        term: impl Fn(&[Expr], &[Expr]) -> Expr,
    ) -> Source {
        let ty = TensorType::new(dtype, self.shape.clone());
        if self.axes.is_empty() {
            return s.map(name, ty, |i| term(i, &[]));
        }
        s.reduce(name, combiner, ty, &self.extents, |i, r| term(i, r))
    }
}

/// The reduction of `x` over `axes`, which stay with extent 1 where `keep`.
pub fn reduce(
    kind: Reduction,
    axes: &[usize],
    keep: bool,
    x: &TensorType,
) -> Result<ComputeOp, OpError> {
    let reduced = Reduced::new(axes, keep, &x.shape)?;
    sized(TensorType::new(x.dtype, reduced.shape.clone()))?;
    let acc = accumulator(kind, x.dtype)?;
    let dtype = x.dtype;
    let (mut s, [x]) = Stages::new([x]);
    let y = push(kind, &mut s, &reduced, acc, &x);
    let y = s.cast(y, dtype);
    let kind = Kind::Reduce { axes: reduced.axes, keep };
    Ok(s.finish(kind, &[&y]))
}

/// The sum of `x` over `axes`, which vanish, in `dtype`: elements are converted one by one, so that
/// no tensor of converted ones is ever there.
pub fn sum_as(dtype: DType, axes: &[usize], x: &TensorType) -> Result<ComputeOp, OpError> {
    let reduced = Reduced::new(axes, false, &x.shape)?;
    sized(TensorType::new(dtype, reduced.shape.clone()))?;
    let (mut s, [x]) = Stages::new([x]);
    let y = reduced
        .fold(&mut s, "sum", Combiner::Sum, dtype, |i, r| x.at_as(dtype, &reduced.element(i, r)));
    Ok(s.finish(Kind::Reduce { axes: reduced.axes, keep: false }, &[&y]))
}

/// The type in which elements are compared. That of halves is single precision, which has all of
/// them: processors convert halves to compare them, and the best one so far need not be converted
/// again for each element.
pub(super) fn compared(dtype: DType) -> DType {
    if dtype.is_float() { dtype.accumulator() } else { dtype }
}

/// Roots and logarithms of integers are computed in `f64`.
fn accumulator(kind: Reduction, dtype: DType) -> Result<DType, OpError> {
    match kind {
        Reduction::Max | Reduction::Min => Ok(compared(dtype)),
        _ if dtype == DType::Bool => Err(OpError::DType {
            what: "the operand",
            expected: "of a number".into(),
            found: dtype,
        }),
        Reduction::L2 | Reduction::LogSum | Reduction::LogSumExp if !dtype.is_float() => {
            Ok(DType::F64)
        }
        _ => Ok(dtype.accumulator()),
    }
}

fn push(kind: Reduction, s: &mut Stages, over: &Reduced, acc: DType, x: &Source) -> Source {
    let at = |i: &[Expr], r: &[Expr]| x.at_as(acc, &over.element(i, r));
    let ty = TensorType::new(acc, over.shape.clone());
    match kind {
        Reduction::Sum => over.fold(s, "sum", Combiner::Sum, acc, at),
        Reduction::Prod => over.fold(s, "product", Combiner::Prod, acc, at),
        Reduction::Max => over.fold(s, "max", Combiner::Max, acc, at),
        Reduction::Min => over.fold(s, "min", Combiner::Min, acc, at),
        Reduction::L1 => {
            over.fold(s, "sum", Combiner::Sum, acc, |i, r| Expr::unary(UnOp::Abs, at(i, r)))
        }
        Reduction::SumSquare => over.fold(s, "sum", Combiner::Sum, acc, |i, r| at(i, r) * at(i, r)),
        Reduction::Mean => {
            let sum = over.fold(s, "sum", Combiner::Sum, acc, at);
            let count: usize = over.extents.iter().product();
            s.map("mean", ty, |i| sum.at(i) / number(acc, count))
        }
        Reduction::L2 => {
            let sum = over.fold(s, "sum", Combiner::Sum, acc, |i, r| at(i, r) * at(i, r));
            s.map("root", ty, |i| Expr::unary(UnOp::Sqrt, sum.at(i)))
        }
        Reduction::LogSum => {
            let sum = over.fold(s, "sum", Combiner::Sum, acc, at);
            s.map("log", ty, |i| Expr::unary(UnOp::Log, sum.at(i)))
        }
        Reduction::LogSumExp => log_sum_exp(s, over, acc, x),
    }
}

fn number(dtype: DType, value: usize) -> Expr {
    Expr::cast(DType::I64, dtype, Expr::index(value))
}

/// `log(sum(exp(x - m))) + m`, `m` the maximum, or zero where that is infinite.
fn log_sum_exp(s: &mut Stages, over: &Reduced, acc: DType, x: &Source) -> Source {
    let at = |i: &[Expr], r: &[Expr]| x.at_as(acc, &over.element(i, r));
    let ty = TensorType::new(acc, over.shape.clone());
    let max = over.fold(s, "max", Combiner::Max, acc, at);
    let shift = s.map("shift", ty.clone(), |i| {
        Expr::select(Expr::unary(UnOp::IsInf, max.at(i)), real(acc, 0.0), max.at(i))
    });
    let sum = over
        .fold(s, "sum", Combiner::Sum, acc, |i, r| Expr::unary(UnOp::Exp, at(i, r) - shift.at(i)));
    s.map("log", ty, |i| Expr::unary(UnOp::Log, sum.at(i)) + shift.at(i))
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;
    use half::f16;

    use super::*;
    use crate::interp;

    fn eval(kind: Reduction, axes: &[usize], keep: bool, x: &Tensor) -> Tensor {
        let op = reduce(kind, axes, keep, &TensorType::of(x)).unwrap();
        interp::eval(&op.expr, &[x]).unwrap().remove(0)
    }

    #[test]
    fn values_and_shapes() {
        let x = Tensor::from_slice(&[2, 3], &[1.0f64, 2.0, 3.0, -4.0, 5.0, 6.0]);
        let rows = [
            (Reduction::Sum, [6.0, 7.0]),
            (Reduction::Mean, [2.0, 7.0 / 3.0]),
            (Reduction::Max, [3.0, 6.0]),
            (Reduction::Min, [1.0, -4.0]),
            (Reduction::Prod, [6.0, -120.0]),
            (Reduction::L1, [6.0, 15.0]),
            (Reduction::L2, [14f64.sqrt(), 77f64.sqrt()]),
            (Reduction::LogSum, [6f64.ln(), 7f64.ln()]),
            (Reduction::SumSquare, [14.0, 77.0]),
            (Reduction::LogSumExp, [3.4076059644443806, 6.313294876975569]),
        ];
        for (kind, expected) in rows {
            let y = eval(kind, &[1], true, &x);
            assert_eq!(y.shape(), [2, 1]);
            for (a, b) in y.to_f64_vec().iter().zip(expected) {
                assert!((a - b).abs() < 1e-12, "{kind:?}: {a}, not {b}");
            }
        }
        assert_eq!(eval(Reduction::Sum, &[0, 1], false, &x).to_f64_vec(), [13.0]);
        assert_eq!(eval(Reduction::Sum, &[0], false, &x).to_f64_vec(), [-3.0, 7.0, 9.0]);
        assert_eq!(eval(Reduction::SumSquare, &[], false, &x).to_f64_vec()[3], 16.0);
    }

    #[test]
    fn half_floats_are_summed_in_single_precision() {
        let x = Tensor::from_slice(&[4096], &vec![f16::ONE; 4096]);
        assert_eq!(eval(Reduction::Sum, &[0], false, &x).to_f64_vec(), [4096.0]);
    }

    #[test]
    fn half_floats_are_compared_in_single_precision() {
        let x = Tensor::from_slice(&[3], &[1.5, -2.0, 0.25].map(f16::from_f32));
        for (kind, expected) in [(Reduction::Max, 1.5), (Reduction::Min, -2.0)] {
            let op = reduce(kind, &[0], false, &TensorType::of(&x)).unwrap();
            assert_eq!(op.expr.stages[0].ty.dtype, DType::F32);
            let y = interp::eval(&op.expr, &[&x]).unwrap().remove(0);
            assert_eq!((y.dtype(), y.to_f64_vec()), (DType::F16, vec![expected]));
        }
    }

    #[test]
    fn extremes() {
        let none = Tensor::zeros(DType::F32, &[2, 0]);
        let of_nothing = |kind| eval(kind, &[1], false, &none).to_f64_vec()[0];
        assert_eq!(of_nothing(Reduction::Sum), 0.0);
        assert_eq!(of_nothing(Reduction::Max), f64::NEG_INFINITY);
        assert_eq!(of_nothing(Reduction::LogSumExp), f64::NEG_INFINITY);
        assert!(of_nothing(Reduction::Mean).is_nan());
        let large = Tensor::from_slice(&[3], &[1000f32, f32::NEG_INFINITY, 1000.0]);
        let y = eval(Reduction::LogSumExp, &[0], false, &large).to_f64_vec()[0];
        assert!((y - 1000.6931).abs() < 1e-3);
        let ty = TensorType::new(DType::F32, [2, 3]);
        assert!(reduce(Reduction::Sum, &[2], false, &ty).is_err());
        assert!(reduce(Reduction::Sum, &[0, 0], false, &ty).is_err());
    }
}
