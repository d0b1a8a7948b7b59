//! Reductions of one term are maps: nothing is added up.
//!
//! ```text
//! y[i0, i1] = sum{r0: 1} mul(a[i0, r0], b[r0, i1])   ->   y[i0, i1] = mul(a[i0, 0], b[0, i1])
//! ```

use super::rewrite::set_op;
use super::{Options, PassError};
use crate::compute::{Combiner, Compute, Reduce, Stage};
use crate::expr::Expr;
use crate::graph::{Graph, NodeId};
use crate::op::{ComputeOp, Kind};
use crate::ops::map::broadcast_indices;

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        changed |= rewrite(graph, node);
    }
    Ok(changed)
}

fn rewrite(graph: &mut Graph, node: NodeId) -> bool {
    let Some(op) = graph.compute_of(node) else { return false };
    if !op.expr.stages.iter().any(has_one_term) {
        return false;
    }
    let stages = op.expr.stages.iter().map(without).collect();
    let mut expr = Compute { stages, ..Compute::clone(&op.expr) };
    let before = Compute::clone(&expr);
    expr.stages.iter_mut().for_each(|stage| stage.body = at_first(&stage.body, &before));
    let kind = if is_map(&expr) { Kind::Map } else { Kind::Other("one term".into()) };
    let operands = graph.operands(node).to_vec();
    set_op(graph, node, ComputeOp::new(kind, expr), &operands);
    true
}

fn has_one_term(stage: &Stage) -> bool {
    let is_one = |r: &Reduce| {
        let gives_place = matches!(r.combiner, Combiner::ArgMax { .. } | Combiner::ArgMin { .. });
        !gives_place && r.extents.iter().all(|&extent| extent == 1)
    };
    stage.reduce.as_ref().is_some_and(is_one)
}

fn without(stage: &Stage) -> Stage {
    if !has_one_term(stage) {
        return stage.clone();
    }
    let rank = stage.ty.rank();
    let body = stage.body.substitute(&|v| (v.index() >= rank).then(|| Expr::int(0)));
    Stage { reduce: None, body, ..stage.clone() }
}

/// An axis of one element is read at the first one, whatever the index says.
fn at_first(body: &Expr, of: &Compute) -> Expr {
    body.rewrite(&mut |e| {
        let Expr::Load(buffer, indices) = e else { return None };
        let shape = &of.buffer_type(*buffer).shape;
        let at = |(index, &extent): (&Expr, &usize)| match extent {
            1 => Expr::int(0),
            _ => at_first(index, of),
        };
        Some(Expr::Load(*buffer, indices.iter().zip(shape).map(at).collect()))
    })
}

/// Whether every input is read at the result's own place, as broadcasting has it.
fn is_map(expr: &Compute) -> bool {
    let [stage] = &expr.stages[..] else { return false };
    stage.body.loads().into_iter().all(|(buffer, indices)| {
        let shape = &expr.inputs[buffer.index()].shape;
        shape.len() <= stage.ty.rank() && *indices == broadcast_indices(shape, stage.ty.rank())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::{Builder, check_all, count};

    fn only_this(graph: &mut Graph) -> Result<(), PassError> {
        run(graph, &Options::default()).map(drop)
    }

    #[test]
    fn an_outer_product_is_a_map() {
        let mut b = Builder::new(61);
        let (x, w) = (b.input(&[8, 1]), b.input(&[1, 5]));
        let y = b.matmul(x, w);
        let after = check_all(b.finish(&[y]), only_this);
        assert_eq!(count(&after, |k| *k == Kind::Map), 1);
    }

    #[test]
    fn what_reads_at_other_places_is_no_map() {
        let mut b = Builder::new(62);
        let x = b.input(&[1, 1, 4, 4]);
        let y = b.conv(x, 3, 1, 1);
        let after = check_all(b.finish(&[y]), only_this);
        assert_eq!(count(&after, |k| *k == Kind::Map), 0);
        let kept = |node: NodeId| {
            after.compute_of(node).is_some_and(|op| op.expr.stages.iter().any(has_one_term))
        };
        assert!(!after.topological().into_iter().any(kept));
    }

    #[test]
    fn several_terms_stay() {
        let mut b = Builder::new(63);
        let (x, w) = (b.input(&[8, 2]), b.input(&[2, 5]));
        let y = b.matmul(x, w);
        assert!(!run(&mut b.finish(&[y]), &Options::default()).unwrap());
    }
}
