//! Random numbers: other ones in each run of a session, and the same ones in every new session.

use ansc_graph::ops::random::{self, Spread};
use ansc_graph::{Op, TensorType, Value, ValueId};
use ansc_runtime::DType;
use ansc_runtime::host::HostOp;

use super::OpEntry;
use super::args::{check_static, extent, extents, onnx_type};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Bernoulli", 15, bernoulli),
    OpEntry::onnx("Multinomial", 7, multinomial),
    OpEntry::onnx("RandomNormal", 1, normal),
    OpEntry::onnx("RandomNormalLike", 1, normal_like),
    OpEntry::onnx("RandomUniform", 1, uniform),
    OpEntry::onnx("RandomUniformLike", 1, uniform_like),
];

fn bernoulli(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let to = dtype_or(ctx, ty.dtype)?;
    let key = key(ctx)?;
    ctx.emit(random::bernoulli(&ty, to), &[key, x])
}

fn multinomial(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let samples = extent(ctx, ctx.int("sample_size", 1), "sample_size")?;
    let to = dtype_or(ctx, DType::I32)?;
    let key = key(ctx)?;
    ctx.emit(random::multinomial(&ctx.ty(x), samples, to), &[key, x])
}

fn normal(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let ty = of_shape(ctx)?;
    drawn(ctx, &ty, gauss(ctx))
}

fn normal_like(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let ty = like(ctx)?;
    drawn(ctx, &ty, gauss(ctx))
}

fn uniform(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let ty = of_shape(ctx)?;
    drawn(ctx, &ty, even(ctx))
}

fn uniform_like(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let ty = like(ctx)?;
    drawn(ctx, &ty, even(ctx))
}

fn gauss(ctx: &NodeCtx<'_>) -> Spread {
    Spread::Normal(ctx.float("mean", 0.0).into(), ctx.float("scale", 1.0).into())
}

fn even(ctx: &NodeCtx<'_>) -> Spread {
    Spread::Uniform(ctx.float("low", 0.0).into(), ctx.float("high", 1.0).into())
}

fn of_shape(ctx: &NodeCtx<'_>) -> Result<TensorType, Problem> {
    let shape = ctx.ints("shape").ok_or_else(|| ctx.problem("attribute `shape` is missing"))?;
    Ok(TensorType::new(dtype_or(ctx, DType::F32)?, extents(ctx, &shape, "shape")?))
}

fn like(ctx: &NodeCtx<'_>) -> Result<TensorType, Problem> {
    let x = ctx.input(0)?;
    check_static(ctx, x)?;
    let ty = ctx.ty(x);
    Ok(TensorType::new(dtype_or(ctx, ty.dtype)?, ty.shape))
}

fn dtype_or(ctx: &NodeCtx<'_>, own: DType) -> Result<DType, Problem> {
    ctx.int_opt("dtype").map_or(Ok(own), |code| onnx_type(ctx, code))
}

fn drawn(ctx: &mut NodeCtx<'_>, ty: &TensorType, spread: Spread) -> Result<Vec<ValueId>, Problem> {
    let key = key(ctx)?;
    ctx.emit(random::random(ty, spread), &[key])
}

/// The number that random numbers of this node begin with.
fn key(ctx: &mut NodeCtx<'_>) -> Result<ValueId, Problem> {
    if ctx.is_in_loop() {
        return Err(ctx
            .problem("its random numbers would be the same in each iteration of the loop")
            .remedy("make them before the loop, with an axis that the loop scans"));
    }
    let op =
        HostOp::Draw { stream: ctx.next_stream(), seed: ctx.float_opt("seed").map(f32::to_bits) };
    let output = Value::new(format!("{} (key)", ctx.name()), TensorType::new(DType::I64, []));
    Ok(ctx.add(Op::Host(op), &[], vec![output])[0])
}
