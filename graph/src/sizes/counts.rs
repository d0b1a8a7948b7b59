//! Sizes that only the data decides.
//!
//! In: host operators whose results have such a size, each behind a `Spread` that counts it, and
//! numbers that become sizes, each behind an `Amount`. Out: the counts as further sizes. Kernels
//! read tensors with room for the most that there may be. Operators of the runtime, and the caller,
//! get the part that is there.
//!
//! ```text
//! n: i64[2, 8] dynamic = nonzero(x)
//! y: i64[2, 8], s: i64[] = spread(n)           the size of y in imports, [2, 5] at s = 5
//! z: i64[2, 8] = y[i0, i1] + 1                 all of it; nobody reads z beyond s
//! out: i64[2, 8] dynamic = shrink(z, s)        the result of the model, [2, s]
//! ```

use std::collections::HashSet;

use ansc_runtime::Extent;
use ansc_runtime::host::{Count, HostOp};
use rayon::prelude::*;

use super::build::{Build, Formulas, Readers};
use super::formula::{renumbered, used, wide};
use super::{Range, Unfit};
use crate::compute::TensorType;
use crate::graph::{Graph, NodeId, Value, ValueId};
use crate::op::Op;
use crate::passes::rewrite;
use crate::text::first_unused;

/// The fewest elements that are looked at: for none a model may be another one.
const LEAST: usize = 1;

/// A size that only the data decides.
pub(super) struct Counter {
    /// The size as a value.
    pub(super) value: ValueId,
    /// The most that it may be.
    pub(super) most: usize,
    number: u32,
}

/// The size that a node tells, if it does.
fn counter(graph: &Graph, node: NodeId) -> Option<Counter> {
    let of = |out, number, most| Counter { value: ValueId { node, out }, number, most };
    match &graph.node(node).op {
        Op::Host(HostOp::Spread { shape, count: Some(Count { axis, number, .. }) }) => {
            Some(of(1, *number, shape[*axis]))
        }
        Op::Host(HostOp::Amount { number, most, .. }) => Some(of(0, *number, *most)),
        _ => None,
    }
}

/// All of them, in the order of their numbers.
fn counting(graph: &Graph) -> Vec<Counter> {
    let nodes = graph.node_ids().into_iter();
    let mut all: Vec<Counter> = nodes.filter_map(|node| counter(graph, node)).collect();
    all.sort_by_key(|counter| counter.number);
    all
}

/// Lets less than this be an error of a run, in the node that tells a size.
pub(super) fn set_least(graph: &mut Graph, size: ValueId, fewest: usize) {
    match &mut graph.node_mut(size.node).op {
        Op::Host(HostOp::Spread { count: Some(Count { least, .. }), .. })
        | Op::Host(HostOp::Amount { least, .. }) => *least = fewest,
        _ => {}
    }
}

/// The counts of a graph, which has the most elements of each.
pub(super) fn ranges(graph: &Graph) -> Vec<Range> {
    let range = |Counter { value, most, .. }| {
        let name = graph.node(value.node).name.clone();
        Range { name, low: LEAST.min(most), high: most }
    };
    counting(graph).into_iter().map(range).collect()
}

/// Lets ranges begin where the model is one: it may ask for the best five of what the data gives.
/// `is_model` gets the largest sizes, and counts.
pub(super) fn begin(
    counts: &mut [Range],
    sizes: &[usize],
    is_model: impl Fn(&[usize]) -> bool + Sync,
) {
    let with = |count: &dyn Fn(usize) -> usize| {
        let counts = (0..counts.len()).map(count);
        is_model(&sizes.iter().copied().chain(counts).collect::<Vec<_>>())
    };
    if counts.is_empty() || with(&|i| counts[i].low) {
        return;
    }
    let least = |one: usize| {
        let fits = |size: usize| with(&|i| if i == one { size } else { counts[i].high });
        let Range { mut low, mut high, .. } = counts[one];
        if fits(low) {
            return low;
        }
        while high - low > 1 {
            let middle = low.midpoint(high);
            *if fits(middle) { &mut high } else { &mut low } = middle;
        }
        high
    };
    let lows: Vec<usize> = (0..counts.len()).into_par_iter().map(least).collect();
    counts.iter_mut().zip(lows).for_each(|(count, low)| count.low = low);
}

/// Lets counts be outputs of the graph, so that they stay. They come last.
pub(super) fn expose(graph: &mut Graph) {
    for counter in counting(graph) {
        expose_one(graph, counter.value);
    }
}

/// Adds an output.
pub(super) fn expose_one(graph: &mut Graph, value: ValueId) {
    let is_taken = |name: &str| graph.outputs.iter().any(|(other, _)| other == name);
    let names = (graph.outputs.len()..).map(|n| format!("size ({n})"));
    let name = first_unused(names, is_taken);
    graph.outputs.push((name, value));
}

/// How many outputs of the graph are counts.
pub(super) fn exposed(graph: &Graph) -> usize {
    counting(graph).len()
}

/// The graph of some counts alone: of those from the number `known` on that depend on no other one
/// of them. `None`, if there are no more counts.
pub fn next_counts(graph: &Graph, known: usize) -> Option<Graph> {
    let all = counting(graph);
    let left: Vec<ValueId> = all.iter().skip(known).map(|counter| counter.value).collect();
    let is_free = |size: &&ValueId| {
        let before = reach(graph, graph.operands(size.node));
        !left.iter().any(|other| before.contains(&other.node))
    };
    let next: Vec<ValueId> = left.iter().take_while(is_free).copied().collect();
    if next.is_empty() {
        return None;
    }
    let mut graph = graph.clone();
    let is_check = |node: &NodeId| graph.node(*node).op.is_check();
    for check in graph.node_ids().into_iter().filter(is_check).collect::<Vec<_>>() {
        graph.remove(check);
    }
    let named = next.into_iter().enumerate();
    graph.outputs = named.map(|(i, size)| (i.to_string(), size)).collect();
    rewrite::sweep(&mut graph);
    Some(graph)
}

/// The nodes that values depend on.
fn reach(graph: &Graph, mut left: Vec<ValueId>) -> HashSet<NodeId> {
    let mut seen = HashSet::new();
    while let Some(value) = left.pop() {
        if seen.insert(value.node) {
            left.extend(graph.operands(value.node));
        }
    }
    seen
}

impl Build {
    /// An operator of the runtime reads the elements that are there, and tells how many it writes.
    pub(super) fn host(&mut self, node: NodeId, formulas: &Formulas) -> Result<(), Unfit> {
        self.keep(node, formulas)?;
        let shrunk = |build: &mut Self, value: ValueId| match build.varying_axes(value).is_empty() {
            true => value,
            false => build.shrunk(value),
        };
        let operands = self.graph.operands(node);
        let operands: Vec<ValueId> = operands.into_iter().map(|v| shrunk(self, v)).collect();
        self.graph.set_operands(node, &operands);
        let mut from = 0;
        for value in self.graph.values(node).collect::<Vec<_>>() {
            if !self.graph.value(value).dynamic {
                self.note_value(value, from, formulas)?;
                if self.extents.contains_key(&value) {
                    self.spread(value);
                }
            }
            from += self.graph.ty(value).rank();
        }
        Ok(())
    }

    /// Lets a `TopK` keep all elements of an axis that has fewer than the most it keeps.
    fn keep(&mut self, node: NodeId, formulas: &Formulas) -> Result<(), Unfit> {
        let Op::Host(HostOp::TopK { axis, k, .. }) = self.graph.node(node).op else {
            return Ok(());
        };
        let types = self.graph.node(node).outputs.iter().map(|value| value.ty.rank());
        let Some(kept) = formulas.get(&types.sum()) else { return Ok(()) };
        let x = self.graph.operands(node)[0];
        let extent = match self.extents.get(&x) {
            Some(extents) => extents[axis].clone(),
            None => Extent::Constant(self.graph.ty(x).shape[axis] as i64),
        };
        let is_most = |sizes: &Vec<usize>| {
            let sizes = wide(sizes);
            let all = extent.at(&sizes).map(|extent| extent.min(k as i64));
            all.is_some() && kept.extent().at(&sizes) == all
        };
        if !self.samples.iter().all(is_most) {
            let reason = "it keeps another number of elements for some of the sizes";
            return Err(self.unfit(node, reason));
        }
        if let Op::Host(HostOp::TopK { at_most, .. }) = &mut self.graph.node_mut(node).op {
            *at_most = true;
        }
        Ok(())
    }

    /// The part of a value that is there.
    pub(super) fn shrunk(&mut self, value: ValueId) -> ValueId {
        if let Some(known) = self.shrunk.get(&value) {
            return *known;
        }
        let extents = self.extents[&value].clone();
        let sizes = used(extents.iter());
        let place = |size: u32| sizes.iter().position(|other| *other == size as usize);
        let extents: Vec<Extent> = extents
            .iter()
            .map(|extent| renumbered(extent, &place).expect("all are listed"))
            .collect();
        let inputs: Vec<ValueId> =
            std::iter::once(value).chain(sizes.iter().map(|&s| self.sizes[s])).collect();
        let op = Op::Host(HostOp::Shrink { extents });
        let ty = self.graph.ty(value).clone();
        let new = self.add_host("part", value, op, &inputs, (ty, true));
        self.shrunk.insert(value, new);
        new
    }

    /// Gives the result of an operator of the runtime the room of the largest sizes.
    fn spread(&mut self, value: ValueId) {
        let readers = Readers::of(&self.graph, value);
        self.graph.value_mut(value).dynamic = true;
        let ty = self.graph.ty(value).clone();
        let op = Op::Host(HostOp::Spread { shape: ty.shape.clone(), count: None });
        let new = self.add_host("room", value, op, &[value], (ty, false));
        readers.read(&mut self.graph, new);
        self.extents.insert(new, self.extents[&value].clone());
    }

    fn add_host(
        &mut self,
        what: &str,
        of: ValueId,
        op: Op,
        inputs: &[ValueId],
        (ty, dynamic): (TensorType, bool),
    ) -> ValueId {
        let name = self.graph.node(of.node).name.clone();
        let value = format!("{} ({what})", self.graph.value(of).name);
        let output = Value { dynamic, ..Value::new(value, ty) };
        let node = self.graph.add(&name, op, inputs, vec![output]);
        ValueId { node, out: 0 }
    }

    /// Gives results of the model the shapes that counts decide; the extents of all of them.
    pub(super) fn results(&mut self, named: usize, mut all: Vec<Vec<Extent>>) -> Vec<Vec<Extent>> {
        for (i, extents) in all.iter_mut().enumerate() {
            if used(extents.iter()).iter().all(|&size| size < named) {
                continue;
            }
            let value = self.graph.outputs[i].1;
            let shape = self.graph.ty(value).shape.clone();
            self.extents.insert(value, extents.clone());
            self.graph.outputs[i].1 = self.shrunk(value);
            *extents = shape.iter().map(|&extent| Extent::Constant(extent as i64)).collect();
        }
        all
    }
}
