//! Pooling: over windows, and over all spatial elements.

use ansc_graph::ValueId;
use ansc_graph::op::PoolMode;
use ansc_graph::ops::pool::{self, GlobalPool};

use super::OpEntry;
use super::window::{WindowAttrs, spatial};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("MaxPool", 1, max_pool),
    OpEntry::onnx("AveragePool", 1, average_pool),
    OpEntry::onnx("LpPool", 2, lp_pool),
    OpEntry::onnx("GlobalMaxPool", 1, |ctx| global(ctx, GlobalPool::Max)),
    OpEntry::onnx("GlobalAveragePool", 1, |ctx| global(ctx, GlobalPool::Average)),
    OpEntry::onnx("GlobalLpPool", 2, |ctx| {
        let p = norm(ctx)?;
        global(ctx, GlobalPool::Lp(p))
    }),
];

/// The window of a pool over input `x`.
pub(crate) fn window(ctx: &NodeCtx<'_>, x: ValueId) -> Result<WindowAttrs, Problem> {
    let shape = ctx.shape(x);
    let input = spatial(ctx, &shape)?;
    let kernel = ctx.ints("kernel_shape");
    let kernel = kernel.ok_or_else(|| ctx.problem("it has no attribute kernel_shape"))?;
    let mut window = WindowAttrs::read(ctx, input, ctx.sizes(&kernel, "kernel_shape")?)?;
    if ctx.int("ceil_mode", 0) != 0 {
        window.round_up(input);
    }
    Ok(window)
}

fn max_pool(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let attrs = window(ctx, x)?.pool(PoolMode::Max);
    let ty = ctx.ty(x);
    if !ctx.wants_output(1) {
        return ctx.emit(pool::max_pool(attrs, &ty), &[x]);
    }
    let column_major = ctx.int("storage_order", 0) != 0;
    ctx.emit(pool::max_pool_with_indices(attrs, column_major, &ty), &[x])
}

fn average_pool(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    Ok(vec![average(ctx, x)?])
}

pub(crate) fn average(ctx: &mut NodeCtx<'_>, x: ValueId) -> Result<ValueId, Problem> {
    let window = window(ctx, x)?;
    let overhang = window.overhang.clone();
    let count_padding = ctx.int("count_include_pad", 0) != 0;
    let attrs = window.pool(PoolMode::Average { count_padding });
    ctx.emit1(pool::average_pool(attrs, &overhang, &ctx.ty(x)), &[x])
}

fn lp_pool(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let (attrs, p) = (window(ctx, x)?.pool(PoolMode::Max), norm(ctx)?);
    ctx.emit(pool::lp_pool(attrs, p, &ctx.ty(x)), &[x])
}

fn norm(ctx: &NodeCtx<'_>) -> Result<i64, Problem> {
    let p = ctx.int("p", 2);
    ctx.check(p > 0, || format!("its p is {p}"))?;
    Ok(p)
}

fn global(ctx: &mut NodeCtx<'_>, mode: GlobalPool) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    ctx.emit(pool::global_pool(mode, &ctx.ty(x)), &[x])
}
