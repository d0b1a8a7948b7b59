//! Branches and loops that depend on sizes.
//!
//! In: a conditional or a loop, and what differs in its bodies. Out: bodies for all sizes, which
//! capture the sizes that they ask for. A loop makes as many trips as there are slices.
//!
//! ```text
//! y = loop at most 8 scans x[0] gives [0]   ->   y = loop s at most 8 scans x[0] gives [0]
//! ```
//!
//! Slices that are there are the first ones. So a loop that takes them from the last to the first
//! gets them in that order: `x[s - 1], .., x[0]`. What it gives in that order has no such need, for
//! the last trip that happens gives the first slice.

use std::sync::Arc;

use ansc_runtime::{DType, Extent};

use super::Unfit;
use super::build::{Build, Formulas, Readers};
use super::formula::{Formula, expression, slots, used, wide};
use super::look::{Look, Seen, bodies_mut};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind, LoopOp, Op, ScanAxis};
use crate::ops::shape;
use crate::passes::captures::drop_captures;
use crate::passes::rewrite;
use crate::scalar::Scalar;

impl Build {
    pub(super) fn control(&mut self, seen: &Seen, formulas: &Formulas) -> Result<(), Unfit> {
        let node = seen.node;
        let mut from = 0;
        for value in self.graph.values(node) {
            self.note_value(value, from, formulas)?;
            from += self.graph.ty(value).rank();
            if self.graph.value(value).dynamic && self.extents.contains_key(&value) {
                return Err(self.unfit(node, "both data and sizes decide the size of its result"));
            }
        }
        for (at, look) in seen.bodies.iter().enumerate() {
            let body = self.body(look)?;
            *bodies_mut(&mut self.graph.node_mut(node).op).swap_remove(at) = body;
        }
        let operands = [self.graph.operands(node), self.sizes.clone()].concat();
        self.graph.set_operands(node, &operands);
        drop_captures(&mut self.graph, node);
        match &self.graph.node(node).op {
            Op::Loop(op) => self.scans(node, (**op).clone(), formulas.get(&from)),
            _ => Ok(()),
        }
    }

    /// A body for all sizes, which are further inputs of it.
    fn body(&self, look: &Look) -> Result<Graph, Unfit> {
        let names = self.sizes.iter().map(|size| self.graph.value(*size).name.clone());
        let names = names.zip(self.lows.iter().copied());
        let mut inner = Build::new(look.graph.clone(), self.samples.clone(), names, vec![]);
        inner.nodes(&look.nodes)?;
        Ok(inner.graph)
    }

    /// Lets a loop make as many trips as there are slices, and find them.
    fn scans(
        &mut self,
        node: NodeId,
        mut op: LoopOp,
        trips: Option<&Formula>,
    ) -> Result<(), Unfit> {
        let mut operands = self.graph.operands(node);
        let first = usize::from(op.has_trip) + usize::from(op.has_condition) + op.carried;
        for (whole, scan) in operands[first..].iter_mut().zip(&mut op.scan_inputs) {
            if scan.reverse && self.varying_axes(*whole).contains(&scan.axis) {
                *whole = self.turned(*whole, scan.axis);
                scan.reverse = false;
            }
        }
        if let Some(trips) = trips {
            if op.has_trip || !op.never_ends_early() && !op.scan_outputs.is_empty() {
                return Err(self.unfit(node, "both data and sizes decide how often it goes round"));
            }
            let most = |sizes: &Vec<usize>| trips.extent().at(&wide(sizes));
            let highest = self.samples.iter().filter_map(most).max();
            if highest.is_none_or(|trips| trips as u64 > op.max_trip) {
                return Err(self.unfit(node, "it goes round more often at smaller sizes"));
            }
            operands.insert(0, self.count(node, trips.extent()));
            op.has_trip = true;
            for (out, scan) in (op.carried..).zip(&mut op.scan_outputs) {
                self.gathered(ValueId { node, out: out as u32 }, scan);
            }
        }
        self.graph.node_mut(node).op = Op::Loop(Box::new(op));
        self.graph.set_operands(node, &operands);
        Ok(())
    }

    /// The scalar that an extent is.
    pub(super) fn count(&mut self, node: NodeId, extent: &Extent) -> ValueId {
        let name = self.graph.node(node).name.clone();
        let sizes = used(std::iter::once(extent));
        let body = expression(extent, &slots(&sizes, 0));
        let inputs: Vec<ValueId> = sizes.iter().map(|&s| self.sizes[s]).collect();
        self.add("trips", &name, TensorType::new(DType::I64, []), body, &inputs)
    }

    /// The elements of a value along an axis from the last one to the first.
    fn turned(&mut self, value: ValueId, axis: usize) -> ValueId {
        let name = self.graph.node(value.node).name.clone();
        let ty = self.graph.ty(value).clone();
        let extent = self.extents[&value][axis].clone();
        let sizes = used(std::iter::once(&extent));
        let from_end = expression(&extent, &slots(&sizes, 1)) - Expr::int(1) - Expr::var(axis);
        let last = Expr::int(ty.shape[axis] as i64 - 1);
        let mut at: Vec<Expr> = (0..ty.rank()).map(Expr::var).collect();
        at[axis] = from_end.max(Expr::int(0)).min(last);
        let inputs: Vec<ValueId> =
            std::iter::once(value).chain(sizes.iter().map(|&s| self.sizes[s])).collect();
        let new = self.add("turned", &name, ty, Expr::load(0, at), &inputs);
        self.extents.insert(new, self.extents[&value].clone());
        new
    }

    /// Lets readers of a scan output find zeros beyond the slices that were made. The runtime moves
    /// these together unless they lie along the first axis, which the output gets for that.
    fn gathered(&mut self, value: ValueId, scan: &mut ScanAxis) {
        let readers = Readers::of(&self.graph, value);
        let Some(extents) = self.extents.get(&value).cloned() else { return };
        let mut whole = value;
        if scan.axis > 0 {
            let name = self.graph.node(value.node).name.clone();
            let ty = &mut self.graph.value_mut(value).ty;
            let slices = ty.shape.remove(scan.axis);
            ty.shape.insert(0, slices);
            let mut back: Vec<usize> = (1..ty.rank()).collect();
            back.insert(scan.axis, 0);
            let op = shape::transpose(ty, &back).expect("it is a permutation of the axes");
            whole = rewrite::add(&mut self.graph, &name, op, &[value]);
            self.extents.insert(whole, extents.clone());
        }
        let new = self.mask(whole, &[scan.axis], Scalar::zero);
        self.extents.insert(new, extents);
        readers.read(&mut self.graph, new);
        scan.axis = 0;
    }

    fn add(
        &mut self,
        kind: &str,
        name: &str,
        ty: TensorType,
        body: Expr,
        inputs: &[ValueId],
    ) -> ValueId {
        let types = inputs.iter().map(|v| self.graph.ty(*v).clone()).collect();
        let expr = Compute::single(types, Stage::map(kind, ty, body));
        let op = ComputeOp { kind: Kind::Other(kind.into()), expr: Arc::new(expr) };
        rewrite::add(&mut self.graph, name, op, inputs)
    }
}
