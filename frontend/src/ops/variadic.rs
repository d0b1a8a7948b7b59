//! Elementwise operators of any number of operands, and the choice between two.

use ansc_graph::ops::elementwise;
use ansc_graph::{BinOp, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Max", 1, |ctx| combined(ctx, BinOp::Max)),
    OpEntry::onnx("Min", 1, |ctx| combined(ctx, BinOp::Min)),
    OpEntry::onnx("Sum", 1, |ctx| combined(ctx, BinOp::Add)),
    OpEntry::onnx("Mean", 1, mean),
    OpEntry::onnx("Where", 9, choose),
];

fn combined(ctx: &mut NodeCtx<'_>, op: BinOp) -> Result<Vec<ValueId>, Problem> {
    let inputs = ctx.all_inputs()?;
    let types: Vec<_> = inputs.iter().map(|&v| ctx.ty(v)).collect();
    if types.iter().any(|t| t.dtype == DType::Bool) {
        return Err(ctx.problem("its operands must be numbers, but are bool"));
    }
    ctx.emit(elementwise::variadic(op, &types), &inputs)
}

fn mean(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let inputs = ctx.all_inputs()?;
    let types: Vec<_> = inputs.iter().map(|&v| ctx.ty(v)).collect();
    ctx.emit(elementwise::mean(&types), &inputs)
}

fn choose(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let [condition, a, b] = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
    let op = elementwise::choose(&ctx.ty(condition), &ctx.ty(a), &ctx.ty(b));
    ctx.emit(op, &[condition, a, b])
}
