//! Sums over nothing become constants.
//!
//! ```text
//! sum: f32[4] = sum{r0: 0} b0[v0, r0]   ->   sum: f32[4] = 0
//! ```
//!
//! Then no schedule has to think of loops that never run.

use std::sync::Arc;

use super::{Options, PassError};
use crate::compute::{Compute, Stage};
use crate::expr::Expr;
use crate::graph::{Graph, NodeId};
use crate::op::{ComputeOp, Kind, Op};

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.node_ids() {
        changed |= fill(graph, node);
    }
    Ok(changed)
}

fn fill(graph: &mut Graph, node: NodeId) -> bool {
    let Some(op) = graph.compute_of(node) else { return false };
    let stages: Option<Vec<Stage>> =
        op.expr.stages.iter().any(|stage| constant(stage).is_some()).then(|| {
            op.expr.stages.iter().map(|s| constant(s).unwrap_or_else(|| s.clone())).collect()
        });
    let Some(stages) = stages else { return false };
    let expr = Compute { stages, ..(*op.expr).clone() };
    // The expression is none any more that a pass may know by its kind.
    let kind = Kind::Other("Fill".into());
    graph.node_mut(node).op = Op::Compute(ComputeOp { kind, expr: Arc::new(expr) });
    true
}

/// The stage without its reduction, if that has no terms.
fn constant(stage: &Stage) -> Option<Stage> {
    let reduce = stage.reduce.as_ref().filter(|r| r.extents.contains(&0))?;
    let value = reduce.combiner.identity(stage.ty.dtype)?;
    Some(Stage::map(&stage.name, stage.ty.clone(), Expr::Const(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::{Builder, check};

    #[test]
    fn a_product_over_nothing_is_zero() {
        let mut b = Builder::new(3);
        let (x, y) = (b.input(&[2, 0]), b.input(&[0, 3]));
        let product = b.matmul(x, y);
        let z = b.relu(product);
        let after = check(b.finish(&[z]), run);
        let ops = after.node_ids().into_iter().filter_map(|n| after.compute_of(n));
        assert!(ops.flat_map(|op| &op.expr.stages).all(|stage| stage.reduce.is_none()));
    }
}
