//! Elementwise operators of several operands that are more than one [`BinOp`].
//!
//! ```text
//! power(i32[4], f32[])  ->  map: i32[4] = i32(pow(f64(b0[v0]), f64(b1[])))
//! ```

use ansc_runtime::DType;

use super::map::{broadcast_shapes, map};
use super::stages::real;
use super::{OpError, sized};
use crate::compute::TensorType;
use crate::expr::{BinOp, Expr};
use crate::op::ComputeOp;
use crate::scalar::Scalar;

fn same_types(inputs: &[TensorType]) -> Result<DType, OpError> {
    let first = inputs.first().ok_or_else(|| OpError::Invalid("no operand is given".into()))?;
    match inputs.iter().find(|t| t.dtype != first.dtype) {
        None => Ok(first.dtype),
        Some(other) => Err(OpError::DType {
            what: "every operand",
            expected: first.dtype.to_string(),
            found: other.dtype,
        }),
    }
}

/// `a op b op c ..`
pub fn variadic(op: BinOp, inputs: &[TensorType]) -> Result<ComputeOp, OpError> {
    let dtype = same_types(inputs)?;
    map(inputs, op.result(dtype), |values| combine(op, values))
}

fn combine(op: BinOp, values: Vec<Expr>) -> Expr {
    let combined = values.into_iter().reduce(|a, b| Expr::binary(op, a, b));
    combined.expect("there is an operand")
}

/// The arithmetic mean of operands of floats.
pub fn mean(inputs: &[TensorType]) -> Result<ComputeOp, OpError> {
    let dtype = same_types(inputs)?;
    let acc = super::activation::float_accumulator(dtype)?;
    map(inputs, dtype, |values| {
        let wide = values.into_iter().map(|v| Expr::cast(dtype, acc, v)).collect();
        let sum = combine(BinOp::Add, wide);
        Expr::cast(acc, dtype, sum / real(acc, inputs.len() as f64))
    })
}

/// `condition ? a : b`
pub fn choose(
    condition: &TensorType,
    a: &TensorType,
    b: &TensorType,
) -> Result<ComputeOp, OpError> {
    if condition.dtype != DType::Bool {
        let found = condition.dtype;
        return Err(OpError::DType { what: "the condition", expected: "bool".into(), found });
    }
    let dtype = same_types(&[a.clone(), b.clone()])?;
    map(&[condition.clone(), a.clone(), b.clone()], dtype, |v| {
        Expr::select(v[0].clone(), v[1].clone(), v[2].clone())
    })
}

/// `min(max(x, low), high)`
pub fn clip(
    low: Option<Scalar>,
    high: Option<Scalar>,
    x: &TensorType,
) -> Result<ComputeOp, OpError> {
    if let Some(bound) = low.into_iter().chain(high).find(|b| b.dtype() != x.dtype) {
        let (expected, found) = (x.dtype.to_string(), bound.dtype());
        return Err(OpError::DType { what: "a bound", expected, found });
    }
    map(std::slice::from_ref(x), x.dtype, |v| {
        let from_below = low.into_iter().fold(v[0].clone(), |x, b| x.max(Expr::Const(b)));
        high.into_iter().fold(from_below, |x, b| x.min(Expr::Const(b)))
    })
}

/// `x` to the power of `exponent`, in the type of `x`. Where the types differ the power is computed
/// in the wider kind: floats if either is a float.
pub fn power(x: &TensorType, exponent: &TensorType) -> Result<ComputeOp, OpError> {
    let (a, b) = (x.dtype, exponent.dtype);
    if let Some(found) = [a, b].into_iter().find(|&d| d == DType::Bool) {
        return Err(OpError::DType { what: "an operand", expected: "of a number".into(), found });
    }
    let acc = match (a.is_float(), b.is_float()) {
        _ if a == b => a,
        (true, _) => a.accumulator(),
        (false, true) => DType::F64,
        (false, false) => DType::I64,
    };
    map(&[x.clone(), exponent.clone()], a, |v| {
        let [x, exponent] = [(a, 0), (b, 1)].map(|(d, i)| Expr::cast(d, acc, v[i].clone()));
        Expr::cast(acc, a, Expr::binary(BinOp::Pow, x, exponent))
    })
}

/// `x`, or `slope * x` where `x` is negative. The slope broadcasts to `x`, not the reverse.
pub fn prelu(x: &TensorType, slope: &TensorType) -> Result<ComputeOp, OpError> {
    let dtype = same_types(&[x.clone(), slope.clone()])?;
    let out = broadcast_shapes([x.shape.as_slice(), slope.shape.as_slice()])?;
    if sized(TensorType::new(dtype, out))?.shape != x.shape {
        return Err(OpError::Broadcast { a: slope.shape.clone(), b: x.shape.clone() });
    }
    map(&[x.clone(), slope.clone()], dtype, |v| {
        let below = v[0].clone().lt(Expr::Const(Scalar::zero(dtype)));
        Expr::select(below, v[1].clone() * v[0].clone(), v[0].clone())
    })
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp;

    fn eval(op: &ComputeOp, inputs: &[&Tensor]) -> Vec<f64> {
        interp::eval(&op.expr, inputs).unwrap()[0].to_f64_vec()
    }

    #[test]
    fn powers_of_mixed_types() {
        let ints = Tensor::from_slice(&[3], &[2i32, 3, 4]);
        let floats = Tensor::from_slice(&[3], &[0.5f32, 2.0, -1.0]);
        let mixed = |a: &Tensor, b: &Tensor| {
            let op = power(&TensorType::of(a), &TensorType::of(b)).unwrap();
            (eval(&op, &[a, b]), op.expr.output_types()[0].dtype)
        };
        assert_eq!(mixed(&ints, &floats), (vec![1.0, 9.0, 0.0], DType::I32));
        assert_eq!(mixed(&floats, &ints), (vec![0.25, 8.0, 1.0], DType::F32));
        let longs = Tensor::from_slice(&[1], &[3i64]);
        assert_eq!(mixed(&ints, &longs), (vec![8.0, 27.0, 64.0], DType::I32));
    }

    #[test]
    fn clip_keeps_nan_and_prefers_the_upper_bound() {
        let x = Tensor::from_slice(&[4], &[-1.0f32, 0.5, 3.0, f32::NAN]);
        let [zero, one] = [0.0, 1.0].map(|v| Some(Scalar::from_f64(DType::F32, v)));
        let op = |low, high| clip(low, high, &TensorType::of(&x)).unwrap();
        let y = eval(&op(zero, one), &[&x]);
        assert_eq!(y[..3], [0.0, 0.5, 1.0]);
        assert!(y[3].is_nan());
        assert_eq!(eval(&op(one, zero), &[&x])[..3], [0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_slope_must_not_widen_its_operand() {
        let ty = |shape: &[usize]| TensorType::new(DType::F32, shape);
        assert!(prelu(&ty(&[2, 3]), &ty(&[3])).is_ok());
        assert!(prelu(&ty(&[3]), &ty(&[2, 3])).is_err());
        assert!(variadic(BinOp::Add, &[]).is_err());
        assert!(variadic(BinOp::Add, &[ty(&[2]), TensorType::new(DType::I8, [2])]).is_err());
    }
}
