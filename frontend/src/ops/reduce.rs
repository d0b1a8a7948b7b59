//! Reductions along axes. The axes are an attribute in older opsets and an input in newer ones.

use ansc_graph::ValueId;
use ansc_graph::ops::arg_extreme::{ArgExtreme, arg_extreme};
use ansc_graph::ops::reduce::{Reduction, reduce};

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("ReduceSum", 1, |ctx| reduction(ctx, Reduction::Sum)),
    OpEntry::onnx("ReduceMean", 1, |ctx| reduction(ctx, Reduction::Mean)),
    OpEntry::onnx("ReduceMax", 1, |ctx| reduction(ctx, Reduction::Max)),
    OpEntry::onnx("ReduceMin", 1, |ctx| reduction(ctx, Reduction::Min)),
    OpEntry::onnx("ReduceProd", 1, |ctx| reduction(ctx, Reduction::Prod)),
    OpEntry::onnx("ReduceL1", 1, |ctx| reduction(ctx, Reduction::L1)),
    OpEntry::onnx("ReduceL2", 1, |ctx| reduction(ctx, Reduction::L2)),
    OpEntry::onnx("ReduceLogSum", 1, |ctx| reduction(ctx, Reduction::LogSum)),
    OpEntry::onnx("ReduceLogSumExp", 1, |ctx| reduction(ctx, Reduction::LogSumExp)),
    OpEntry::onnx("ReduceSumSquare", 1, |ctx| reduction(ctx, Reduction::SumSquare)),
    OpEntry::onnx("ArgMax", 1, |ctx| position(ctx, true)),
    OpEntry::onnx("ArgMin", 1, |ctx| position(ctx, false)),
];

fn reduction(ctx: &mut NodeCtx<'_>, kind: Reduction) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let axes = match (ctx.ints("axes"), ctx.optional(1)) {
        (Some(axes), _) => axes,
        (None, Some(_)) => ctx.known_i64s(1, "axes")?,
        (None, None) => vec![],
    };
    let all = axes.is_empty() && !ctx.flag("noop_with_empty_axes", false);
    let axes: Vec<usize> = match all {
        true => (0..ty.rank()).collect(),
        false => axes.iter().map(|&a| ctx.axis(a, ty.rank())).collect::<Result<_, _>>()?,
    };
    ctx.emit(reduce(kind, &axes, ctx.flag("keepdims", true), &ty), &[x])
}

fn position(ctx: &mut NodeCtx<'_>, largest: bool) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let attrs = ArgExtreme {
        axis: ctx.axis(ctx.int("axis", 0), ty.rank())?,
        largest,
        keep: ctx.flag("keepdims", true),
        last: ctx.int("select_last_index", 0) != 0,
    };
    ctx.emit(arg_extreme(attrs, &ty), &[x])
}
