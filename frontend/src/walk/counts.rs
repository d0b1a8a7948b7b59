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
//!
//! A number that is computed from the data becomes a size where the user told the most that it may
//! be. Its readers find a constant.
//!
//! ```text
//! t = reducesum(x)   y = range(0, t, 1)   with 5 as the count 0
//! ->  t: i64[]    count = amount(t)    y = [0 1 2 3 4]
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use ansc_graph::{Graph, Op, TensorType, Value, ValueId};
use ansc_runtime::host::{Count, HostOp};
use ansc_runtime::{DType, Tensor};

use super::build::Importer;
use super::scope::Binding;
use crate::problem::Problem;

/// The counts of one import.
pub(crate) struct Counts {
    /// The number for each size, in the order in which they are met; none, if all are the most.
    given: Vec<usize>,
    /// The sizes that were met, by a value that has it or is it.
    met: HashMap<ValueId, (u32, usize)>,
    /// Values as their readers find them.
    spread: HashMap<ValueId, ValueId>,
}

impl Counts {
    pub(crate) fn new(given: &[usize]) -> Counts {
        Counts { given: given.to_vec(), met: HashMap::new(), spread: HashMap::new() }
    }

    /// The number of the size that a value has or is, and what it is here; `most` if nobody said.
    fn meet(&mut self, value: ValueId, most: usize) -> (u32, usize) {
        let next = self.met.len();
        let given = self.given.get(next).copied().unwrap_or(most);
        *self.met.entry(value).or_insert((next as u32, given))
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
        // All results of a node have the same size.
        let counted = ValueId { out: 0, ..value };
        let is_new = !counts.met.contains_key(&counted);
        let (number, size) = counts.meet(counted, ty.shape[axis]);
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

    /// Gives readers of a tensor a constant, if the user told the most that it may be.
    pub(super) fn amount(&mut self, name: &str, binding: Binding) -> Binding {
        let most = self.most.get(name).filter(|_| self.is_outermost());
        let (Some(&most), Binding::Value(value)) = (most, &binding) else { return binding };
        let known = self.known_amount(name, *value, most).map_err(|reason| {
            self.report(Problem::new(format!("`--most {name}={most}`: {reason}")));
        });
        known.map_or(Binding::Poisoned, Binding::Value)
    }

    fn known_amount(&mut self, name: &str, value: ValueId, most: usize) -> Result<ValueId, String> {
        let graph = &mut self.frames[0].graph;
        let Value { ty, dynamic, .. } = graph.value(value).clone();
        if dynamic || !is_number(&ty) {
            return Err(format!("the tensor is {ty}, and not one whole number"));
        }
        if ty.dtype == DType::I32 && i32::try_from(most).is_err() {
            return Err("that is more than the tensor can hold".into());
        }
        // Nobody counts, or there is nothing to count.
        let Some(counts) = self.counts.as_mut().filter(|_| graph.const_of(value).is_none()) else {
            return Ok(value);
        };
        let (number, size) = counts.meet(value, most);
        let op = HostOp::Amount { number, least: 0, most };
        let counter = Value::new(format!("{name} (count)"), TensorType::new(DType::I64, []));
        graph.add(name, Op::Host(op), &[value], vec![counter]);
        let known = match ty.dtype {
            DType::I32 => Tensor::from_slice(&ty.shape, &[size as i32]),
            _ => Tensor::from_slice(&ty.shape, &[size as i64]),
        };
        Ok(graph.add_const(name, Arc::new(known)))
    }
}

/// Whether a tensor is one number that may be a size.
pub(super) fn is_number(ty: &TensorType) -> bool {
    matches!(ty.dtype, DType::I64 | DType::I32) && ty.len() == 1
}
