//! `ScatterElements` (once `Scatter`), `ScatterND`, `TensorScatter`, `MaxUnpool`.

use ansc_graph::ops::pad::PadMode;
use ansc_graph::ops::{cache, fill};
use ansc_graph::{Scalar, TensorType, Value, ValueId};
use ansc_runtime::host::{HostOp, ScatterMode};

use super::OpEntry;
use super::args::{check_static, extents};
use super::indices::checked_if_known;
use super::pad::padded;
use super::reshape::reshaped;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Scatter", 9, elements),
    OpEntry::onnx("ScatterElements", 11, elements),
    OpEntry::onnx("ScatterND", 11, nd),
    OpEntry::onnx("TensorScatter", 24, tensor_scatter),
    OpEntry::onnx("MaxUnpool", 9, max_unpool),
];

fn mode(ctx: &NodeCtx<'_>) -> Result<ScatterMode, Problem> {
    Ok(match ctx.string("reduction", "none").as_str() {
        "none" => ScatterMode::Assign,
        "add" => ScatterMode::Add,
        "mul" => ScatterMode::Mul,
        "max" => ScatterMode::Max,
        "min" => ScatterMode::Min,
        other => return Err(ctx.problem(format!("reduction `{other}` is not known"))),
    })
}

/// Data, indices and updates, with what holds for both operators checked.
fn operands(ctx: &NodeCtx<'_>) -> Result<([ValueId; 3], [TensorType; 3]), Problem> {
    let values = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
    let types = values.map(|v| ctx.ty(v));
    for value in values {
        check_static(ctx, value)?;
    }
    if types[0].dtype != types[2].dtype || !types[1].dtype.is_int() {
        return Err(misfit(ctx, &types));
    }
    Ok((values, types))
}

fn misfit(ctx: &NodeCtx<'_>, [data, indices, updates]: &[TensorType; 3]) -> Problem {
    ctx.problem(format!("indices {indices} and updates {updates} do not fit data {data}"))
}

fn elements(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (values, types) = operands(ctx)?;
    let [data, indices, updates] = &types;
    let axis = ctx.axis(ctx.int("axis", 0), data.rank())?;
    let inside = |(i, (n, m)): (usize, (&usize, &usize))| i == axis || n <= m;
    let pairs = indices.shape.iter().zip(&data.shape);
    if indices.rank() != data.rank()
        || indices.shape != updates.shape
        || !pairs.enumerate().all(inside)
    {
        return Err(misfit(ctx, &types));
    }
    checked_if_known(ctx, values[1], &[data.shape[axis]])?;
    let y = Value::new("y", data.clone());
    ctx.host(HostOp::ScatterElements { axis, mode: mode(ctx)? }, &values, vec![y])
}

fn nd(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (values, types) = operands(ctx)?;
    let [data, indices, updates] = &types;
    let fits = indices.shape.split_last().is_some_and(|(&depth, tuples)| {
        let slice = data.shape.get(depth..);
        slice.is_some_and(|slice| updates.shape == [tuples, slice].concat())
    });
    if !fits {
        return Err(misfit(ctx, &types));
    }
    let depth = indices.shape.last().copied().unwrap_or(0);
    checked_if_known(ctx, values[1], &data.shape[..depth])?;
    let y = Value::new("y", data.clone());
    ctx.host(HostOp::ScatterNd { mode: mode(ctx)? }, &values, vec![y])
}

fn tensor_scatter(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let inputs: Vec<ValueId> =
        [Some(ctx.input(0)?), Some(ctx.input(1)?), ctx.optional(2)].into_iter().flatten().collect();
    let types: Vec<TensorType> = inputs.iter().map(|&v| ctx.ty(v)).collect();
    let axis = ctx.axis(ctx.int("axis", -2), types[0].rank())?;
    let circular = match ctx.string("mode", "linear").as_str() {
        "linear" => false,
        "circular" => true,
        other => return Err(ctx.problem(format!("mode `{other}` is not known"))),
    };
    ctx.emit(cache::update(&types, axis, circular), &inputs)
}

/// The pooled values scattered into zeros of the shape that the pool had as its input; the output
/// shape, if there is one, then cuts or fills up with zeros at the end of each axis.
fn max_unpool(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, indices) = (ctx.input(0)?, ctx.input(1)?);
    let ty = ctx.ty(x);
    check_static(ctx, x)?;
    if ctx.ty(indices).shape != ty.shape {
        return Err(ctx.problem("its indices do not fit its input"));
    }
    let pooled = unpooled_shape(ctx, &ty)?;
    let len = pooled.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let len = len.ok_or_else(|| ctx.problem("its output is too large"))?;
    let zero = Scalar::zero(ty.dtype);
    let zeros = ctx.emit1(fill::constant(zero, &[len]), &[])?;
    let (updates, targets) = (reshaped(ctx, x, &[ty.len()])?, reshaped(ctx, indices, &[ty.len()])?);
    let scatter = HostOp::ScatterElements { axis: 0, mode: ScatterMode::Assign };
    let flat = Value::new("flat", TensorType::new(ty.dtype, [len]));
    let flat = ctx.host(scatter, &[zeros, targets, updates], vec![flat])?;
    let y = reshaped(ctx, flat[0], &pooled)?;
    let wanted = match ctx.optional(2) {
        Some(_) => extents(ctx, &ctx.known_i64s(2, "output shape")?, "output shape")?,
        None => pooled.clone(),
    };
    if wanted.len() != pooled.len() {
        return Err(ctx.problem(format!("its output shape {wanted:?} does not fit {pooled:?}")));
    }
    let after: Vec<i64> = wanted.iter().zip(&pooled).map(|(&w, &p)| w as i64 - p as i64).collect();
    Ok(vec![padded(ctx, y, None, PadMode::Constant(zero), &vec![0; after.len()], &after)?])
}

/// The shape of a tensor that pools to `pooled`.
fn unpooled_shape(ctx: &NodeCtx<'_>, pooled: &TensorType) -> Result<Vec<usize>, Problem> {
    let kernel = ctx.ints("kernel_shape").ok_or_else(|| ctx.problem("it has no kernel_shape"))?;
    let rank = kernel.len();
    let strides = ctx.ints("strides").unwrap_or_else(|| vec![1; rank]);
    let pads = ctx.ints("pads").unwrap_or_else(|| vec![0; 2 * rank]);
    if pooled.rank() != rank + 2 || strides.len() != rank || pads.len() != 2 * rank {
        return Err(ctx.problem(format!("its kernel {kernel:?} does not fit its input {pooled}")));
    }
    let extent = |i: usize| {
        let steps = (pooled.shape[i + 2] as i64).checked_sub(1)?.checked_mul(strides[i])?;
        let pads = pads[i].checked_add(pads[rank + i])?;
        let extent = steps.checked_add(kernel[i])?.checked_sub(pads)?;
        usize::try_from(extent).ok()
    };
    let spatial: Option<Vec<usize>> = (0..rank).map(extent).collect();
    let spatial = spatial.ok_or_else(|| ctx.problem("its output has no valid shape"))?;
    Ok([&pooled.shape[..2], &spatial].concat())
}
