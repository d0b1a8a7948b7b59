//! Activations by name, as operators with a fused activation give them.

use ansc_graph::{Expr, UnOp, ValueId};
use ansc_runtime::DType;

use super::compose::One;
use crate::problem::Problem;
use crate::walk::NodeCtx;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Activation {
    Identity,
    Unary(UnOp),
    LeakyRelu(f32),
    Clip(f32, f32),
    HardSigmoid(f32, f32),
}

impl Activation {
    pub(crate) fn parse(
        ctx: &NodeCtx<'_>,
        name: &str,
        parameters: &[f32],
    ) -> Result<Activation, Problem> {
        let parameter = |i: usize, default: f32| parameters.get(i).copied().unwrap_or(default);
        Ok(match name {
            "" => Activation::Identity,
            "Relu" => Activation::LeakyRelu(0.0),
            "Tanh" => Activation::Unary(UnOp::Tanh),
            "Sigmoid" => Activation::Unary(UnOp::Sigmoid),
            "LeakyRelu" => Activation::LeakyRelu(parameter(0, 0.01)),
            "Clip" => Activation::Clip(parameter(0, f32::MIN), parameter(1, f32::MAX)),
            "HardSigmoid" => Activation::HardSigmoid(parameter(0, 0.2), parameter(1, 0.5)),
            _ => return Err(ctx.problem(format!("its activation `{name}` is not known"))),
        })
    }

    pub(crate) fn emit(self, ctx: &mut NodeCtx<'_>, x: ValueId) -> One {
        if self == Activation::Identity {
            return Ok(x);
        }
        let dtype = ctx.dtype(x);
        ctx.map(&[x], dtype, |v| self.of(dtype, v[0].clone()))
    }

    fn of(self, dtype: DType, x: Expr) -> Expr {
        let c = |value: f32| Expr::float(dtype, f64::from(value));
        match self {
            Activation::Identity => x,
            Activation::Unary(op) => Expr::unary(op, x),
            Activation::LeakyRelu(0.0) => x.max(c(0.0)),
            Activation::LeakyRelu(slope) => {
                Expr::select(x.clone().lt(c(0.0)), x.clone() * c(slope), x)
            }
            Activation::Clip(low, high) => x.max(c(low)).min(c(high)),
            Activation::HardSigmoid(alpha, beta) => {
                (x * c(alpha) + c(beta)).max(c(0.0)).min(c(1.0))
            }
        }
    }
}
