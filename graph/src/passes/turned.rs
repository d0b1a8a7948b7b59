//! Products read a transposed operand where it was before, if turning all of it takes longer.
//!
//! ```text
//! t = transpose([1, 0], b);  y[i0, i1] = sum{r0} mul(a[i0, r0], t[r0, i1])   with 1 row
//! ->  y[i0, i1] = sum{r0} mul(a[i0, r0], b[i1, r0])
//! ```
//!
//! That is so for few rows. A product of more rows goes by tiles, which broadcast elements of the
//! left side, and may copy the right side into panels and turn it on the way
//! ([`Options::turned_uses`]). The transpose stays if the kernel that makes the operand can
//! write it in that order at once.

use std::collections::BTreeSet;

use ansc_runtime::DType;

use super::rewrite::{only_user, set_op};
use super::{Options, PassError};
use crate::compute::{Compute, Stage};
use crate::expr::{BufId, Expr};
use crate::fuse::{Pattern, pattern};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind};

/// The name of such a product.
const NAME: &str = "turned product";
/// Elements of a result for each element of the operand, up to which it is not turned.
const FEW: usize = 4;

pub(crate) fn run(graph: &mut Graph, options: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        while rewrite(graph, node, options) {
            changed = true;
        }
    }
    Ok(changed)
}

/// Lets a product read the first of its operands that need not be turned.
fn rewrite(graph: &mut Graph, node: NodeId, options: &Options) -> bool {
    let operands = graph.operands(node).to_vec();
    let Some(op) = graph.compute_of(node) else { return false };
    let [stage] = &op.expr.stages[..] else { return false };
    if op.kind != Kind::MatMul && op.kind != Kind::Other(NAME.into()) {
        return false;
    }
    let turned = |slot: &usize| {
        let (perm, before) = transposed(graph, operands[*slot])?;
        let uses = uses(stage, BufId::new(*slot))?;
        let in_tiles = || {
            let many = options.turned_uses > 0 && uses >= options.turned_uses;
            many && stage.ty.dtype == DType::F32 && !is_written_so(graph, before)
        };
        (uses <= FEW || in_tiles()).then_some((perm, before))
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

/// Whether the kernel that makes a value can as well write it transposed: nothing else reads it.
fn is_written_so(graph: &Graph, value: ValueId) -> bool {
    let Some(op) = graph.compute_of(value.node) else { return false };
    if only_user(graph, value).is_none() {
        return false;
    }
    match op.kind {
        Kind::Reshape => is_written_so(graph, graph.operands(value.node)[0]),
        Kind::Conv(_) | Kind::MatMul => true,
        _ => pattern(op) <= Pattern::Injective,
    }
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

    /// For a target whose products of many rows go by tiles.
    fn with_tiles(graph: &mut Graph) -> Result<(), PassError> {
        run(graph, &Options { turned_uses: 16, ..Options::default() })?;
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

    #[test]
    fn panels_of_many_rows_are_copied_from_where_the_operand_was() {
        for (rows, left) in [(16, 0), (15, 1)] {
            let mut b = Builder::new(74);
            let (x, w) = (b.input(&[2, rows, 8]), b.input(&[2, 50, 8]));
            let turned = b.transpose(w, &[0, 2, 1]);
            let y = b.matmul(x, turned);
            assert_eq!(transposes(&check_all(b.finish(&[y]), with_tiles)), left, "{rows} rows");
        }
    }

    #[test]
    fn a_left_side_is_broadcast_from_where_it_was() {
        let mut b = Builder::new(75);
        let (x, w) = (b.input(&[8, 20]), b.input(&[8, 50]));
        let turned = b.transpose(x, &[1, 0]);
        let y = b.matmul(turned, w);
        assert_eq!(transposes(&check_all(b.finish(&[y]), with_tiles)), 0);
    }

    /// A product writes its result in any order.
    #[test]
    fn what_is_written_transposed_stays_so() {
        let mut b = Builder::new(76);
        let (x, v, w) = (b.input(&[20, 8]), b.input(&[50, 4]), b.input(&[4, 8]));
        let right = b.matmul(v, w);
        let turned = b.transpose(right, &[1, 0]);
        let y = b.matmul(x, turned);
        assert_eq!(transposes(&check_all(b.finish(&[y]), with_tiles)), 1);
    }
}
