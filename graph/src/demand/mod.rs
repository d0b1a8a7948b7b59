//! Which elements of a graph for a range of sizes matter.
//!
//! In: the groups of a graph that [`sizes`](crate::sizes) made. Out: for each group, how far along
//! each axis its results are needed, and beyond which index of each axis its operands are zero.
//! Code may leave out what is not needed, and terms that are zero.
//!
//! ```text
//! y: f32[64, 8] = a dense layer of x; of y the first s rows are results
//! ->  y is needed below s along its first axis, and so is x
//! ```

mod bounds;
mod order;
mod polynomial;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use ansc_runtime::Extent;
use ansc_runtime::host::HostOp;

use bounds::Known;
pub use bounds::extent_of;
pub use order::sizes_first;

use crate::compute::{Compute, Stage};
use crate::expr::{BinOp, BufId, Expr, VarId};
use crate::fuse::{Group, Item};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Op;
use crate::sizes::{renumbered, used};

/// For each axis of a tensor, an extent: elements from it on do not matter, or are zero. Nothing is
/// known of axes that are not there.
pub type Limits = Vec<Option<Extent>>;

/// Facts about the operands and results of a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Demand {
    /// For each operand, the size that it holds, if it is one.
    pub sizes: Vec<Option<u32>>,
    /// For each operand, where zeros begin.
    pub zeros: Vec<Limits>,
    /// For each result, up to where it is needed.
    pub needed: Vec<Limits>,
    /// The sizes up to which results are needed, and that may be 0.
    pub empty: Vec<u32>,
}

impl Demand {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        let nothing = |all: &[Limits]| all.iter().flatten().all(Option::is_none);
        nothing(&self.zeros) && nothing(&self.needed) && self.sizes.iter().all(Option::is_none)
    }

    /// Up to where a parameter is needed, of those that are operands first and then results.
    pub fn needed_of(&self, param: usize) -> Option<&Limits> {
        self.needed.get(param.checked_sub(self.sizes.len())?)
    }
}

/// The sizes of a graph, and the extents that they give its results.
pub struct Ends<'a> {
    /// The values that hold the sizes. What comes before a size is known is needed whatever it is.
    pub sizes: &'a [ValueId],
    /// The smallest of each.
    pub lows: &'a [i64],
    /// The extents of each output.
    pub outputs: &'a [Vec<Extent>],
}

/// The demand on each group, in the order of the items that are groups.
///
/// Where operands of a sum are zero from some index on, `beyond` tells how many terms more its code
/// may add all the same, which therefore have to be there; `None` if it adds all. It gets the
/// group, and what is known of it.
pub fn demands(
    graph: &Graph,
    items: &[Item],
    ends: &Ends<'_>,
    beyond: &mut dyn FnMut(&Group, &Demand) -> Option<i64>,
) -> Vec<Demand> {
    let groups: Vec<&Group> = items
        .iter()
        .filter_map(|item| match item {
            Item::Group(group) => Some(&**group),
            Item::Node(_) => None,
        })
        .collect();
    let (zeros, needed) = (HashMap::new(), HashMap::new());
    let mut all = Analysis { graph, ends, made: made(graph, items), zeros, needed };
    for item in items {
        match item {
            Item::Group(group) => all.forward(group),
            Item::Node(node) => all.forward_node(*node),
        }
    }
    all.begin(items);
    for group in groups.iter().rev() {
        let more = beyond(group, &all.demand(group));
        all.backward(group, more);
    }
    groups.iter().map(|group| all.demand(group)).collect()
}

/// The number of the item that makes each value.
fn made(graph: &Graph, items: &[Item]) -> HashMap<ValueId, usize> {
    let values = |item: &Item| match item {
        Item::Group(group) => group.outputs.clone(),
        // Those are there before anything runs.
        Item::Node(node) if matches!(graph.node(*node).op, Op::Input { .. }) => vec![],
        Item::Node(node) => graph.values(*node).collect(),
    };
    let numbered = items.iter().enumerate();
    numbered.flat_map(|(at, item)| values(item).into_iter().map(move |v| (v, at))).collect()
}

/// How far along each axis a value is needed.
#[derive(Clone, PartialEq, Debug)]
enum Need {
    /// Nobody reads it.
    Nothing,
    /// All of an axis for which there is no extent.
    Below(Limits),
}

struct Analysis<'a> {
    graph: &'a Graph,
    ends: &'a Ends<'a>,
    /// The number of the item that makes each value.
    made: HashMap<ValueId, usize>,
    zeros: HashMap<ValueId, Limits>,
    needed: HashMap<ValueId, Need>,
}

impl Analysis<'_> {
    fn size_of(&self, group: &Group, buffer: BufId) -> Option<u32> {
        let value = group.inputs.get(buffer.index())?;
        let at = self.ends.sizes.iter().position(|size| size == value)?;
        Some(at as u32)
    }

    /// Finds where the result of a node is zero that is no group.
    fn forward_node(&mut self, node: NodeId) {
        let Some((axis, [at, count])) = self.appended(node) else { return };
        let value = ValueId { node, out: 0 };
        let mut limits = vec![None; self.graph.ty(value).rank()];
        limits[axis] = polynomial::sum(vec![at, count]);
        self.zeros.insert(value, limits);
    }

    /// Finds where the results of a group are zero.
    fn forward(&mut self, group: &Group) {
        let zeros = self.zeros_of_stages(group);
        for (value, &stage) in group.outputs.iter().zip(&group.compute.outputs) {
            self.zeros.insert(*value, zeros[stage].clone());
        }
    }

    /// Where each stage of a group is zero.
    fn zeros_of_stages(&self, group: &Group) -> Vec<Limits> {
        let mut all: Vec<Limits> = vec![];
        for stage in &group.compute.stages {
            let zeros = |buffer: BufId| self.zeros_of(group, &all, buffer);
            let size = |buffer: BufId| self.size_of(group, buffer);
            let axes = 0..stage.ty.rank();
            let limits = match stage.reduce {
                Some(_) => vec![None; stage.ty.rank()],
                None => {
                    axes.map(|a| zero_from(&stage.body, VarId::new(a), &zeros, &size)).collect()
                }
            };
            all.push(limits);
        }
        all
    }

    fn zeros_of(&self, group: &Group, stages: &[Limits], buffer: BufId) -> Limits {
        match group.compute.stage_of(buffer) {
            Some(stage) => stages[stage].clone(),
            None => self.zeros.get(&group.inputs[buffer.index()]).cloned().unwrap_or_default(),
        }
    }

    /// Notes what the results of the graph, and nodes that are no groups, need.
    fn begin(&mut self, items: &[Item]) {
        for ((_, value), extents) in self.graph.outputs.iter().zip(self.ends.outputs) {
            let shape = &self.graph.ty(*value).shape;
            let limit = |(e, room): (&Extent, &usize)| match e {
                Extent::Constant(all) if *all == *room as i64 => None,
                e => polynomial::normal(e),
            };
            let limits = extents.iter().zip(shape).map(limit).collect();
            self.need(*value, limits);
        }
        for item in items {
            if let Item::Node(node) = item {
                let operands = self.graph.operands(*node);
                let part = self.part(*node);
                for (slot, value) in operands.into_iter().enumerate() {
                    let limits = part.as_ref().filter(|(of, _)| slot == *of);
                    self.need(value, limits.map_or_else(Limits::new, |(_, limits)| limits.clone()));
                }
            }
        }
    }

    /// The operand of which a node that is no group reads a part, and how far.
    fn part(&self, node: NodeId) -> Option<(usize, Limits)> {
        if let Some((axis, [_, count])) = self.appended(node) {
            let rows = self.graph.operands(node)[1];
            let mut limits = vec![None; self.graph.ty(rows).rank()];
            limits[axis] = Some(count);
            return Some((1, limits));
        }
        let Op::Host(HostOp::Shrink { extents }) = &self.graph.node(node).op else { return None };
        let operands = self.graph.operands(node);
        let room = &self.graph.ty(operands[0]).shape;
        let limit = |(extent, room): (&Extent, &usize)| match extent {
            Extent::Constant(all) if *all == *room as i64 => None,
            extent => self.of_sizes(extent, &operands[1..]),
        };
        Some((0, extents.iter().zip(room).map(limit).collect()))
    }

    /// An extent of the sizes that these operands are.
    fn of_sizes(&self, extent: &Extent, operands: &[ValueId]) -> Option<Extent> {
        let size = |number: u32| {
            let operand = operands.get(number as usize);
            self.ends.sizes.iter().position(|size| Some(size) == operand)
        };
        polynomial::normal(&renumbered(extent, &size)?)
    }

    /// The axis along which a node appends rows, from which one on, and how many; `None` if it is
    /// another node.
    fn appended(&self, node: NodeId) -> Option<(usize, [Extent; 2])> {
        let Op::Host(HostOp::Append { axis, at, count, each }) = &self.graph.node(node).op else {
            return None;
        };
        let operands = self.graph.operands(node);
        let sizes = operands.get(2 + usize::from(*each)..)?;
        Some((*axis, [self.of_sizes(at, sizes)?, self.of_sizes(count, sizes)?]))
    }

    /// Whether the sizes that an extent is of are known when the value is computed.
    fn is_known(&self, extent: &Extent, value: ValueId) -> bool {
        used(std::iter::once(extent)).into_iter().all(|size| {
            let size = self.made.get(&self.ends.sizes[size]);
            size.is_none_or(|size| self.made.get(&value).is_some_and(|at| size < at))
        })
    }

    fn need(&mut self, value: ValueId, mut limits: Limits) {
        let rank = self.graph.ty(value).rank();
        for limit in &mut limits {
            *limit = limit.take().filter(|limit| self.is_known(limit, value));
        }
        let of = |limits: &Limits, axis: usize| limits.get(axis).cloned().flatten();
        let known = Known { below: &|_| None, lows: self.ends.lows };
        let now = match self.needed.get(&value) {
            Some(Need::Below(before)) => {
                let axis = |a: usize| known.larger(&of(before, a)?, &of(&limits, a)?);
                (0..rank).map(axis).collect()
            }
            _ => (0..rank).map(|a| of(&limits, a)).collect(),
        };
        self.needed.insert(value, Need::Below(now));
    }

    /// Finds how far the operands of a group are needed, whose readers all said so before.
    fn backward(&mut self, group: &Group, beyond: Option<i64>) {
        let compute = &group.compute;
        let zeros = self.zeros_of_stages(group);
        let mut stages: Vec<Need> = vec![Need::Nothing; compute.stages.len()];
        let lows = self.ends.lows;
        for (value, &stage) in group.outputs.iter().zip(&compute.outputs) {
            if let Some(Need::Below(limits)) = self.needed.get(value) {
                stages[stage].add(limits, lows);
            }
        }
        for (index, stage) in compute.stages.iter().enumerate().rev() {
            let Need::Below(limits) = stages[index].clone() else { continue };
            let bounds = self.bounds(group, stage, limits, &|b| {
                beyond.map_or_else(Vec::new, |by| later(self.zeros_of(group, &zeros, b), by))
            });
            let size = |buffer: BufId| self.size_of(group, buffer);
            let mut reads = vec![];
            for (buffer, indices, conditions) in guarded_loads(&stage.body) {
                let below = |v: VarId| {
                    let bound = bounds.get(v.index()).cloned().flatten()?;
                    let asked = conditions.iter().filter_map(|c| below(c, v, &size));
                    let known = Known { below: &|_| None, lows };
                    // Of two bounds the first one will do, unless the other is known to be less.
                    Some(asked.fold(bound, |bound, other| match known.larger(&bound, &other) {
                        Some(larger) if larger == bound => other,
                        _ => bound,
                    }))
                };
                let known = Known { below: &below, lows };
                // Under a guard an index may seem to leave its axis.
                let inside = |(index, &room): (&Expr, &usize)| match known.below(index)? {
                    Extent::Constant(n) => Some(Extent::Constant(n.min(room as i64))),
                    below => Some(below),
                };
                let shape = &compute.buffer_type(buffer).shape;
                reads.push((buffer, indices.iter().zip(shape).map(inside).collect::<Limits>()));
            }
            for (buffer, limits) in reads {
                match compute.stage_of(buffer) {
                    Some(earlier) => stages[earlier].add(&limits, lows),
                    None => self.need(group.inputs[buffer.index()], limits),
                }
            }
        }
    }

    /// The extents that the axes of a stage and of its reduction stay below. `zeros` tells from
    /// where on nobody asks for zeros of a buffer.
    fn bounds(&self, group: &Group, stage: &Stage, mut limits: Limits, zeros: Zeros<'_>) -> Limits {
        let terms = stage.reduce.as_ref().map_or(0, |reduce| reduce.extents.len());
        let rank = stage.ty.rank();
        limits.resize(rank, None);
        let size = |buffer: BufId| self.size_of(group, buffer);
        let constant = |e: &usize| Some(Extent::Constant(*e as i64));
        let extents = stage.extents();
        let term =
            |t: usize| neutral_from(stage, &group.compute, VarId::new(rank + t), zeros, &size);
        limits.extend((0..terms).map(term));
        limits.into_iter().zip(&extents).map(|(limit, e)| limit.or_else(|| constant(e))).collect()
    }

    fn demand(&self, group: &Group) -> Demand {
        let rank = |value: &ValueId| self.graph.ty(*value).rank();
        let zeros = |v: &ValueId| self.zeros.get(v).cloned().unwrap_or_else(|| vec![None; rank(v)]);
        let needed = |v: &ValueId| match self.needed.get(v) {
            Some(Need::Below(limits)) => {
                let shape = self.graph.ty(*v).shape.iter();
                let open = |(limit, room): (&Option<Extent>, &usize)| {
                    let is_all =
                        |e: &Extent| matches!(e, Extent::Constant(n) if *n >= *room as i64);
                    limit.clone().filter(|e| !is_all(e))
                };
                limits.iter().zip(shape).map(open).collect()
            }
            _ => vec![None; rank(v)],
        };
        let needed: Vec<Limits> = group.outputs.iter().map(needed).collect();
        let empty = used(needed.iter().flatten().flatten()).into_iter();
        Demand {
            sizes: (0..group.inputs.len()).map(|i| self.size_of(group, BufId::new(i))).collect(),
            zeros: group.inputs.iter().map(zeros).collect(),
            empty: empty.filter(|&size| self.ends.lows[size] <= 0).map(|s| s as u32).collect(),
            needed,
        }
    }
}

impl Need {
    fn add(&mut self, limits: &Limits, lows: &[i64]) {
        let known = Known { below: &|_| None, lows };
        *self = Need::Below(match self {
            Need::Nothing => limits.clone(),
            Need::Below(before) => {
                let both = before.iter().zip(limits);
                both.map(|(a, b)| known.larger(a.as_ref()?, b.as_ref()?)).collect()
            }
        });
    }
}

/// How many elements later the first of two extents is, if that is the same at all sizes.
pub fn apart(a: &Extent, b: &Extent) -> Option<i64> {
    match polynomial::sum(vec![a.clone(), polynomial::times(b.clone(), -1)?])? {
        Extent::Constant(more) => Some(more),
        _ => None,
    }
}

/// Limits that come later by so many elements.
fn later(limits: Limits, by: i64) -> Limits {
    let one = |limit: Extent| polynomial::sum(vec![limit, Extent::Constant(by)]);
    limits.into_iter().map(|limit| limit.and_then(one)).collect()
}

/// The loads of an expression, each with the conditions of the choices that it is a part of.
fn guarded_loads(e: &Expr) -> Vec<(BufId, &[Expr], Vec<&Expr>)> {
    fn add<'e>(
        e: &'e Expr,
        conditions: &mut Vec<&'e Expr>,
        all: &mut Vec<(BufId, &'e [Expr], Vec<&'e Expr>)>,
    ) {
        if let Expr::Load(buffer, indices) = e {
            all.push((*buffer, indices, conditions.clone()));
        }
        if let Expr::Select(condition, chosen, other) = e {
            add(condition, conditions, all);
            conditions.push(condition);
            add(chosen, conditions, all);
            conditions.pop();
            return add(other, conditions, all);
        }
        e.children().into_iter().for_each(|child| add(child, conditions, all));
    }
    let mut all = vec![];
    add(e, &mut vec![], &mut all);
    all
}

/// Functions that tell zeros of buffers, and sizes in them.
type Zeros<'f> = &'f dyn Fn(BufId) -> Limits;
type Sizes<'f> = &'f dyn Fn(BufId) -> Option<u32>;

/// From which value of a variable on an expression is zero.
fn zero_from(e: &Expr, var: VarId, zeros: Zeros<'_>, size: Sizes<'_>) -> Option<Extent> {
    match e {
        Expr::Load(buffer, indices) => {
            let limits = zeros(*buffer);
            let at = indices.iter().position(|index| *index == Expr::Var(var))?;
            limits.get(at).cloned().flatten()
        }
        Expr::Select(condition, x, other) if is_zero(other) => {
            below(condition, var, size).or_else(|| zero_from(x, var, zeros, size))
        }
        Expr::Binary(BinOp::Mul, a, b) => {
            let (a, b) = (zero_from(a, var, zeros, size)?, zero_from(b, var, zeros, size)?);
            (a == b).then_some(a)
        }
        Expr::Cast(_, x) => zero_from(x, var, zeros, size),
        _ => None,
    }
}

fn is_zero(e: &Expr) -> bool {
    e.as_const().is_some_and(|value| value.is_zero())
}

/// The extent that a condition wants the variable to be below.
fn below(condition: &Expr, var: VarId, size: Sizes<'_>) -> Option<Extent> {
    match condition {
        Expr::Binary(BinOp::And, a, b) => below(a, var, size).or_else(|| below(b, var, size)),
        Expr::Binary(BinOp::Lt, a, b) if **a == Expr::Var(var) => extent_of(b, size),
        _ => None,
    }
}

/// From which value of a reduction's variable on its terms change nothing.
fn neutral_from(
    stage: &Stage,
    compute: &Compute,
    var: VarId,
    zeros: Zeros<'_>,
    size: Sizes<'_>,
) -> Option<Extent> {
    let reduce = stage.reduce.as_ref()?;
    let dtype = stage.body.dtype(&|b| compute.buffer_type(b).dtype);
    match &stage.body {
        Expr::Select(condition, _, other)
            if other.as_const().is_some()
                && other.as_const() == reduce.combiner.identity(dtype) =>
        {
            below(condition, var, size)
        }
        body if reduce.combiner == crate::compute::Combiner::Sum => {
            zero_from(body, var, zeros, size)
        }
        _ => None,
    }
}
