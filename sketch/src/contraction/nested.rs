//! Sums whose terms are sums themselves, in one nest: the terms stay in registers.
//!
//! ```text
//! part[i, b, j] = sum{r: 8} w[b, r, j] * x[i, b, r];   y[i, j] = sum{b: 64} (part[i, b, j] + c[i, b]) * scale[b, j]
//! =>
//! total = 0
//! for b in 0..64 { tile = c;  for r in 0..8 { tile += w * x };  total += tile * scale }
//! ```
//!
//! The outer sum is the only reader of the inner one, and reads each of its elements once.
//! Something that is added to an element, and is the same for all columns, is what the running
//! value begins with.

use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Reduce, Stage, VarId};

use crate::usage::readers;

/// Two sums that become one nest. Expressions are over the axes of the merged stage.
pub(crate) struct Nested {
    /// The stage that sums up what the inner one gives.
    pub(crate) outer: usize,
    /// The outer stage, with the inner one's reduction axes after its own, and the loads of both.
    pub(crate) merged: Stage,
    /// The axis of the outer stage that each axis of the inner one is.
    pub(crate) places: Vec<usize>,
    /// The value that the inner sum begins with, if that is not zero.
    pub(crate) start: Option<Expr>,
    /// How many reduction axes are the outer sum's.
    pub(crate) axes: usize,
}

/// Whether two stages of the subgraph would become one nest.
pub(crate) fn has_nested(compute: &Compute) -> bool {
    let done = vec![true; compute.stages.len()];
    (0..done.len()).any(|stage| Nested::of(compute, stage, &done).is_some())
}

impl Nested {
    /// None where the stage is no sum, or is read in another way. All else that the reader reads is
    /// `done`.
    pub(crate) fn of(compute: &Compute, stage: usize, done: &[bool]) -> Option<Nested> {
        let inner = compute.stage_buffer(stage);
        let [outer] = readers(compute, inner)[..] else { return None };
        let (first, second) = (&compute.stages[stage], &compute.stages[outer]);
        let (within, around) = (sum(first)?, sum(second)?);
        let is_there = |b: BufId| compute.stage_of(b).is_none_or(|s| s == stage || done[s]);
        let loads = second.body.loads();
        let mut own = loads.iter().filter(|(b, _)| *b == inner).map(|(_, at)| *at);
        let at = own.next()?;
        let fits = own.all(|other| other == at)
            && loads.iter().all(|(b, _)| is_there(*b))
            && !compute.outputs.contains(&stage);
        let places = places(at, second).filter(|_| fits)?;
        let (rank, moved) = (first.ty.rank(), second.extents().len());
        let term = first.body.substitute(&|v| match v.index().checked_sub(rank) {
            None => Some(at[v.index()].clone()),
            Some(axis) => Some(Expr::var(moved + axis)),
        });
        let start = begun(&second.body, inner, second.ty.rank() - 1);
        let mut merged = second.clone();
        merged.body = second.body.rewrite(&mut |e| match e {
            Expr::Load(b, _) if *b == inner => Some(term.clone()),
            _ => None,
        });
        let axes = around.extents.len();
        let extents = [&around.extents[..], &within.extents[..]].concat();
        merged.reduce = Some(Reduce { combiner: Combiner::Sum, extents });
        Some(Nested { outer, merged, places, start, axes })
    }
}

fn sum(s: &Stage) -> Option<&Reduce> {
    s.reduce.as_ref().filter(|r| r.combiner == Combiner::Sum && !s.extents().contains(&0))
}

/// The axes of the stage that the indices are, if they are all of them, each once, the vector axis
/// last.
fn places(at: &[Expr], s: &Stage) -> Option<Vec<usize>> {
    let axis = |e: &Expr| if let Expr::Var(v) = e { Some(v.index()) } else { None };
    let axes: Vec<usize> = at.iter().map(axis).collect::<Option<_>>()?;
    let is_vector = *axes.last()? == s.ty.rank().checked_sub(1)?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    (is_vector && sorted.into_iter().eq(0..s.extents().len())).then_some(axes)
}

/// The addend of the inner sum alone, if it is the same for all columns.
fn begun(body: &Expr, inner: BufId, vector: usize) -> Option<Expr> {
    let is_inner = |e: &Expr| matches!(e, Expr::Load(b, _) if *b == inner);
    let mut start = None;
    let loads = body.loads().iter().filter(|(b, _)| *b == inner).count();
    body.visit(&mut |e| match e {
        Expr::Binary(BinOp::Add, sum, more)
            if loads == 1 && is_inner(sum) && !more.vars().contains(&VarId::new(vector)) =>
        {
            start = Some((**more).clone());
        }
        _ => {}
    });
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Buffer, Scope};
    use crate::testing::{compare_scheduled, task};

    const SUMS: &str =
        "compute(in0: f32[5, 6, 8], in1: f32[6, 8, 19], in2: f32[6, 19], in3: f32[5, 6]) -> y {
      part: f32[5, 6, 19] = sum{r0: 8} mul(in0[i0, i1, r0], in1[i1, r0, i2])
      y: f32[5, 19] = sum{r0: 6} mul(add(part[i0, r0, i1], in3[i0, r0]), in2[r0, i1])
    }";

    fn found(text: &str) -> Option<Nested> {
        let compute = Compute::parse(text).unwrap();
        Nested::of(&compute, 0, &[false, false])
    }

    #[test]
    fn both_sums_are_one_nest() {
        let nested = found(SUMS).unwrap();
        assert_eq!(nested.merged.extents(), [5, 19, 6, 8]);
        assert!(nested.start.is_some());
        let task = task(SUMS);
        let scheduled = task.scheduled();
        compare_scheduled(&task.compute, &scheduled).unwrap();
        let in_memory = |b: &Buffer| b.scope == Scope::Global && b.name == "part";
        assert!(!scheduled.program.buffers.iter().any(in_memory), "{}", scheduled.program);
    }

    /// The addend differs between columns, so the sum cannot begin with it.
    #[test]
    fn what_columns_add_is_added_to_each_sum() {
        let text = SUMS.replace("in3[i0, r0]", "in2[r0, i1]");
        assert!(found(&text).unwrap().start.is_none());
        let task = task(&text);
        compare_scheduled(&task.compute, &task.scheduled()).unwrap();
    }

    #[test]
    fn other_readers_are_none() {
        // The first as the last axis, a maximum, an element read twice, a result.
        for (from, to) in [
            ("part[i0, r0, i1]", "part[i0, r0, sub(18, i1)]"),
            ("sum{r0: 6}", "max{r0: 6}"),
            ("in3[i0, r0]", "part[i0, 0, i1]"),
            ("-> y", "-> y, part"),
        ] {
            assert!(found(&SUMS.replace(from, to)).is_none(), "{to}");
        }
    }
}
