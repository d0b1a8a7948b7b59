//! Chains of rows: a product, what is done with each of its rows, and a product of the rows become
//! one kernel.
//!
//! ```text
//! [s = q * k],  [p = softmax(s)],  [y = p * v]   ->   [s, p, y]
//! ```
//!
//! Attention is such a chain. Its matrix of scores is larger than all that it is made of, and each
//! row of it is needed for one row of the result alone: a kernel makes some rows at a time, which
//! stay in the cache. Few rows, and small matrices, stay there anyway. The result may have
//! another order of axes.

use std::collections::BTreeMap;

use ansc_runtime::DType;

use super::pattern::{Pattern, pattern};
use crate::compute::TensorType;
use crate::expr::{BufId, Expr, VarId};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::ComputeOp;

/// The matrices between have at least so many bytes together, and each of them, and so many rows.
const LEAST_BYTES: usize = 1 << 20;
const LEAST_EACH: usize = 128 << 10;
const LEAST_ROWS: usize = 16;

/// Joins the groups of each chain of products of these `types`; `members` are in the order of
/// execution.
pub(super) fn join(graph: &Graph, members: &mut BTreeMap<usize, Vec<NodeId>>, types: &[DType]) {
    let of = members.iter().flat_map(|(group, nodes)| nodes.iter().map(|n| (*n, *group)));
    let groups = Groups { graph, of: of.collect(), members, types };
    let chains: Vec<Chain> = members.keys().filter_map(|last| groups.chain(*last)).collect();
    for Chain { product, rows, last } in chains {
        let before = [product, rows].map(|group| members.remove(&group).unwrap_or_default());
        members.entry(last).or_default().splice(0..0, before.concat());
    }
}

/// The groups that become one.
struct Chain {
    product: usize,
    rows: usize,
    last: usize,
}

struct Groups<'a> {
    graph: &'a Graph,
    members: &'a BTreeMap<usize, Vec<NodeId>>,
    of: BTreeMap<NodeId, usize>,
    types: &'a [DType],
}

impl Groups<'_> {
    /// The chain that ends in a group, if there is one.
    fn chain(&self, last: usize) -> Option<Chain> {
        let node = *self.members[&last].iter().find(|n| self.multiplies_rows(**n))?;
        let shares = self.graph.operands(node)[0];
        let rows = self.feeds(shares, last)?;
        let ty = self.graph.ty(shares);
        let is_of_rows = |n: &NodeId| self.is(*n, |op| keeps_rows(op, ty));
        if !is_large(ty) || !self.members[&rows].iter().all(is_of_rows) {
            return None;
        }
        let operands = self.members[&rows].iter().flat_map(|n| self.graph.operands(*n));
        let mut scores = operands
            .filter(|v| self.of.get(&v.node) != Some(&rows) && self.graph.ty(*v).shape == ty.shape);
        let product = self.feeds(scores.next()?, rows)?;
        let is_product = self.members[&product].iter().any(|n| self.multiplies_rows(*n));
        let is_only = scores.all(|v| self.of.get(&v.node) == Some(&product));
        (is_product && is_only).then_some(Chain { product, rows, last })
    }

    fn multiplies_rows(&self, node: NodeId) -> bool {
        self.is(node, |op| self.types.iter().any(|ty| multiplies_rows(op, *ty)))
    }

    fn is(&self, node: NodeId, what: impl Fn(&ComputeOp) -> bool) -> bool {
        self.graph.compute_of(node).is_some_and(what)
    }

    /// The group that gives a value, if only the group `reader` reads it.
    fn feeds(&self, value: ValueId, reader: usize) -> Option<usize> {
        let group = *self.of.get(&value.node)?;
        let is_result = self.members[&group].last() == Some(&value.node) && group != reader;
        let is_single = self.graph.node(value.node).outputs.len() == 1;
        let users = self.graph.users(value);
        let is_read_there = users.iter().all(|(user, _)| self.of.get(user) == Some(&reader));
        let is_hidden = is_read_there && !self.graph.is_output(value);
        (is_result && is_single && is_hidden).then_some(group)
    }
}

fn is_large(ty: &TensorType) -> bool {
    let [.., rows, columns] = ty.shape[..] else { return false };
    let each = rows * columns * ty.dtype.size();
    rows >= LEAST_ROWS && each >= LEAST_EACH && ty.bytes() >= LEAST_BYTES
}

/// Whether it is a product of this type, summed in `f32`, each row of which is made of one row of
/// its first operand.
fn multiplies_rows(op: &ComputeOp, dtype: DType) -> bool {
    let [stage] = &op.expr.stages[..] else { return false };
    let sums = op.expr.inputs.iter().all(|ty| ty.dtype == dtype) && stage.ty.dtype == DType::F32;
    let terms = stage.reduce.as_ref().map_or(0, |reduce| reduce.extents.len());
    let (rank, loads) = (stage.ty.rank(), stage.body.loads());
    if !op.expr.is_sum_of_products() || !sums || terms != 1 || rank < 2 || loads.len() != 2 {
        return false;
    }
    let row = [rank - 2, rank].map(Expr::var);
    let has_rows = |at: &[Expr]| at.iter().any(|i| i.vars().contains(&VarId::new(rank - 2)));
    loads.iter().all(|(b, at)| match *b == BufId::new(0) {
        true => at.ends_with(&row),
        false => !has_rows(at),
    })
}

/// Whether each row of the result, of this shape, is made of the same row of operands.
fn keeps_rows(op: &ComputeOp, ty: &TensorType) -> bool {
    if pattern(op) <= Pattern::Broadcast {
        return true;
    }
    let (expr, Some((_, rows))) = (&op.expr, ty.shape.split_last()) else { return false };
    let is_whole = |b: BufId| expr.buffer_type(b).shape == ty.shape || expr.stage_of(b).is_some();
    let is_own = |(index, (axis, &extent)): (&Expr, (usize, &usize))| {
        *index == Expr::var(axis) || extent == 1 && *index == Expr::int(0)
    };
    let [result] = expr.outputs[..] else { return false };
    expr.stages[result].ty.shape == ty.shape
        && expr.stages.iter().all(|s| {
            let loads = s.body.loads();
            let mut whole = loads.iter().filter(|(b, _)| is_whole(*b));
            let keeps = s.ty.rank() == ty.rank() && s.ty.shape.starts_with(rows);
            keeps && whole.all(|(_, at)| at.iter().zip(rows.iter().enumerate()).all(is_own))
        })
}
