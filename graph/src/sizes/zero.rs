//! Whether the data may leave nothing.
//!
//! In: the rules that a model follows where the data gives some elements, and graphs of it for
//! none. Out: the counts that may be 0. For the others that is an error of a run.
//!
//! A model may do something else then, but what it makes of no elements is mostly no elements. So
//! the graphs are compared from their results on, up to values that are empty in both.
//!
//! ```text
//! s = 5: y: f32[5, 4] = gather(x, nms(..))     s = 0: y: f32[0, 4] = 0        the same
//! s = 5: y: f32[5, 4] = gather(x, nms(..))     s = 0: y: f32[1, 4] = 0        another model
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ansc_runtime::host::{Count, HostOp};
use ansc_runtime::{Extent, Tensor};
use rayon::prelude::*;

use super::build::Build;
use super::constants::{Rule, is_part};
use super::counts::set_least;
use super::formula::wide;
use super::look::{Look, Seen, like};
use super::samples::Random;
use crate::graph::{Graph, Node, NodeId, ValueId};
use crate::op::{Kind, Op};

/// Pairs of graphs of which each has half of the counts at 0.
const PAIRS: usize = 3;

/// Gives the graph for these sizes and counts.
pub(super) type Import<'a> = &'a (dyn Fn(&[usize]) -> Option<Graph> + Sync);

impl Build {
    /// Lets counts be 0 where the model is the same then, unless it asks for more: `lows` are the
    /// fewest elements at which it was looked at.
    pub(super) fn allow_zeros(&mut self, look: &Look, lows: &[usize], import: Import<'_>) {
        let named = self.sizes.len() - self.sums.len() - lows.len();
        let counts: Vec<ValueId> = self.sizes[named..self.sizes.len() - self.sums.len()].to_vec();
        let rooms = counts.iter().map(|count| self.room(look, *count)).collect();
        let nodes: HashMap<NodeId, &Seen> =
            look.nodes.iter().map(|seen| (seen.node, seen)).collect();
        let rules = Rules { build: self, look, nodes, named, rooms };
        // Whether the rules hold where these counts are 0, if there can be such data.
        let hold = |place: usize, is_zero: &dyn Fn(usize) -> bool| {
            let sizes = rules.sizes(place, &|i| is_zero(i) && lows[i] <= 1)?;
            Some(rules.hold(&sizes, &import(&sizes)?))
        };
        let mut random = Random::new();
        let places = rules.build.samples.len();
        let mut pair = || {
            let zeros: Vec<bool> = counts.iter().map(|_| random.coin()).collect();
            let place = places - 1 - random.below(places.min(PAIRS));
            [true, false].iter().all(|way| hold(place, &|i| zeros[i] == *way) == Some(true))
        };
        let all = hold(0, &|_| true) == Some(true) && (0..PAIRS).all(|_| pair());
        let mut may_be = vec![all; counts.len()];
        let alone: Vec<bool> = (0..if all { 0 } else { counts.len() })
            .into_par_iter()
            .map(|one| hold(0, &|i| i == one) != Some(false))
            .collect();
        // Each that may be 0 by itself may be 0 with all others of which that was found.
        for one in (0..alone.len()).filter(|one| alone[*one] && lows[*one] <= 1) {
            may_be[one] = true;
            may_be[one] = hold(0, &|i| may_be[i]) == Some(true);
        }
        for ((value, may_be_zero), low) in counts.into_iter().zip(may_be).zip(lows) {
            let may_be_zero = may_be_zero && *low <= 1;
            let least = if may_be_zero { 0 } else { 1.max(*low) };
            set_least(&mut self.graph, value, least);
        }
    }

    /// The most elements that a count may tell.
    fn room(&self, look: &Look, count: ValueId) -> Extent {
        let counted = look.graph.operands(count.node)[0];
        let axis = match look.graph.node(count.node).op {
            Op::Host(HostOp::Spread { count: Some(Count { axis, .. }), .. }) => axis,
            Op::Host(HostOp::Amount { most, .. }) => return Extent::Constant(most as i64),
            _ => unreachable!("counts are of these"),
        };
        let before = look.graph.values(counted.node).take(counted.out as usize);
        let number = before.map(|value| look.graph.ty(value).rank()).sum::<usize>() + axis;
        let formulas = self.formulas.get(&counted.node);
        match formulas.and_then(|formulas| formulas.get(&number)) {
            Some(formula) => formula.extent().clone(),
            None => Extent::Constant(look.graph.ty(counted).shape[axis] as i64),
        }
    }
}

/// Tells what a model is at any sizes, by the rules that were found.
struct Rules<'a> {
    build: &'a Build,
    look: &'a Look,
    nodes: HashMap<NodeId, &'a Seen>,
    named: usize,
    /// The most that each count may be.
    rooms: Vec<Extent>,
}

impl Rules<'_> {
    /// The sizes of a sample, some of them 0. No count is more than there is room for.
    fn sizes(&self, place: usize, is_zero: &dyn Fn(usize) -> bool) -> Option<Vec<usize>> {
        let mut sizes = self.build.samples[place][..self.named].to_vec();
        for (i, room) in self.rooms.iter().enumerate() {
            // A room is that of sizes before. With those of the sample it is no less.
            let mut known = sizes.clone();
            let all = self.named + self.rooms.len();
            known.extend(&self.build.samples[place][sizes.len()..all]);
            let known = self.build.with_sums(&known)?;
            let room = usize::try_from(room.at(&wide(&known))?).ok()?;
            let size = self.build.samples[place][self.named + i];
            sizes.push(if is_zero(i) { 0 } else { size.min(room) });
        }
        Some(sizes)
    }

    /// Whether the rules give what another graph gives.
    fn hold(&self, sizes: &[usize], other: &Graph) -> bool {
        let Some(sizes) = self.build.with_sums(sizes) else { return false };
        let own = &self.look.graph.outputs[..self.look.outputs()];
        let names = |all: &[(String, ValueId)]| {
            all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        if other.outputs.len() < own.len() || names(own) != names(&other.outputs[..own.len()]) {
            return false;
        }
        let ends = own.iter().zip(&other.outputs);
        let mut left: Vec<(ValueId, ValueId)> = ends.map(|((_, a), (_, b))| (*a, *b)).collect();
        let mut seen: HashSet<(ValueId, ValueId)> = left.iter().copied().collect();
        while let Some((a, b)) = left.pop() {
            let Some(is_empty) = self.is_empty(a, &sizes, other, b) else { return false };
            if is_empty {
                continue;
            }
            let Some(operands) = self.operands(a.node, &sizes, other, b.node) else { return false };
            if a.out != b.out || !self.is_same(a.node, &sizes, other, b.node) {
                return false;
            }
            left.extend(operands.into_iter().filter(|pair| seen.insert(*pair)));
        }
        true
    }

    /// The operands of two nodes that do the same, in pairs. What is joined may be empty, and then
    /// is no operand.
    fn operands(
        &self,
        own: NodeId,
        sizes: &[usize],
        other: &Graph,
        node: NodeId,
    ) -> Option<Vec<(ValueId, ValueId)>> {
        let (mut a, mut b) = (self.look.graph.operands(own), other.operands(node));
        if is_concat(self.look.graph.node(own)) && is_concat(other.node(node)) {
            a.retain(|v| self.shape(*v, sizes).is_none_or(|shape| !shape.contains(&0)));
            b.retain(|v| !other.ty(*v).is_empty());
        }
        (a.len() == b.len()).then(|| a.into_iter().zip(b).collect())
    }

    fn shape(&self, value: ValueId, sizes: &[usize]) -> Option<Vec<i64>> {
        match self.build.extents.get(&value) {
            Some(extents) => extents.iter().map(|extent| extent.at(&wide(sizes))).collect(),
            None => Some(wide(&self.look.graph.ty(value).shape)),
        }
    }

    /// Whether two values are empty; `None` if they differ in their shape.
    fn is_empty(&self, own: ValueId, sizes: &[usize], other: &Graph, v: ValueId) -> Option<bool> {
        let (a, b) = (self.look.graph.value(own), other.value(v));
        if a.ty.dtype != b.ty.dtype || a.dynamic != b.dynamic || a.ty.rank() != b.ty.rank() {
            return None;
        }
        if a.dynamic {
            return Some(false);
        }
        let shape = self.shape(own, sizes)?;
        (shape == wide(&b.ty.shape)).then(|| shape.contains(&0))
    }

    /// Whether two nodes compute the same, if their operands are the same.
    fn is_same(&self, own: NodeId, sizes: &[usize], other: &Graph, node: NodeId) -> bool {
        let (a, b) = (self.look.graph.node(own), other.node(node));
        let seen = self.nodes[&own];
        if let (Op::Compute(first), Op::Compute(second)) = (&a.op, &b.op)
            && is_concat(a)
        {
            return first.kind == second.kind;
        }
        let Some(like) = like(a, b) else { return false };
        match (&a.op, &b.op) {
            (Op::If(_) | Op::Loop(_), _) => return !seen.varies() && a.op == b.op,
            (Op::Input { .. }, _) => return a.name == b.name,
            (Op::Const(a), Op::Const(b)) => return self.is_constant(own, a, b, sizes),
            _ => {}
        }
        let none = Default::default();
        let formulas = self.build.formulas.get(&own).unwrap_or(&none);
        let number = |(k, found): (usize, &Option<_>)| {
            let Some(found) = found else { return true };
            let first = seen.first[k];
            let expected = match formulas.get(&k) {
                Some(formula) => formula.at(sizes, first.dtype()),
                None => Some(first),
            };
            expected == Some(*found)
        };
        let numbers = like.numbers.iter().enumerate().all(number);
        let form = match (&a.op, &b.op) {
            (Op::Compute(a), Op::Compute(b)) if !like.same_form => {
                self.build.gives(&a.expr, formulas, sizes, &b.expr)
            }
            _ => true,
        };
        numbers && form
    }

    fn is_constant(&self, own: NodeId, a: &Arc<Tensor>, b: &Tensor, sizes: &[usize]) -> bool {
        let number = |extent: &Extent| extent.at(&wide(sizes));
        match self.build.rules.get(&own) {
            None => **a == *b,
            Some(Rule::Part) => is_part(b, a),
            Some(Rule::Each(each)) => {
                let expected: Option<Vec<i64>> = each.iter().map(number).collect();
                expected.is_some() && expected == b.to_i64_vec()
            }
            Some(Rule::Shifted(_)) => false,
        }
    }
}

/// Whether a node joins its operands, of which none decides more than the extent.
fn is_concat(node: &Node) -> bool {
    matches!(&node.op, Op::Compute(op) if matches!(op.kind, Kind::Concat { .. }))
}
