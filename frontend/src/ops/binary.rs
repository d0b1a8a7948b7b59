//! Elementwise operators of two operands, with numpy broadcasting.

use ansc_graph::ops::map;
use ansc_graph::{BinOp, ValueId};

use super::OpEntry;
use crate::import::NodeCtx;
use crate::problem::Problem;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Add", 7, |ctx| simple(ctx, BinOp::Add)),
    OpEntry::onnx("Sub", 7, |ctx| simple(ctx, BinOp::Sub)),
    OpEntry::onnx("Mul", 7, |ctx| simple(ctx, BinOp::Mul)),
    OpEntry::onnx("Div", 7, |ctx| simple(ctx, BinOp::Div)),
];

fn simple(ctx: &mut NodeCtx<'_>, op: BinOp) -> Result<Vec<ValueId>, Problem> {
    let (a, b) = (ctx.input(0)?, ctx.input(1)?);
    ctx.emit(map::binary(op, &ctx.ty(a), &ctx.ty(b)), &[a, b])
}
