//! Sums and products of everything up to an element.

use ansc_graph::ops::cumulative::{Cumulative, in_steps, steps};
use ansc_graph::{BinOp, ValueId};

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("CumSum", 11, |ctx| accumulated(ctx, BinOp::Add)),
    OpEntry::onnx("CumProd", 26, |ctx| accumulated(ctx, BinOp::Mul)),
];

fn accumulated(ctx: &mut NodeCtx<'_>, op: BinOp) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let axis = match ctx.known_i64s(1, "axis")?.as_slice() {
        [axis] => ctx.axis(*axis, ty.rank())?,
        other => return Err(ctx.problem(format!("its axis must be one number, not {other:?}"))),
    };
    let attrs = Cumulative {
        axis,
        op,
        exclusive: ctx.int("exclusive", 0) != 0,
        reverse: ctx.int("reverse", 0) != 0,
    };
    let enough = steps(ty.shape[axis]);
    let mut steps = 0;
    while ctx.settled(steps < enough) || steps < enough {
        steps += 1;
    }
    ctx.emit(in_steps(attrs, &ty, steps), &[x])
}
