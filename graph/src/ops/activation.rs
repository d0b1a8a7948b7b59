//! Activation functions: compositions of elementary functions of one operand.
//!
//! ```text
//! activation(Elu { alpha: 1 }, f32[4])  ->  map: f32[4] = select(0 <= b0[v0], b0[v0], exp(b0[v0]) - 1)
//! ```
//!
//! Half floats are computed in `f32` and rounded once.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use ansc_runtime::DType;

use super::stages::real;
use super::{OpError, map};
use crate::compute::TensorType;
use crate::expr::{Expr, UnOp};
use crate::op::ComputeOp;
use crate::scalar::Scalar;

/// ONNX's activations that are more than one operation; all of them work on each element alone.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Activation {
    /// `max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`.
    Celu {
        /// The negative of the limit to the left.
        alpha: f32,
    },
    /// `x` above zero, else `alpha * (exp(x) - 1)`.
    Elu {
        /// The negative of the limit to the left.
        alpha: f32,
    },
    /// With the error function.
    Gelu,
    /// The approximation with the hyperbolic tangent.
    GeluTanh,
    /// `alpha * x + beta`, kept between 0 and 1.
    HardSigmoid {
        /// The slope in the middle.
        alpha: f32,
        /// The value at zero.
        beta: f32,
    },
    /// `x` times the hard sigmoid of slope 1/6 and value 1/2.
    HardSwish,
    /// `x` from zero on, else `alpha * x`.
    LeakyRelu {
        /// The slope below zero.
        alpha: f32,
    },
    /// `x * tanh(ln(1 + exp(x)))`.
    Mish,
    /// `1 / x`.
    Reciprocal,
    /// `gamma` times the `Elu` of `alpha`.
    Selu {
        /// The factor of the exponential below zero.
        alpha: f32,
        /// The factor of the whole.
        gamma: f32,
    },
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `x / (1 + abs(x))`.
    Softsign,
    /// `x * sigmoid(alpha * x)`.
    Swish {
        /// The factor inside of the sigmoid.
        alpha: f32,
    },
    /// `x` above `alpha`, else 0.
    ThresholdedRelu {
        /// The threshold.
        alpha: f32,
    },
}

/// An activation of a tensor of floats.
pub fn activation(kind: Activation, x: &TensorType) -> Result<ComputeOp, OpError> {
    let acc = float_accumulator(x.dtype)?;
    map::map(std::slice::from_ref(x), x.dtype, |v| {
        let y = apply(kind, acc, Expr::cast(x.dtype, acc, v[0].clone()));
        Expr::cast(acc, x.dtype, y)
    })
}

/// `max(x, 0)`, of any number.
pub fn relu(x: &TensorType) -> Result<ComputeOp, OpError> {
    map::map(std::slice::from_ref(x), x.dtype, |v| {
        v[0].clone().max(Expr::Const(Scalar::zero(x.dtype)))
    })
}

/// `x + bias` below `-lambda`, `x - bias` above `lambda`, zero between; integers by way of `f64`.
pub fn shrink(lambda: f32, bias: f32, x: &TensorType) -> Result<ComputeOp, OpError> {
    let acc = if x.dtype.is_float() { x.dtype.accumulator() } else { DType::F64 };
    map::map(std::slice::from_ref(x), x.dtype, |v| {
        let x_acc = || Expr::cast(x.dtype, acc, v[0].clone());
        let below = x_acc().lt(real(acc, -lambda));
        let above = real(acc, lambda).lt(x_acc());
        let inner = Expr::select(above, x_acc() - real(acc, bias), real(acc, 0.0));
        Expr::cast(acc, x.dtype, Expr::select(below, x_acc() + real(acc, bias), inner))
    })
}

/// The value at `x`, an expression of the float type `d`.
pub fn apply(kind: Activation, d: DType, x: Expr) -> Expr {
    let c = |value: f64| real(d, value);
    let a = |value: f32| real(d, value);
    let exp = |e: Expr| Expr::unary(UnOp::Exp, e);
    match kind {
        Activation::Celu { alpha } => {
            let below = a(alpha) * (exp(x.clone() / a(alpha)) - c(1.0));
            x.max(c(0.0)) + below.min(c(0.0))
        }
        Activation::Elu { alpha } => negative(&x, d, a(alpha) * (exp(x.clone()) - c(1.0))),
        Activation::Gelu => {
            let erf = Expr::unary(UnOp::Erf, x.clone() * c(FRAC_1_SQRT_2));
            c(0.5) * x * (c(1.0) + erf)
        }
        Activation::GeluTanh => {
            let cubic = x.clone() + c(0.044715) * x.clone() * x.clone() * x.clone();
            let tanh = Expr::unary(UnOp::Tanh, c(FRAC_2_SQRT_PI * FRAC_1_SQRT_2) * cubic);
            c(0.5) * x * (c(1.0) + tanh)
        }
        Activation::HardSigmoid { alpha, beta } => (a(alpha) * x + a(beta)).min(c(1.0)).max(c(0.0)),
        Activation::HardSwish => x.clone() * (x * c(1.0 / 6.0) + c(0.5)).min(c(1.0)).max(c(0.0)),
        Activation::LeakyRelu { alpha } => negative(&x, d, a(alpha) * x.clone()),
        Activation::Mish => x.clone() * Expr::unary(UnOp::Tanh, softplus(d, x)),
        Activation::Reciprocal => c(1.0) / x,
        Activation::Selu { alpha, gamma } => {
            a(gamma) * negative(&x, d, a(alpha) * exp(x.clone()) - a(alpha))
        }
        Activation::Softplus => softplus(d, x),
        Activation::Softsign => x.clone() / (c(1.0) + Expr::unary(UnOp::Abs, x)),
        Activation::Swish { alpha } => {
            x.clone() * Expr::unary(UnOp::Sigmoid, if alpha == 1.0 { x } else { a(alpha) * x })
        }
        Activation::ThresholdedRelu { alpha } => Expr::select(a(alpha).lt(x.clone()), x, c(0.0)),
    }
}

/// `x`, or `below` where `x` is negative.
fn negative(x: &Expr, d: DType, below: Expr) -> Expr {
    Expr::select(x.clone().lt(real(d, 0.0)), below, x.clone())
}

/// `log(1 + exp(x))`, without overflow for large `x`.
fn softplus(d: DType, x: Expr) -> Expr {
    let small = Expr::unary(UnOp::Exp, Expr::unary(UnOp::Neg, Expr::unary(UnOp::Abs, x.clone())));
    x.max(real(d, 0.0)) + Expr::unary(UnOp::Log, small + real(d, 1.0))
}

/// The type in which to compute with floats of type `dtype`.
pub(super) fn float_accumulator(dtype: DType) -> Result<DType, OpError> {
    if dtype.is_float() {
        return Ok(dtype.accumulator());
    }
    Err(OpError::DType { what: "the operand", expected: "of a float".into(), found: dtype })
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp;

    #[test]
    fn values_match_closed_forms() {
        let at = |kind, x: f64| {
            let x = Tensor::scalar(x);
            let op = activation(kind, &TensorType::of(&x)).unwrap();
            interp::eval(&op.expr, &[&x]).unwrap()[0].to_f64_vec()[0]
        };
        // Independent values: tables and closed forms at points where they are simple.
        let cases = [
            (Activation::Celu { alpha: 2.0 }, -2.0, 2.0 * ((-1.0f64).exp() - 1.0)),
            (Activation::Elu { alpha: 0.5 }, -1.0, 0.5 * ((-1.0f64).exp() - 1.0)),
            (Activation::Gelu, 1.0, 0.8413447460685429),
            (Activation::GeluTanh, 1.0, 0.8411919906082768),
            (Activation::HardSigmoid { alpha: 0.25, beta: 0.5 }, 1.0, 0.75),
            (Activation::HardSwish, 4.0, 4.0),
            (Activation::HardSwish, -4.0, 0.0),
            (Activation::LeakyRelu { alpha: 0.25 }, -8.0, -2.0),
            (Activation::Mish, 0.0, 0.0),
            (Activation::Mish, 1.0, 0.8650983882673103),
            (Activation::Reciprocal, 4.0, 0.25),
            (Activation::Selu { alpha: 2.0, gamma: 3.0 }, 2.0, 6.0),
            (Activation::Softplus, 0.0, 2.0f64.ln()),
            (Activation::Softplus, 1000.0, 1000.0),
            (Activation::Softsign, -3.0, -0.75),
            (Activation::Swish { alpha: 1.0 }, 0.0, 0.0),
            (Activation::ThresholdedRelu { alpha: 1.0 }, 1.0, 0.0),
            (Activation::ThresholdedRelu { alpha: 1.0 }, 1.5, 1.5),
        ];
        for (kind, x, expected) in cases {
            let found = at(kind, x);
            assert!((found - expected).abs() < 1e-8, "{kind:?} at {x}: {found}, not {expected}");
        }
        assert!(at(Activation::Elu { alpha: 1.0 }, f64::NAN).is_nan());
        assert!(at(Activation::Softplus, f64::NAN).is_nan());
        assert!(activation(Activation::Gelu, &TensorType::new(DType::I32, [1])).is_err());
    }
}
