//! Sizes that only the data decides, as numbers.
//!
//! In: a value of such a size, and a node that reads it. Out: the value with as many elements as
//! this import is told to take, so that the reader is imported as any other. Without a number it is
//! the most that there may be. How the graphs of several numbers become one is the work of
//! [`ansc_graph::sizes`].
//!
//! ```text
//! y = add(nonzero(x), 1)   with 5 as the count 0
//! ->  n: i64[2, 8] dynamic = nonzero(x)    r: i64[2, 5], count = spread(n)    y = add(r, 1)
//! ```
//!
//! Results of the same operator on the same values have the same size, and are one.

use std::collections::HashMap;

use ansc_graph::{Graph, NodeId, Op, TensorType, Value, ValueId};
use ansc_runtime::DType;
use ansc_runtime::host::{Count, HostOp};

use super::build::Importer;
use super::scope::Binding;

/// The counts of one import.
pub(super) struct Counts {
    /// The number for each size, in the order in which they are met; none, if all are the most.
    given: Vec<usize>,
    /// The sizes that were met.
    met: HashMap<NodeId, (u32, usize)>,
    /// Values as their readers find them.
    spread: HashMap<ValueId, ValueId>,
}

impl Counts {
    pub(super) fn new(given: &[usize]) -> Counts {
        Counts { given: given.to_vec(), met: HashMap::new(), spread: HashMap::new() }
    }
}

/// The axis of a value of which only the data decides the extent.
fn counted_axis(graph: &Graph, value: ValueId) -> Option<usize> {
    let Op::Host(op) = &graph.node(value.node).op else { return None };
    match op {
        HostOp::NonZero => Some(1),
        HostOp::NonMaxSuppression { .. } => Some(0),
        HostOp::Compress { axis } => Some(axis.unwrap_or(0)),
        HostOp::Unique { axis, .. } if value.out == 0 => Some(axis.unwrap_or(0)),
        HostOp::Unique { .. } => Some(0),
        _ => None,
    }
}

impl Importer {
    /// The binding of a name, where a node is about to read it.
    pub(super) fn read(&mut self, name: &str) -> Option<Binding> {
        let is_inner = |frame: &super::scope::Frame| frame.find(name) == Err(true);
        if self.counts.is_some()
            && self.frames[1..].iter().all(is_inner)
            && let Ok(Binding::Value(value)) = self.frames[0].find(name)
            && let Some(spread) = self.spread(value)
        {
            if self.frames.len() == 1 {
                return Some(Binding::Value(spread));
            }
            self.frames[0].bind(name, Binding::Value(spread));
        }
        super::scope::lookup(&mut self.frames, name)
    }

    /// A value of the model's own graph with as many elements as this import takes; `None` if its
    /// size is known, or depends on data in a way that is not counted.
    fn spread(&mut self, value: ValueId) -> Option<ValueId> {
        let counts = self.counts.as_mut()?;
        if let Some(&known) = counts.spread.get(&value) {
            return Some(known);
        }
        let graph = &mut self.frames[0].graph;
        let axis = counted_axis(graph, value).filter(|_| graph.value(value).dynamic)?;
        let Value { name, mut ty, .. } = graph.value(value).clone();
        let (next, room) = (counts.met.len() as u32, ty.shape[axis]);
        let is_new = !counts.met.contains_key(&value.node);
        let (number, size) = *counts
            .met
            .entry(value.node)
            .or_insert_with(|| (next, counts.given.get(next as usize).copied().unwrap_or(room)));
        ty.shape[axis] = size;
        let count = is_new.then_some(Count { axis, number, least: 0 });
        let op = HostOp::Spread { shape: ty.shape.clone(), count };
        let counter = Value::new(format!("{name} (count)"), TensorType::new(DType::I64, []));
        let mut outputs = vec![Value::new(format!("{name} (room)"), ty)];
        outputs.extend(is_new.then_some(counter));
        let node = graph.node(value.node).name.clone();
        let node = graph.add(&node, Op::Host(op), &[value], outputs);
        let spread = ValueId { node, out: 0 };
        counts.spread.insert(value, spread);
        Some(spread)
    }
}
