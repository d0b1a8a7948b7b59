//! Steps of cumulative sums and products: each element is combined with one at a distance before.
//!
//! ```text
//! s[i, j] = x[i, j] + select(2 <= i, x[i - 2, j], 0)    distance 2 along axis 0
//! ```
//!
//! A chain of such steps, each of twice the distance of the one before, from 1 on, combines each
//! element with all before it.

use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Stage, TensorType, VarId};

use crate::affine::{Extents, Sum};
use crate::region;

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Doubling {
    pub(crate) source: BufId,
    pub(crate) combiner: Combiner,
    pub(crate) axis: usize,
    /// From the last element to the first.
    pub(crate) reverse: bool,
    pub(crate) distance: usize,
}

impl Doubling {
    /// If `value` is that of a step at the place `own` of a tensor.
    pub(crate) fn of(value: &Expr, own: &[VarId], ty: &TensorType) -> Option<Doubling> {
        let Expr::Binary(op, near, far) = value else { return None };
        let combiner = match op {
            BinOp::Add => Combiner::Sum,
            BinOp::Mul => Combiner::Prod,
            _ => return None,
        };
        let (Expr::Load(source, here), Expr::Select(inside, there, neutral)) = (&**near, &**far)
        else {
            return None;
        };
        let Expr::Load(same, at) = &**there else { return None };
        let is_here = here.iter().cloned().eq(own.iter().map(|v| Expr::Var(*v)));
        let is_plain = source == same && is_here && at.len() == own.len();
        if !is_plain || **neutral != Expr::Const(combiner.identity(ty.dtype)?) {
            return None;
        }
        let (axis, moved) = shift(own, at)?;
        let (reverse, distance) = (moved > 0, usize::try_from(moved.unsigned_abs()).ok()?);
        let step = Doubling { source: *source, combiner, axis, reverse, distance };
        let is_inside = region::slack(inside, &Extents::default());
        (is_inside == Some(step.inside(own[axis], ty.shape[axis]))).then_some(step)
    }

    /// If the stage is a step.
    pub(crate) fn of_stage(stage: &Stage) -> Option<Doubling> {
        let own: Vec<VarId> = (0..stage.ty.rank()).map(VarId::new).collect();
        let step = || Doubling::of(&stage.body, &own, &stage.ty);
        stage.reduce.is_none().then(step).flatten()
    }

    /// A sum that is not negative where there is an element at the distance.
    fn inside(&self, at: VarId, extent: usize) -> Sum {
        let at = Sum::of(&Expr::Var(at), &Extents::default());
        match self.reverse {
            false => at.minus(&Sum::constant(self.distance as i64)),
            true => Sum::constant(extent as i64 - 1 - self.distance as i64).minus(&at),
        }
    }
}

/// The only axis along which `at` is another place than `own`, and how far away.
fn shift(own: &[VarId], at: &[Expr]) -> Option<(usize, i64)> {
    let none = Extents::default();
    let mut found = None;
    for (axis, (own, at)) in own.iter().zip(at).enumerate() {
        let moved = Sum::of(at, &none).minus(&Sum::of(&Expr::Var(*own), &none)).as_constant()?;
        if moved != 0 && found.replace((axis, moved)).is_some() {
            return None;
        }
    }
    found
}

/// How many stages from this one on are a chain that covers the axis; and its first step.
pub(crate) fn chain(compute: &Compute, first: usize) -> Option<(usize, Doubling)> {
    let start = Doubling::of_stage(&compute.stages[first]).filter(|step| step.distance == 1)?;
    let extent = compute.stages[first].ty.shape[start.axis];
    let (mut last, mut reach) = (first, 2);
    while reach < extent {
        let own = compute.stage_buffer(last);
        let next = Doubling { source: own, distance: reach, ..start };
        let is_next = Doubling::of_stage(compute.stages.get(last + 1)?) == Some(next);
        let readers = crate::usage::readers(compute, own);
        if !is_next || readers != [last + 1] || compute.outputs.contains(&last) {
            return None;
        }
        (last, reach) = (last + 1, 2 * reach);
    }
    Some((last + 1 - first, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(body: &str) -> Option<Doubling> {
        let text =
            format!("compute(in0: f32[9, 5], in1: f32[5]) -> y {{\n  y: f32[9, 5] = {body}\n}}");
        Doubling::of_stage(&Compute::parse(&text).unwrap_or_else(|e| panic!("{e}")).stages[0])
    }

    #[test]
    fn steps_are_told_by_what_they_compute() {
        let forwards = [
            "add(in0[i0, i1], select(le(2, i0), in0[sub(i0, 2), i1], 0.0_f32))",
            "add(in0[i0, i1], select(lt(1, i0), in0[add(i0, -2), i1], 0.0_f32))",
        ];
        let expected = Doubling {
            source: BufId::new(0),
            combiner: Combiner::Sum,
            axis: 0,
            reverse: false,
            distance: 2,
        };
        forwards.iter().for_each(|body| assert_eq!(step(body), Some(expected), "{body}"));
        let backwards = "mul(in0[i0, i1], select(lt(add(i1, 1), 5), in0[i0, add(i1, 1)], 1.0_f32))";
        let expected =
            Doubling { combiner: Combiner::Prod, axis: 1, reverse: true, distance: 1, ..expected };
        assert_eq!(step(backwards), Some(expected));
    }

    #[test]
    fn other_conditions_places_and_constants_are_no_steps() {
        for body in [
            "add(in0[i0, i1], select(le(1, i0), in0[sub(i0, 2), i1], 0.0_f32))",
            "add(in0[i0, i1], select(le(2, i1), in0[sub(i0, 2), i1], 0.0_f32))",
            "add(in0[i0, i1], select(le(2, i0), in0[sub(i0, 2), i1], 1.0_f32))",
            "add(in0[i0, i1], select(le(2, i0), in0[sub(i0, 2), sub(i1, 1)], 0.0_f32))",
            "max(in0[i0, i1], select(le(2, i0), in0[sub(i0, 2), i1], 0.0_f32))",
            "add(in1[i1], select(le(2, i1), in1[sub(i1, 2)], 0.0_f32))",
        ] {
            assert_eq!(step(body), None, "{body}");
        }
    }
}
