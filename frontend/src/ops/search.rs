//! Operators whose result has an order or a size that the data decides: `TopK`, `NonZero`,
//! `Unique`, `Compress`, `NonMaxSuppression`; and `Det`.

use ansc_graph::ops::gather;
use ansc_graph::{TensorType, Value, ValueId};
use ansc_runtime::host::HostOp;
use ansc_runtime::{DType, Tensor};

use super::OpEntry;
use super::args::{extent, only_element, only_int};
use super::reshape::reshaped;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("TopK", 1, top_k),
    OpEntry::onnx("NonZero", 9, non_zero),
    OpEntry::onnx("Unique", 11, unique),
    OpEntry::onnx("Compress", 9, compress),
    OpEntry::onnx("NonMaxSuppression", 10, non_max_suppression),
    OpEntry::onnx("Det", 11, det),
];

/// An output whose size is known only at run time and is no larger than `shape`.
fn at_most(name: &str, dtype: DType, shape: impl Into<Vec<usize>>) -> Value {
    Value { dynamic: true, ..Value::new(name, TensorType::new(dtype, shape)) }
}

fn top_k(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let axis = ctx.axis(ctx.int("axis", -1), ty.rank())?;
    let k = match ctx.opset() {
        ..10 => ctx.int_opt("k").ok_or_else(|| ctx.problem("it has no k"))?,
        _ => only_int(ctx, 1, "k")?,
    };
    let k = extent(ctx, k, "k")?;
    if k > ty.shape[axis] {
        return Err(ctx.problem(format!("axis {axis} of {ty} has fewer than {k} elements")));
    }
    let mut shape = ty.shape.clone();
    shape[axis] = k;
    let outputs = vec![
        Value::new("values", TensorType::new(ty.dtype, shape.clone())),
        Value::new("indices", TensorType::new(DType::I64, shape)),
    ];
    let (largest, sorted) = (ctx.int("largest", 1) != 0, ctx.int("sorted", 1) != 0);
    ctx.host(HostOp::TopK { axis, k, at_most: false, largest, sorted }, &[x], outputs)
}

fn non_zero(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let indices = at_most("indices", DType::I64, [ty.rank(), ty.len()]);
    ctx.host(HostOp::NonZero, &[x], vec![indices])
}

fn unique(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let axis = ctx.int_opt("axis").map(|axis| ctx.axis(axis, ty.rank())).transpose()?;
    let count = axis.map_or(ty.len(), |axis| ty.shape[axis]);
    let shape = if axis.is_some() { ty.shape.clone() } else { vec![count] };
    let whole = ctx.is_dynamic(x);
    let inverse =
        Value { dynamic: whole, ..Value::new("inverse", TensorType::new(DType::I64, [count])) };
    let outputs = vec![
        at_most("y", ty.dtype, shape),
        at_most("first", DType::I64, [count]),
        inverse,
        at_most("counts", DType::I64, [count]),
    ];
    ctx.host(HostOp::Unique { axis, sorted: ctx.int("sorted", 1) != 0 }, &[x], outputs)
}

fn compress(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (x, condition) = (ctx.input(0)?, ctx.input(1)?);
    let ty = ctx.ty(x);
    let found = ctx.ty(condition);
    if found.dtype != DType::Bool || found.rank() != 1 {
        return Err(ctx.problem(format!("its condition must be a list of bool, not {found}")));
    }
    let axis = ctx.int_opt("axis").map(|axis| ctx.axis(axis, ty.rank())).transpose()?;
    if let Some(condition) = ctx.constant(condition).filter(|_| !ctx.is_dynamic(x)) {
        return keep(ctx, x, condition.as_slice(), axis);
    }
    let shape = if axis.is_some() { ty.shape } else { vec![ty.len()] };
    let y = at_most("y", ty.dtype, shape);
    ctx.host(HostOp::Compress { axis }, &[x, condition], vec![y])
}

/// `Compress` where the condition is known: a choice of known slices.
fn keep(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    condition: &[bool],
    axis: Option<usize>,
) -> Result<Vec<ValueId>, Problem> {
    let (x, axis) = match axis {
        Some(axis) => (x, axis),
        None => (reshaped(ctx, x, &[ctx.ty(x).len()])?, 0),
    };
    let ty = ctx.ty(x);
    let known = condition.iter().take(ty.shape[axis]).enumerate();
    let kept: Vec<i64> = known.filter(|(_, keep)| **keep).map(|(i, _)| i as i64).collect();
    let indices = ctx.add_const(Tensor::from_slice(&[kept.len()], &kept))?;
    ctx.emit(gather::gather(&ty, &ctx.ty(indices), axis), &[x, indices])
}

fn non_max_suppression(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let (boxes, scores) = (ctx.input(0)?, ctx.input(1)?);
    let (box_ty, score_ty) = (ctx.ty(boxes), ctx.ty(scores));
    let fits = match (&box_ty.shape[..], &score_ty.shape[..]) {
        (&[batch, n, 4], &[b, _, m]) => batch == b && n == m,
        _ => false,
    };
    if !fits || [box_ty.dtype, score_ty.dtype] != [DType::F32; 2] {
        let reason = format!("boxes {box_ty} and scores {score_ty} do not fit together");
        return Err(ctx.problem(reason));
    }
    let number = |i: usize, what: &str| -> Result<Option<f32>, Problem> {
        let known = ctx.optional(i).map(|_| only_element(ctx, i, what)).transpose()?;
        Ok(known.map(|s| s.as_f64() as f32))
    };
    let max_per_class = match ctx.optional(2) {
        Some(_) => only_int(ctx, 2, "number of boxes per class")?.max(0),
        None => 0,
    };
    let op = HostOp::NonMaxSuppression {
        max_per_class,
        iou_threshold: number(3, "overlap threshold")?.unwrap_or(0.0),
        score_threshold: number(4, "score threshold")?,
        center_point_box: ctx.int("center_point_box", 0) != 0,
    };
    let per_class = score_ty.shape[2].min(usize::try_from(max_per_class).unwrap_or(0));
    let rows = score_ty.shape[0] * score_ty.shape[1] * per_class;
    ctx.host(op, &[boxes, scores], vec![at_most("selected", DType::I64, [rows, 3])])
}

fn det(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let [batch @ .., n, m] = ty.shape.as_slice() else {
        return Err(ctx.problem(format!("its input must be matrices, not {ty}")));
    };
    if n != m || !ty.dtype.is_float() {
        return Err(ctx.problem(format!("its input must be square matrices, not {ty}")));
    }
    let y = Value::new("y", TensorType::new(ty.dtype, batch));
    ctx.host(HostOp::Det, &[x], vec![y])
}
