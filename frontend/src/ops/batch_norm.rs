//! `BatchNormalization`: in inference `x * factor + shift`, both known at compile time as a rule,
//! so that they can be folded into a convolution before.

use ansc_graph::ops::normalize::batch_norm_training;
use ansc_graph::{BinOp, Expr, UnOp, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("BatchNormalization", 1, batch_norm)];

fn batch_norm(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let trains = ctx.opset() < 7 && ctx.int("is_test", 0) == 0;
    ctx.check(!trains, || "training is supported from opset 14 on; `is_test` is 0".into())?;
    if ctx.opset() >= 14 && ctx.int("training_mode", 0) != 0 {
        return training(ctx);
    }
    let outputs = (1..ctx.n_outputs()).any(|i| ctx.wants_output(i));
    ctx.check(!outputs, || "only its first output is known in inference".into())?;
    inference(ctx)
}

fn training(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let inputs: Vec<ValueId> = (0..5).map(|i| ctx.input(i)).collect::<Result<_, _>>()?;
    let (epsilon, momentum) = (ctx.float("epsilon", 1e-5), ctx.float("momentum", 0.9));
    let [x, scale, mean] = [0, 1, 3].map(|i| ctx.ty(inputs[i]));
    ctx.emit(batch_norm_training(epsilon, momentum, &x, &scale, &mean), &inputs)
}

fn inference(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    ctx.check(ty.rank() >= 1, || "its input has no axis".into())?;
    let mut parameters = Vec::new();
    for i in 1..5 {
        let parameter = ctx.input(i)?;
        let lined_up = line_up(ctx, parameter, &ty.shape)?;
        parameters.push(ctx.cast(lined_up, ty.dtype.accumulator())?);
    }
    let [scale, bias, mean, variance] = parameters[..] else {
        return Err(ctx.problem("it takes five inputs"));
    };
    let epsilon = ctx.float("epsilon", 1e-5);
    let acc = ty.dtype.accumulator();
    let factor = ctx.map(&[scale, variance], acc, |v| {
        let shifted = v[1].clone() + Expr::float(acc, epsilon.into());
        v[0].clone() / Expr::unary(UnOp::Sqrt, shifted)
    })?;
    let shift =
        ctx.map(&[bias, mean, factor], acc, |v| v[0].clone() - v[1].clone() * v[2].clone())?;
    let y = match ty.dtype {
        DType::F16 | DType::BF16 => ctx.map(&[x, factor, shift], ty.dtype, |v| {
            let wide = Expr::cast(ty.dtype, acc, v[0].clone());
            Expr::cast(acc, ty.dtype, wide * v[1].clone() + v[2].clone())
        })?,
        _ => {
            let scaled = ctx.binary(BinOp::Mul, x, factor)?;
            ctx.add_values(scaled, shift)?
        }
    };
    Ok(vec![y])
}

/// A parameter under a shape that broadcasts to activations: one element per channel, or, in old
/// opsets with `spatial` 0, one per element of a sample.
fn line_up(ctx: &mut NodeCtx<'_>, p: ValueId, x: &[usize]) -> Result<ValueId, Problem> {
    let ty = ctx.ty(p);
    let axis = usize::from(x.len() > 1);
    let fits = ty.shape == x[axis..] || (ty.rank() == 1 && ty.shape[0] == x[axis]);
    ctx.check(fits, || format!("a parameter of shape {:?} does not fit {x:?}", ty.shape))?;
    if ty.rank() == 1 { ctx.along(p, axis, x.len()) } else { Ok(p) }
}
