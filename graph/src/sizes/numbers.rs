//! The numbers of an expression, in a fixed order.
//!
//! In: an expression. Out: its extents and constants, one after the other; or the same expression
//! with others in their places. Two expressions that differ in nothing else have the same form.
//!
//! ```text
//! y: f32[8, 4] = select(lt(i0, 3), x[i0, i1], 0.5)   of x: f32[3, 4]   ->   3 4 | 8 4 | 3 0.5
//! ```

use std::ops::Range;

use crate::compute::{Compute, Stage};
use crate::expr::{BufId, Expr};
use crate::scalar::Scalar;

/// All numbers: extents of inputs; then for each stage its extents, those of its reduction, and the
/// constants of its body.
pub(super) fn numbers(compute: &Compute) -> Vec<Scalar> {
    let extent = |e: &usize| Scalar::index(*e as i64);
    let mut all: Vec<Scalar> =
        compute.inputs.iter().flat_map(|ty| ty.shape.iter().map(extent)).collect();
    for stage in &compute.stages {
        all.extend(stage.extents().iter().map(extent));
        stage.body.visit(&mut |e| all.extend(e.as_const()));
    }
    all
}

/// The extents of inputs, and then those of the first result and its reduction.
pub(super) fn extents(compute: &Compute) -> Vec<Scalar> {
    let inputs = compute.inputs.iter().flat_map(|ty| ty.shape.clone());
    let result = compute.stages[compute.outputs[0]].extents();
    inputs.chain(result).map(|e| Scalar::index(e as i64)).collect()
}

/// How many of [`numbers`] come before those of a stage's body.
pub(super) fn before_body(compute: &Compute, index: usize) -> usize {
    let inputs: usize = compute.inputs.iter().map(|ty| ty.rank()).sum();
    let earlier = compute.stages[..index].iter().map(|s| s.extents().len() + constants(&s.body));
    inputs + earlier.sum::<usize>() + compute.stages[index].extents().len()
}

/// Which of [`numbers`] are the extents of a stage's reduction and the constants of its body.
pub(super) fn of_terms(compute: &Compute, index: usize) -> Range<usize> {
    let stage = &compute.stages[index];
    let from = before_body(compute, index);
    let terms = stage.reduce.as_ref().map_or(0, |r| r.extents.len());
    from - terms..from + constants(&stage.body)
}

/// How many constants an expression has.
pub(super) fn constants(body: &Expr) -> usize {
    let mut count = 0;
    body.visit(&mut |e| count += usize::from(e.as_const().is_some()));
    count
}

/// The numbers of a node in the order of another one's.
pub(super) struct Like {
    /// The constants of a body of another form are not known.
    pub(super) numbers: Vec<Option<Scalar>>,
    /// Whether all bodies have the same form.
    pub(super) same_form: bool,
}

/// The numbers of `other` in the order of `compute`, if the two differ in nothing but numbers and
/// the form of bodies. An axis of one element may be written as 0.
pub(super) fn numbers_like(compute: &Compute, other: &Compute) -> Option<Like> {
    let types = |c: &Compute| c.inputs.iter().map(|ty| (ty.dtype, ty.rank())).collect::<Vec<_>>();
    let result = |s: &Stage| {
        let combiner = s.reduce.as_ref().map(|r| (r.combiner, r.extents.len()));
        (s.ty.dtype, s.ty.rank(), combiner)
    };
    let alike = types(compute) == types(other)
        && compute.outputs == other.outputs
        && compute.stages.iter().map(result).eq(other.stages.iter().map(result));
    if !alike {
        return None;
    }
    let extent = |e: &usize| Some(Scalar::index(*e as i64));
    let mut numbers: Vec<Option<Scalar>> =
        other.inputs.iter().flat_map(|ty| ty.shape.iter().map(extent)).collect();
    let mut same_form = true;
    for (a, b) in compute.stages.iter().zip(&other.stages) {
        let extents = b.extents();
        numbers.extend(extents.iter().map(extent));
        let mut bodies = Bodies { other, extents: &extents, numbers: vec![] };
        if bodies.alike(&a.body, &b.body) {
            same_form &= bodies.numbers.iter().all(Option::is_some);
            numbers.append(&mut bodies.numbers);
        } else {
            numbers.extend(vec![None; constants(&a.body)]);
            same_form = false;
        }
    }
    Some(Like { numbers, same_form })
}

/// Compares the body of a stage with that of another expression.
struct Bodies<'a> {
    other: &'a Compute,
    /// Those of the axes of the other stage, and of its terms.
    extents: &'a [usize],
    /// The constants of the other body, where they are known.
    numbers: Vec<Option<Scalar>>,
}

impl Bodies<'_> {
    fn alike(&mut self, a: &Expr, b: &Expr) -> bool {
        let top = match (a, b) {
            (Expr::Const(a), Expr::Const(b)) => {
                self.numbers.push(Some(*b));
                a.dtype() == b.dtype()
            }
            (Expr::Var(v), Expr::Const(zero)) => {
                return self.extents[v.index()] == 1 && *zero == Scalar::index(0);
            }
            (Expr::Load(a, at), Expr::Load(b, other)) => {
                let shape = &self.other.buffer_type(*b).shape;
                let mut pairs = at.iter().zip(other).zip(shape);
                return a == b
                    && at.len() == other.len()
                    && pairs.all(|((a, b), &extent)| self.index_alike(a, b, extent));
            }
            _ => a.is_same_node(b),
        };
        let mut parts = a.children().into_iter().zip(b.children());
        top && parts.all(|(a, b)| self.alike(a, b))
    }

    /// As [`Bodies::alike`] for an index: that of a single element is 0, however it is written
    /// where there are more.
    fn index_alike(&mut self, a: &Expr, b: &Expr, extent: usize) -> bool {
        let before = self.numbers.len();
        if self.alike(a, b) {
            return true;
        }
        self.numbers.truncate(before);
        self.numbers.extend(vec![None; constants(a)]);
        extent == 1 && b.as_const() == Some(Scalar::index(0))
    }
}

/// The body with other expressions in place of its constants. `with` gets each of them, in order;
/// `at` gets the buffer, the axis and the index of each load, and gives the index to use.
pub(super) fn replaced(
    body: &Expr,
    with: &mut impl FnMut(Scalar) -> Option<Expr>,
    at: &impl Fn(BufId, usize, Expr) -> Expr,
) -> Expr {
    match body {
        Expr::Const(scalar) => with(*scalar).unwrap_or_else(|| body.clone()),
        Expr::Load(buffer, indices) => {
            let each = indices.iter().enumerate();
            let each = each.map(|(axis, i)| at(*buffer, axis, replaced(i, with, at)));
            Expr::Load(*buffer, each.collect())
        }
        other => other.map_children(|child| replaced(child, with, at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Compute {
        Compute::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    #[test]
    fn numbers_come_in_order() {
        let compute = parse(
            "compute(in0: f32[3, 4]) -> y {
  y: f32[8, 4] = select(lt(i0, 3), in0[i0, i1], 0.5_f32)
}",
        );
        let found: Vec<String> = numbers(&compute).iter().map(Scalar::to_string).collect();
        assert_eq!(found.join(" "), "3_i64 4_i64 8_i64 4_i64 3_i64 0.5_f32");
        assert_eq!(before_body(&compute, 0), 4);
    }

    #[test]
    fn bodies_of_another_form_hide_their_constants() {
        let of = |rows: usize, index: &str| {
            parse(&format!(
                "compute(in0: f32[{rows}, 3]) -> y {{\n  y: f32[{}] = in0[{index}]\n}}",
                rows * 3
            ))
        };
        let most = of(4, "floor_div(i0, 3), floor_mod(i0, 3)");
        let found = |other: &Compute| -> Vec<Option<i64>> {
            let like = numbers_like(&most, other).unwrap();
            assert_eq!(like.same_form, other.inputs[0].shape[0] > 1);
            like.numbers.into_iter().map(|n| n.map(|n| n.as_i64())).collect()
        };
        let alike = of(2, "floor_div(i0, 3), floor_mod(i0, 3)");
        assert_eq!(found(&alike), [2, 3, 6, 3, 3].map(Some));
        let [one, three] = [1, 3].map(Some);
        assert_eq!(found(&of(1, "0, i0")), [one, three, three, None, None]);
    }
}
