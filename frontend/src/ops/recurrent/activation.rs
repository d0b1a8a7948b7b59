//! Activations that a recurrent operator lists by name, with parameters for those that take some.

use ansc_graph::ops::activation::{Activation, apply};
use ansc_graph::{Expr, Scalar, UnOp};
use ansc_runtime::DType;

use crate::problem::Problem;
use crate::walk::NodeCtx;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Function {
    Affine { alpha: f32, beta: f32 },
    Relu,
    ScaledTanh { alpha: f32, beta: f32 },
    Sigmoid,
    Tanh,
    Other(Activation),
}

/// The functions of all directions, one after the other; `defaults` are those of one direction.
pub(super) fn functions(
    ctx: &NodeCtx<'_>,
    directions: usize,
    defaults: &[&str],
) -> Result<Vec<Vec<Function>>, Problem> {
    let names = ctx
        .strings("activations")
        .unwrap_or_else(|| defaults.repeat(directions).iter().map(|s| s.to_string()).collect());
    let count = defaults.len() * directions;
    ctx.check(names.len() == count, || {
        format!("it lists {} activations, but uses {count}", names.len())
    })?;
    let mut alphas = ctx.floats("activation_alpha").unwrap_or_default().into_iter();
    let mut betas = ctx.floats("activation_beta").unwrap_or_default().into_iter();
    let all: Option<Vec<Function>> = names
        .iter()
        .map(|name| Function::parse(&name.to_ascii_lowercase(), &mut alphas, &mut betas))
        .collect();
    let all =
        all.ok_or_else(|| ctx.problem(format!("one of its activations {names:?} is not known")))?;
    Ok(all.chunks(defaults.len()).map(<[Function]>::to_vec).collect())
}

impl Function {
    /// Takes its parameters, if it has some, from the front of the lists.
    fn parse(
        name: &str,
        alphas: &mut impl Iterator<Item = f32>,
        betas: &mut impl Iterator<Item = f32>,
    ) -> Option<Function> {
        let mut alpha = |default| alphas.next().unwrap_or(default);
        let mut beta = |default| betas.next().unwrap_or(default);
        Some(match name {
            "affine" => Function::Affine { alpha: alpha(1.0), beta: beta(0.0) },
            "relu" => Function::Relu,
            "scaledtanh" => Function::ScaledTanh { alpha: alpha(1.0), beta: beta(1.0) },
            "sigmoid" => Function::Sigmoid,
            "tanh" => Function::Tanh,
            "elu" => Function::Other(Activation::Elu { alpha: alpha(1.0) }),
            "hardsigmoid" => {
                Function::Other(Activation::HardSigmoid { alpha: alpha(0.2), beta: beta(0.5) })
            }
            "leakyrelu" => Function::Other(Activation::LeakyRelu { alpha: alpha(0.01) }),
            "softplus" => Function::Other(Activation::Softplus),
            "softsign" => Function::Other(Activation::Softsign),
            "thresholdedrelu" => Function::Other(Activation::ThresholdedRelu { alpha: alpha(1.0) }),
            _ => return None,
        })
    }

    /// The value at `x`, an expression of the float type `d`.
    pub(super) fn of(self, d: DType, x: Expr) -> Expr {
        let c = |value: f32| Expr::float(d, f64::from(value));
        match self {
            Function::Affine { alpha, beta } => x * c(alpha) + c(beta),
            Function::Relu => x.max(Expr::Const(Scalar::zero(d))),
            Function::ScaledTanh { alpha, beta } => c(alpha) * Expr::unary(UnOp::Tanh, x * c(beta)),
            Function::Sigmoid => Expr::unary(UnOp::Sigmoid, x),
            Function::Tanh => Expr::unary(UnOp::Tanh, x),
            Function::Other(kind) => apply(kind, d, x),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_functions_take_parameters() {
        let (mut alphas, mut betas) = ([0.3f32, 0.4].into_iter(), [].into_iter());
        let mut parse = |name| Function::parse(name, &mut alphas, &mut betas).unwrap();
        assert_eq!(parse("tanh"), Function::Tanh);
        assert_eq!(parse("leakyrelu"), Function::Other(Activation::LeakyRelu { alpha: 0.3 }));
        assert_eq!(parse("affine"), Function::Affine { alpha: 0.4, beta: 0.0 });
        assert_eq!(parse("elu"), Function::Other(Activation::Elu { alpha: 1.0 }));
    }
}
