//! Checks of indices of axes whose extents vary.
//!
//! In: a check against the extents at the largest sizes. Out: the same check of indices of which
//! those that a smaller axis does not have are moved to where the largest one ends.
//!
//! ```text
//! check(i, 8)  with 8 at s = 8 and 5 at s = 5   ->   check(select(-s <= i < s, i, 8 or -9), 8)
//! ```

use std::sync::Arc;

use super::build::{Build, Formulas};
use super::formula::{number, slots, used};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::graph::{NodeId, ValueId};
use crate::op::{ComputeOp, Kind, Op};
use crate::ops::map::broadcast_indices;
use crate::passes::rewrite;
use crate::scalar::Scalar;
use ansc_runtime::DType;

impl Build {
    /// Lets a check look at valid indices alone. An input has no others: what is beside a smaller
    /// one was valid in an earlier run.
    pub(super) fn checked(&mut self, node: NodeId) {
        let indices = self.graph.operands(node)[0];
        if matches!(self.graph.node(indices.node).op, Op::Input { .. }) {
            return;
        }
        let axes = self.varying_axes(indices);
        let indices = self.mask(indices, &axes, Scalar::zero);
        self.graph.set_operands(node, &[indices]);
    }

    /// As [`Build::checked`], where the axes that the indices are of have these extents at most.
    pub(super) fn check(&mut self, node: NodeId, rooms: &[usize], formulas: &Formulas) {
        let indices = self.graph.operands(node)[0];
        let axes = self.varying_axes(indices);
        let ty = self.graph.ty(indices).clone();
        let sizes = used(formulas.values().map(|formula| formula.extent()));
        let slots = slots(&sizes, 1);
        let own = || Expr::load(0, broadcast_indices(&ty.shape, ty.rank()));
        let moved = |axis: usize| match formulas.get(&axis) {
            Some(formula) => {
                moved(own(), ty.dtype, &number(formula, ty.dtype, &slots), rooms[axis])
            }
            None => own(),
        };
        // The last axis of the indices holds one of each axis that they are of.
        let body =
            (0..rooms.len()).map(|axis| (axis, moved(axis))).reduce(|first, (axis, next)| {
                let is_it = Expr::var(ty.rank() - 1).eq(Expr::index(axis));
                (axis, Expr::select(is_it, next, first.1))
            });
        let Some((_, body)) = body else { return };
        let inputs: Vec<ValueId> =
            std::iter::once(indices).chain(sizes.iter().map(|&s| self.sizes[s])).collect();
        let types: Vec<TensorType> = inputs.iter().map(|v| self.graph.ty(*v).clone()).collect();
        let expr = Compute::single(types, Stage::map("indices", ty, body));
        let op = ComputeOp { kind: Kind::Map, expr: Arc::new(expr) };
        let name = self.graph.node(node).name.clone();
        let new = rewrite::add(&mut self.graph, &name, op, &inputs);
        if let Some(extents) = self.extents.get(&indices).cloned() {
            self.extents.insert(new, extents);
        }
        let new = self.mask(new, &axes, Scalar::zero);
        self.graph.set_operands(node, &[new]);
    }
}

/// The index, or the first one on its side that an axis of `room` elements does not have.
fn moved(index: Expr, dtype: DType, extent: &Expr, room: usize) -> Expr {
    let constant = |value: i64| Expr::Const(Scalar::from_i64(dtype, value));
    let least = constant(0) - extent.clone();
    let inside = index.clone().lt(extent.clone()).and(least.le(index.clone()));
    let above = index.clone().max(constant(room as i64));
    let below = index.clone().min(constant(-(room as i64) - 1));
    let outside = Expr::select(index.clone().lt(constant(0)), below, above);
    Expr::select(inside, index, outside)
}
