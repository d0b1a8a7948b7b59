//! Softmax and its relatives. Before opset 13 they saw their operand as a matrix, and worked on all
//! axes from `axis` on together.

use ansc_graph::ops::OpError;
use ansc_graph::ops::softmax::{hardmax, log_softmax, softmax};
use ansc_graph::{ComputeOp, TensorType, ValueId};

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("Softmax", 1, |ctx| normalised(ctx, softmax)),
    OpEntry::onnx("LogSoftmax", 1, |ctx| normalised(ctx, log_softmax)),
    OpEntry::onnx("Hardmax", 1, |ctx| normalised(ctx, hardmax)),
];

type Constructor = fn(&[usize], &TensorType) -> Result<ComputeOp, OpError>;

fn normalised(ctx: &mut NodeCtx<'_>, constructor: Constructor) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let rank = ty.rank();
    let axes: Vec<usize> = match ctx.opset() {
        13.. => vec![ctx.axis(ctx.int("axis", -1), rank)?],
        // The axis may be the rank itself here: then every row of the matrix has one element.
        _ => match ctx.int("axis", 1) {
            axis if axis == rank as i64 => vec![],
            axis => (ctx.axis(axis, rank)?..rank).collect(),
        },
    };
    ctx.emit(constructor(&axes, &ty), &[x])
}
