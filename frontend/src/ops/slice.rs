//! `Slice`, with ranges as attributes (to opset 9) or as inputs.

use ansc_graph::ValueId;
use ansc_graph::ops::slice;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("Slice", 1, import)];

/// As written in the model: from `start` to before `end`, both counted from the end where negative.
struct Range {
    axis: i64,
    start: i64,
    end: i64,
    step: i64,
}

fn import(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let mut starts = vec![0; ty.rank()];
    let mut steps = vec![1; ty.rank()];
    let mut shape = ty.shape.clone();
    let mut seen = vec![false; ty.rank()];
    for range in ranges(ctx)? {
        let axis = ctx.axis(range.axis, ty.rank())?;
        if std::mem::replace(&mut seen[axis], true) {
            return Err(ctx.problem(format!("it slices axis {axis} twice")));
        }
        (starts[axis], shape[axis]) =
            resolve(&range, ty.shape[axis]).ok_or_else(|| ctx.problem("it has a step of zero"))?;
        // A longer step leads out of the axis all the same.
        let longest = ty.shape[axis].max(1) as i64;
        steps[axis] = range.step.clamp(-longest, longest);
    }
    if ctx.passes_on(x, shape == ty.shape && steps.iter().all(|&s| s == 1)) {
        return Ok(vec![x]);
    }
    ctx.emit(slice::slice(&ty, &starts, &steps, &shape), &[x])
}

fn ranges(ctx: &NodeCtx<'_>) -> Result<Vec<Range>, Problem> {
    let list = |i: usize, name: &'static str| -> Result<Option<Vec<i64>>, Problem> {
        match ctx.opset() < 10 {
            true => Ok(ctx.ints(name)),
            false => ctx.optional(i).map(|_| ctx.known_i64s(i, name)).transpose(),
        }
    };
    let required = |i, name| list(i, name)?.ok_or_else(|| ctx.problem(format!("it has no {name}")));
    let (starts, ends) = (required(1, "starts")?, required(2, "ends")?);
    let axes = list(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = match ctx.opset() < 10 {
        true => None,
        false => list(4, "steps")?,
    };
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(ctx.problem("its starts, ends, axes and steps differ in length"));
    }
    let range = |i: usize| Range { axis: axes[i], start: starts[i], end: ends[i], step: steps[i] };
    Ok((0..starts.len()).map(range).collect())
}

/// The first element and the number of elements on an axis of `extent`; `None` for a step of zero.
fn resolve(range: &Range, extent: usize) -> Option<(i64, usize)> {
    let n = extent as i64;
    let wrap = |i: i64| if i < 0 { i.saturating_add(n) } else { i };
    // Where a range leads backwards, it starts at the last element at most and ends before the first.
    let (low, high) = if range.step > 0 { (0, n) } else { (-1, n - 1) };
    let start = wrap(range.start).clamp(low.max(0).min(high), high);
    let end = wrap(range.end).clamp(low, high);
    let distance = if range.step > 0 { end - start } else { start - end };
    let count = distance.max(0).unsigned_abs().div_ceil(match range.step.unsigned_abs() {
        0 => return None,
        step => step,
    });
    Some((start, count as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements that a range chooses, as Python's `range(n)[start:end:step]` does.
    fn chosen(start: i64, end: i64, step: i64, extent: usize) -> Option<Vec<i64>> {
        let (first, count) = resolve(&Range { axis: 0, start, end, step }, extent)?;
        Some((0..count as i64).map(|i| first + i * step).collect())
    }

    #[test]
    fn ranges_are_those_of_python() {
        assert_eq!(chosen(1, 4, 2, 10), Some(vec![1, 3]));
        assert_eq!(chosen(-3, i64::MAX, 1, 10), Some(vec![7, 8, 9]));
        assert_eq!(chosen(-1, i64::MIN, -1, 3), Some(vec![2, 1, 0]));
        assert_eq!(chosen(20, 0, -3, 10), Some(vec![9, 6, 3]));
        assert_eq!(chosen(0, -1, -1, 3), Some(vec![]));
        assert_eq!(chosen(5, 2, 1, 10), Some(vec![]));
        assert_eq!(chosen(-100, 100, i64::MAX, 10), Some(vec![0]));
        assert_eq!(chosen(0, 5, 1, 0), Some(vec![]));
        assert_eq!(chosen(0, 5, -1, 0), Some(vec![]));
        // Unlike Python, ONNX clamps the start of a backward range to the first element.
        assert_eq!(chosen(-5, -20, -1, 3), Some(vec![0]));
        assert_eq!(chosen(4, i64::MIN, i64::MIN, 5), Some(vec![4]));
        assert_eq!(chosen(0, 1, 0, 3), None);
    }
}
