//! Sequences of tensors, which exist only during the import.
//!
//! A sequence is the list of its elements' values, so that operators on sequences add nothing to
//! the graph:
//!
//! ```text
//! s = SequenceConstruct(x, y);  t = SequenceInsert(s, z);  SequenceAt(t, 2)   ->   z
//! ```
//! Positions and lengths must therefore be known at compile time.

use ansc_graph::ValueId;
use ansc_graph::ops::slice;
use ansc_runtime::Tensor;

use super::OpEntry;
use super::args::{extent, extents, only_int};
use super::join::parts_of;
use crate::problem::Problem;
use crate::walk::{Binding, MAX_ELEMENTS, NodeCtx};

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::any("SequenceEmpty", 11, |_| Ok(vec![sequence([])])),
    OpEntry::any("SequenceConstruct", 11, |ctx| Ok(vec![sequence(ctx.all_inputs()?)])),
    OpEntry::any("SequenceAt", 11, at),
    OpEntry::any("SequenceInsert", 11, insert),
    OpEntry::any("SequenceErase", 11, erase),
    OpEntry::any("SequenceLength", 11, length),
    OpEntry::any("SequenceMap", 17, map),
    OpEntry::any("SplitToSequence", 11, split),
    OpEntry::any("ConcatFromSequence", 11, concat),
];

fn sequence(elements: impl IntoIterator<Item = ValueId>) -> Binding {
    Binding::Sequence(elements.into_iter().collect())
}

/// The position that input `i` gives, counted from the end where negative; less than `bound`.
fn position(ctx: &NodeCtx<'_>, i: usize, len: usize, bound: usize) -> Result<usize, Problem> {
    let given = only_int(ctx, i, "position")?;
    let from_start = if given < 0 { given.checked_add(len as i64) } else { Some(given) };
    let position = from_start.and_then(|p| usize::try_from(p).ok()).filter(|&p| p < bound);
    position.ok_or_else(|| {
        ctx.problem(format!("position {given} is outside of a sequence of {len} elements"))
    })
}

fn at(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    let elements = ctx.sequence(0)?;
    let position = position(ctx, 1, elements.len(), elements.len())?;
    Ok(vec![Binding::Value(elements[position])])
}

/// Before the position; at the end where none is given.
fn insert(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    let mut elements = ctx.sequence(0)?.to_vec();
    let len = elements.len();
    let position = match ctx.optional(2) {
        Some(_) => position(ctx, 2, len, len + 1)?,
        None => len,
    };
    elements.insert(position, ctx.input(1)?);
    Ok(vec![sequence(elements)])
}

/// The last element where no position is given.
fn erase(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    let mut elements = ctx.sequence(0)?.to_vec();
    let len = elements.len();
    ctx.check(len > 0, || "its sequence is empty".into())?;
    let position = match ctx.optional(1) {
        Some(_) => position(ctx, 1, len, len)?,
        None => len - 1,
    };
    elements.remove(position);
    Ok(vec![sequence(elements)])
}

fn length(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    let len = ctx.sequence(0)?.len() as i64;
    Ok(vec![Binding::Value(ctx.add_const(Tensor::scalar(len))?)])
}

/// A copy of the body for each element; inputs that are tensors go to every copy.
fn map(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    let body = ctx.graph("body").ok_or_else(|| ctx.problem("it has no `body`"))?;
    let count = ctx.sequence(0)?.len();
    let inputs: Vec<Binding> = (0..ctx.n_inputs()).map(|i| ctx.binding(i)).collect();
    let mut outputs = vec![Vec::with_capacity(count); body.output.len()];
    for index in 0..count {
        let element = |input: &Binding| match input {
            Binding::Sequence(elements) => elements.get(index).map(|&v| Binding::Value(v)),
            tensor => Some(tensor.clone()),
        };
        let elements: Option<Vec<Binding>> = inputs.iter().map(element).collect();
        let elements = elements.ok_or_else(|| ctx.problem("its sequences differ in length"))?;
        for (output, result) in outputs.iter_mut().zip(ctx.inline_body(body, &elements)?) {
            let value = result.value().ok_or_else(|| ctx.problem("its body must give tensors"))?;
            output.push(value);
        }
    }
    Ok(outputs.into_iter().map(sequence).collect())
}

/// Parts of given sizes, parts of one size, or single slices, which lose the axis unless
/// `keepdims`.
fn split(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let axis = ctx.axis(ctx.int("axis", 0), ty.rank())?;
    let whole = ty.shape[axis];
    if ctx.optional(1).is_none() && ctx.int("keepdims", 1) == 0 {
        few(ctx, whole)?;
        let slice = |i| ctx.emit1(slice::select(&ty, axis, i), &[x]);
        return Ok(vec![sequence((0..whole).map(slice).collect::<Result<Vec<_>, _>>()?)]);
    }
    let sizes = sizes(ctx, whole)?;
    Ok(vec![sequence(parts_of(ctx, x, axis, sizes)?)])
}

fn sizes(ctx: &NodeCtx<'_>, whole: usize) -> Result<Vec<usize>, Problem> {
    let Some(split) = ctx.optional(1) else {
        few(ctx, whole)?;
        return Ok(vec![1; whole]);
    };
    let given = ctx.known_i64s(1, "split")?;
    if ctx.ty(split).rank() > 0 {
        return extents(ctx, &given, "split");
    }
    match extent(ctx, given.first().copied().unwrap_or(0), "split")? {
        0 => Err(ctx.problem("its split is 0")),
        size => {
            few(ctx, whole.div_ceil(size))?;
            Ok(chunks(whole, size))
        }
    }
}

/// An element of a sequence is a value of the graph: a shape alone must not ask for any number of
/// them.
fn few(ctx: &NodeCtx<'_>, elements: usize) -> Result<(), Problem> {
    if elements <= MAX_ELEMENTS {
        return Ok(());
    }
    let reason = format!("it makes a sequence of {elements} elements, of {MAX_ELEMENTS} at most");
    Err(ctx.problem(reason).remedy("split into larger parts, or use Slice where they are used"))
}

/// Parts of `size`, but for the last one, which may be smaller.
fn chunks(whole: usize, size: usize) -> Vec<usize> {
    let full = vec![size; whole / size];
    full.into_iter().chain(Some(whole % size).filter(|&rest| rest > 0)).collect()
}

fn concat(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    let elements = ctx.sequence(0)?;
    let first = elements.first().ok_or_else(|| ctx.problem("its sequence is empty"))?;
    let stacks = ctx.int("new_axis", 0) != 0;
    let axis = ctx.int_opt("axis").ok_or_else(|| ctx.problem("it has no axis"))?;
    let axis = ctx.axis(axis, ctx.ty(*first).rank() + usize::from(stacks))?;
    let mut parts = elements.to_vec();
    if stacks {
        for part in &mut parts {
            let mut shape = ctx.shape(*part);
            ctx.check(axis <= shape.len(), || "its elements differ in rank".into())?;
            shape.insert(axis, 1);
            *part = ctx.reshape(*part, &shape)?;
        }
    }
    Ok(vec![Binding::Value(ctx.concat(&parts, axis)?)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_chunk_is_smaller() {
        assert_eq!(chunks(7, 3), [3, 3, 1]);
        assert_eq!(chunks(6, 3), [3, 3]);
        assert_eq!(chunks(2, 3), [2]);
        assert!(chunks(0, 3).is_empty());
    }
}
