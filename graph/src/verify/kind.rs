//! Whether the kind of a node says what its expression computes.
//!
//! Passes trust kinds, and never read the expression where the kind tells them enough. A kind that
//! determines the whole expression is checked by building that expression again; the others are
//! checked for what [`Kind`] promises of them.

use ansc_runtime::DType;

use super::Problem;
use crate::arith::Linear;
use crate::compute::{Compute, Reduce, Stage, TensorType};
use crate::expr::{BufId, Expr, VarId};
use crate::op::{ComputeOp, Kind, PoolAttrs, PoolMode};
use crate::ops::map::{broadcast_indices, broadcast_shapes};
use crate::ops::stored::{in_tf32, stored};
use crate::ops::{OpError, check_axes, concat, conv, matmul, pool, shape, softmax};

/// The problem with the kind of `op`, if there is one. The expression of `op` must be valid.
pub(super) fn disagreement(op: &ComputeOp) -> Option<Problem> {
    let reason = match again(op, &op.expr.inputs) {
        Some(Ok(again)) if same(&again.expr, &op.expr) => None,
        Some(_) if is_stored(op) => None,
        Some(Ok(again)) if same(&in_tf32(&again).expr, &op.expr) => None,
        Some(Ok(_)) => Some("its expression is another".to_owned()),
        Some(Err(refused)) => Some(refused.to_string()),
        None => promise(op).err().map(str::to_owned),
    };
    reason.map(|reason| Problem::Kind { kind: op.kind.to_string(), reason })
}

/// Whether the operator is the one that its kind describes for `f32`, but for operands that are
/// stored with fewer bits.
fn is_stored(op: &ComputeOp) -> bool {
    let types: Vec<DType> = op.expr.inputs.iter().map(|ty| ty.dtype).collect();
    let widened = |ty: &TensorType| match ty.dtype {
        DType::F16 | DType::BF16 => TensorType { dtype: DType::F32, ..ty.clone() },
        _ => ty.clone(),
    };
    let inputs: Vec<TensorType> = op.expr.inputs.iter().map(widened).collect();
    let wide = again(op, &inputs).and_then(Result::ok);
    wide.is_some_and(|wide| same(&stored(&wide, &types).expr, &op.expr))
}

/// The operator that the kind describes, built for these operands. `None` for kinds that do not
/// determine their expression.
fn again(op: &ComputeOp, inputs: &[TensorType]) -> Option<Result<ComputeOp, OpError>> {
    Some(match (&op.kind, inputs) {
        (Kind::Concat { axis }, all) => concat::concat(all, *axis),
        (Kind::Conv(attrs), [x, w]) => conv::widened_conv(attrs.clone(), x, w),
        (Kind::MatMul, [a, b]) => matmul::matmul(a, b),
        (Kind::Pool(attrs), [x]) => pooled(attrs, x),
        (Kind::Reshape, [x]) => shape::reshape(x, &op.expr.output_types().first()?.shape),
        (Kind::Softmax { axis }, [x]) => softmax::softmax(&[*axis], x),
        (Kind::Transpose(perm), [x]) => shape::transpose(x, perm),
        (
            Kind::Conv(_)
            | Kind::MatMul
            | Kind::Pool(_)
            | Kind::Reshape
            | Kind::Softmax { .. }
            | Kind::Transpose(_),
            _,
        ) => Err(OpError::Invalid(format!("it reads {} operands", inputs.len()))),
        (Kind::Map | Kind::Reduce { .. } | Kind::Pad | Kind::Slice | Kind::Other(_), _) => {
            return None;
        }
    })
}

fn pooled(attrs: &PoolAttrs, x: &TensorType) -> Result<ComputeOp, OpError> {
    match attrs.mode {
        PoolMode::Max => pool::max_pool(attrs.clone(), x),
        PoolMode::Average { .. } => {
            pool::average_pool(attrs.clone(), &vec![0; attrs.kernel.len()], x)
        }
    }
}

/// Equal but for the names of stages.
fn same(a: &Compute, b: &Compute) -> bool {
    let stage = |(a, b): (&Stage, &Stage)| a.ty == b.ty && a.reduce == b.reduce && a.body == b.body;
    a.inputs == b.inputs
        && a.outputs == b.outputs
        && a.stages.len() == b.stages.len()
        && a.stages.iter().zip(&b.stages).all(stage)
}

type Kept = Result<(), &'static str>;

fn ensure(holds: bool, otherwise: &'static str) -> Kept {
    if holds { Ok(()) } else { Err(otherwise) }
}

/// Checks the promises that the documentation of [`Kind`] makes for kinds that leave some of the
/// expression open.
fn promise(op: &ComputeOp) -> Kept {
    match &op.kind {
        Kind::Map => map(&op.expr, only_stage(&op.expr)?),
        Kind::Pad => pad(&op.expr, only_stage(&op.expr)?),
        Kind::Slice => slice(only_stage(&op.expr)?),
        Kind::Reduce { axes, keep } => reduce(&op.expr, axes, *keep),
        _ => Ok(()),
    }
}

fn only_stage(expr: &Compute) -> Result<&Stage, &'static str> {
    match (expr.stages.as_slice(), expr.outputs.as_slice()) {
        ([stage], [0]) if stage.reduce.is_none() => Ok(stage),
        _ => Err("it is not one stage without a reduction"),
    }
}

fn map(expr: &Compute, stage: &Stage) -> Kept {
    let loads = stage.body.loads();
    for (slot, ty) in expr.inputs.iter().enumerate() {
        let both = [ty.shape.as_slice(), &stage.ty.shape];
        let fits = broadcast_shapes(both).is_ok_and(|shape| shape == stage.ty.shape);
        ensure(fits, "an operand does not broadcast to the result")?;
        let own = broadcast_indices(&ty.shape, stage.ty.rank());
        let mut reads = loads.iter().filter(|(buffer, _)| buffer.index() == slot).peekable();
        ensure(reads.peek().is_some(), "it does not read an operand")?;
        ensure(
            reads.all(|(_, at)| **at == own),
            "it reads an operand at an index of another point",
        )?;
    }
    Ok(())
}

fn pad(expr: &Compute, stage: &Stage) -> Kept {
    let (x, fill) = match expr.inputs.as_slice() {
        [x] => (x, None),
        [x, fill] => (x, Some(fill)),
        _ => return Err("it reads neither one operand nor two"),
    };
    let alike = x.dtype == stage.ty.dtype && x.rank() == stage.ty.rank();
    ensure(alike, "the result differs from the operand in more than extents")?;
    ensure(fill.is_none_or(|fill| fill.len() == 1), "it fills with more than one element")?;
    let loads = stage.body.loads();
    let mut data = loads.iter().filter(|(buffer, _)| *buffer == BufId::new(0));
    let (Some((_, indices)), None) = (data.next(), data.next()) else {
        return Err("it does not read the operand at one place");
    };
    let own = |(axis, e): (usize, &Expr)| e.vars().iter().all(|v| *v == VarId::new(axis));
    ensure(indices.iter().enumerate().all(own), "an index depends on another axis")
}

/// Each index is a number, or runs along an axis of the result; the axes keep their order.
fn slice(stage: &Stage) -> Kept {
    let Expr::Load(_, indices) = &stage.body else {
        return Err("it does more than to read an element");
    };
    let mut next = 0;
    for index in indices {
        match Linear::from_expr(index).terms() {
            [] => {}
            [(Expr::Var(v), _)] if v.index() == next => next += 1,
            _ => return Err("an index does not run along its axis"),
        }
    }
    ensure(next == stage.ty.rank(), "an axis of the result is none of the operand")
}

fn reduce(expr: &Compute, axes: &[usize], keep: bool) -> Kept {
    let ([x], [output]) = (expr.inputs.as_slice(), expr.outputs.as_slice()) else {
        return Err("it has more than one operand or result");
    };
    ensure(check_axes(axes, x.rank()).is_ok_and(|sorted| sorted == axes), "its axes are none")?;
    let reduced = |axis: usize| axes.binary_search(&axis).is_ok();
    let left = (0..x.rank()).filter(|&axis| keep || !reduced(axis));
    let shape: Vec<usize> = left.map(|a| if reduced(a) { 1 } else { x.shape[a] }).collect();
    let alike = expr.stages.iter().all(|stage| stage.ty.shape == shape);
    ensure(alike && *output + 1 == expr.stages.len(), "a stage is not of the reduced shape")?;
    for stage in &expr.stages {
        for (buffer, indices) in stage.body.loads() {
            let fits = match expr.stage_of(buffer) {
                None => is_term(x, indices, stage, axes, keep),
                Some(_) => (0..shape.len()).map(Expr::var).eq(indices.iter().cloned()),
            };
            ensure(fits, "it reads another element than its own")?;
        }
    }
    Ok(())
}

/// Whether `indices` are those of the operand's element that belongs to a point of the result and
/// of the reduction: reduced axes run along the axes of the reduction, one each, the others along
/// the result's.
fn is_term(x: &TensorType, indices: &[Expr], stage: &Stage, axes: &[usize], keep: bool) -> bool {
    let rank = stage.ty.rank();
    let extents = stage.reduce.as_ref().map_or(&[][..], |Reduce { extents, .. }| extents);
    let (mut own, mut terms) = (0, Vec::new());
    for (axis, index) in indices.iter().enumerate() {
        let Expr::Var(v) = index else { return false };
        let is_reduced = axes.binary_search(&axis).is_ok();
        if is_reduced {
            let extent = v.index().checked_sub(rank).and_then(|term| extents.get(term));
            if extent != Some(&x.shape[axis]) || terms.contains(v) {
                return false;
            }
            terms.push(*v);
        } else if v.index() != own {
            return false;
        }
        own += usize::from(keep || !is_reduced);
    }
    terms.len() == extents.len()
}
