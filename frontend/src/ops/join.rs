//! `Concat` and `Split`.

use ansc_graph::ops::{concat, slice};
use ansc_graph::{TensorType, ValueId};

use super::OpEntry;
use super::args::{extent, extents};
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] =
    &[OpEntry::onnx("Concat", 1, concat), OpEntry::onnx("Split", 1, split)];

fn concat(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let inputs = ctx.all_inputs()?;
    if let [only] = inputs[..] {
        return Ok(vec![only]);
    }
    let types: Vec<TensorType> = inputs.iter().map(|&v| ctx.ty(v)).collect();
    let rank = types.first().map_or(0, TensorType::rank);
    let axis = ctx.int_opt("axis").or((ctx.opset() < 4).then_some(1));
    let axis = ctx.axis(axis.ok_or_else(|| ctx.problem("it has no axis"))?, rank)?;
    ctx.emit(concat::concat(&types, axis), &inputs)
}

fn split(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let axis = ctx.axis(ctx.int("axis", 0), ty.rank())?;
    let parts = parts(ctx, ty.shape[axis])?;
    parts_of(ctx, x, axis, parts)
}

/// `x` cut along `axis` into parts of the given extents.
pub(super) fn parts_of(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    axis: usize,
    parts: Vec<usize>,
) -> Result<Vec<ValueId>, Problem> {
    let ty = ctx.ty(x);
    if parts.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)) != Some(ty.shape[axis]) {
        let reason = format!("parts of {parts:?} do not make up axis {axis} of {ty}");
        return Err(ctx.problem(reason));
    }
    let mut begin = 0;
    let mut outputs = Vec::with_capacity(parts.len());
    for part in parts {
        outputs.push(ctx.emit1(slice::narrow(&ty, axis, begin, part), &[x])?);
        begin += part;
    }
    Ok(outputs)
}

/// The extents of the parts, one for each output.
fn parts(ctx: &NodeCtx<'_>, whole: usize) -> Result<Vec<usize>, Problem> {
    let listed = match ctx.optional(1) {
        Some(_) => Some(ctx.known_i64s(1, "split")?),
        None => ctx.ints("split"),
    };
    if let Some(listed) = listed {
        return extents(ctx, &listed, "split");
    }
    let count = match ctx.int_opt("num_outputs") {
        Some(count) => extent(ctx, count, "number of outputs")?,
        None => ctx.n_outputs(),
    };
    if count == 0 || count > ctx.n_outputs() {
        return Err(ctx.problem(format!("it cannot give {count} outputs")));
    }
    Ok(even(whole, count))
}

/// `count` parts that are equal, but for the last ones, which may be smaller.
fn even(whole: usize, count: usize) -> Vec<usize> {
    let part = whole.div_ceil(count);
    (0..count).map(|i| whole.saturating_sub(i.saturating_mul(part)).min(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_is_smaller() {
        assert_eq!(even(7, 4), [2, 2, 2, 1]);
        assert_eq!(even(6, 3), [2, 2, 2]);
        assert_eq!(even(2, 4), [1, 1, 0, 0]);
        assert_eq!(even(0, 2), [0, 0]);
    }
}
