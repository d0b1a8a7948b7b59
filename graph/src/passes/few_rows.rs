//! Products of few rows read a transposed operand where it was before: turning all of it takes
//! longer than multiplying it.
//!
//! ```text
//! t = transpose([1, 0], b);  y[i0, i1] = sum{r0} mul(a[i0, r0], t[r0, i1])   with 1 row
//! ->  y[i0, i1] = sum{r0} mul(a[i0, r0], b[i1, r0])
//! ```
//!
//! A product of many rows copies the operand into panels, and does better with rows that lie side
//! by side.

use std::collections::BTreeSet;

use super::rewrite::{only_user, set_op};
use super::{Options, PassError};
use crate::compute::{Compute, Stage};
use crate::expr::{BufId, Expr};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind};

/// The name of such a product.
const NAME: &str = "few rows";
/// Elements of a result for each element of the operand, up to which it is not turned.
const FEW: usize = 4;

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        while rewrite(graph, node) {
            changed = true;
        }
    }
    Ok(changed)
}

/// Lets a product read the first of its operands that need not be turned.
fn rewrite(graph: &mut Graph, node: NodeId) -> bool {
    let operands = graph.operands(node).to_vec();
    let Some(op) = graph.compute_of(node) else { return false };
    let [stage] = &op.expr.stages[..] else { return false };
    if op.kind != Kind::MatMul && op.kind != Kind::Other(NAME.into()) {
        return false;
    }
    let turned = |slot: &usize| {
        let (perm, before) = transposed(graph, operands[*slot])?;
        uses(stage, BufId::new(*slot)).filter(|&uses| uses <= FEW).map(|_| (perm, before))
    };
    let found = (0..operands.len()).find_map(|slot| Some((slot, turned(&slot)?)));
    let Some((slot, (perm, before))) = found else { return false };
    let mut expr = Compute::clone(&op.expr);
    expr.inputs[slot] = graph.ty(before).clone();
    let own = |e: &Expr| read_before(e, BufId::new(slot), &perm);
    expr.stages[0].body = expr.stages[0].body.rewrite(&mut |e| own(e));
    let mut operands = operands;
    operands[slot] = before;
    set_op(graph, node, ComputeOp::new(Kind::Other(NAME.into()), expr), &operands);
    true
}

/// The permutation, and what it was made of, if `value` is a transpose that one node reads.
fn transposed(graph: &Graph, value: ValueId) -> Option<(Vec<usize>, ValueId)> {
    only_user(graph, value)?;
    let Kind::Transpose(perm) = &graph.compute_of(value.node)?.kind else { return None };
    Some((perm.clone(), graph.operands(value.node)[0]))
}

/// How many elements of the result read an element of the operand, if it is read in one place.
fn uses(stage: &Stage, operand: BufId) -> Option<usize> {
    let loads: Vec<&[Expr]> = stage
        .body
        .loads()
        .into_iter()
        .filter(|(buffer, _)| *buffer == operand)
        .map(|(_, indices)| indices)
        .collect();
    let [indices] = loads[..] else { return None };
    let read: BTreeSet<usize> =
        indices.iter().flat_map(|i| i.vars()).map(|var| var.index()).collect();
    let axes = stage.ty.shape.iter().enumerate();
    Some(axes.filter(|(axis, _)| !read.contains(axis)).map(|(_, &extent)| extent).product())
}

/// `t[i..]` as an element of what `t` was made of.
fn read_before(e: &Expr, operand: BufId, perm: &[usize]) -> Option<Expr> {
    let Expr::Load(buffer, indices) = e else { return None };
    if *buffer != operand {
        return None;
    }
    let mut before = vec![Expr::int(0); perm.len()];
    perm.iter().zip(indices).for_each(|(&axis, index)| before[axis] = index.clone());
    Some(Expr::Load(operand, before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::dce;
    use crate::passes::testing::{Builder, check_all, count};

    fn this_and_dce(graph: &mut Graph) -> Result<(), PassError> {
        run(graph, &Options::default())?;
        dce::run(graph, &Options::default()).map(drop)
    }

    fn transposes(after: &Graph) -> usize {
        count(after, |kind| matches!(kind, Kind::Transpose(_)))
    }

    #[test]
    fn few_rows_read_what_was_not_turned() {
        let mut b = Builder::new(71);
        let (x, w) = (b.input(&[3, 2, 1, 8]), b.input(&[3, 5, 2, 8]));
        let turned = b.transpose(w, &[0, 2, 3, 1]);
        let y = b.matmul(x, turned);
        assert_eq!(transposes(&check_all(b.finish(&[y]), this_and_dce)), 0);
    }

    #[test]
    fn both_sides_of_a_vector_are_read_where_they_are() {
        let mut b = Builder::new(72);
        let (x, w) = (b.input(&[8, 2]), b.input(&[3, 8]));
        let (left, right) = (b.transpose(x, &[1, 0]), b.transpose(w, &[1, 0]));
        let y = b.matmul(left, right);
        assert_eq!(transposes(&check_all(b.finish(&[y]), this_and_dce)), 0);
    }

    #[test]
    fn many_rows_and_other_readers_want_it_turned() {
        for (rows, is_read) in [(FEW + 1, false), (1, true)] {
            let mut b = Builder::new(73);
            let (x, w) = (b.input(&[rows, 8]), b.input(&[50, 8]));
            let turned = b.transpose(w, &[1, 0]);
            let y = b.matmul(x, turned);
            let results = if is_read { vec![y, turned] } else { vec![y] };
            assert_eq!(transposes(&check_all(b.finish(&results), this_and_dce)), 1);
        }
    }
}
