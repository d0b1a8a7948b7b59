//! Elementwise operators of one operand.

use ansc_graph::ops::map;
use ansc_graph::{UnOp, ValueId};

use super::OpEntry;
use crate::import::NodeCtx;
use crate::problem::Problem;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Identity", 1, identity),
    OpEntry::onnx("Abs", 1, |ctx| simple(ctx, UnOp::Abs)),
    OpEntry::onnx("Neg", 1, |ctx| simple(ctx, UnOp::Neg)),
    OpEntry::onnx("Exp", 1, |ctx| simple(ctx, UnOp::Exp)),
];

fn identity(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    Ok(vec![ctx.input(0)?])
}

fn simple(ctx: &mut NodeCtx<'_>, op: UnOp) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    ctx.emit(map::unary(op, &ctx.ty(x)), &[x])
}
