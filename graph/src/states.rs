//! Tensors that a session keeps from one run to the next: an output of the model that is an input
//! of its next run.
//!
//! In: a graph, and the names of such pairs. Out: the graph with one type for both ends of a pair,
//! the room of the state; and where the output is the input with more rows, a node that appends
//! them where the state lies.
//!
//! ```text
//! present: f32[8, 6, 64] = concat(past: f32[8, 5, 64], rows: f32[8, 1, 64])
//! ->  present: f32[8, 9, 64] = host "Append" (past: f32[8, 9, 64], rows)     in a room of 9 rows
//! ```
//!
//! Other readers of the two read the part that is there. Rows behind those of a state to which rows
//! are appended are zeros: so sums may run over them.

use ansc_runtime::Extent;
use ansc_runtime::host::HostOp;

use crate::compute::TensorType;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind, Op};
use crate::ops::attention::CACHE;
use crate::ops::pad::{self, PadMode};
use crate::ops::{OpError, slice};
use crate::passes::rewrite;
use crate::scalar::Scalar;

/// The two ends of a state.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pair {
    /// The input that reads what the run before left.
    pub input: String,
    /// The output that is left for the next run.
    pub output: String,
}

/// A pair in a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The number of the input.
    pub input: usize,
    /// The number of the output.
    pub output: usize,
}

/// Why an input and an output cannot be one tensor.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StateError {
    /// There is none of this name.
    #[error("the model has no {kind} `{name}`; it has {}", known.join(", "))]
    Unknown {
        /// `input` or `output`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The value of the input is fixed.
    #[error("input `{0}` has a fixed value, so that no run can change it")]
    Bound(String),
    /// The types differ in more than what runs may add.
    #[error("a run that finds {before} in `{}` leaves {after} in `{}`", pair.input, pair.output)]
    Types {
        /// The names.
        pair: Box<Pair>,
        /// The type of the input.
        before: Box<TensorType>,
        /// The type of the output.
        after: Box<TensorType>,
    },
    /// An operator could not be made.
    #[error("state `{name}`: {error}")]
    Operator {
        /// The input.
        name: String,
        /// The reason.
        error: OpError,
    },
}

/// Where the pairs are in a graph. Each input has one output, which has elements of its type and
/// at least as many along each axis.
pub fn places(graph: &Graph, pairs: &[Pair]) -> Result<Vec<Place>, StateError> {
    pairs.iter().map(|pair| place(graph, pair)).collect()
}

fn place(graph: &Graph, pair: &Pair) -> Result<Place, StateError> {
    let inputs: Vec<&str> = graph.inputs().iter().map(|n| &graph.node(*n).name[..]).collect();
    let outputs: Vec<&str> = graph.outputs.iter().map(|(name, _)| &name[..]).collect();
    let find = |kind, name: &str, known: &[&str]| {
        known.iter().position(|other| *other == name).ok_or_else(|| StateError::Unknown {
            kind,
            name: name.to_owned(),
            known: known.iter().map(|name| (*name).to_owned()).collect(),
        })
    };
    let place = Place {
        input: find("input", &pair.input, &inputs)?,
        output: find("output", &pair.output, &outputs)?,
    };
    let (before, after) = place.values(graph);
    if matches!(graph.node(before.node).op, Op::Input { bound: Some(_) }) {
        return Err(StateError::Bound(pair.input.clone()));
    }
    let dynamic = graph.value(after).dynamic;
    let (before, after) = (graph.ty(before), graph.ty(after));
    let holds = |room: &TensorType, ty: &TensorType| {
        let fits = |(a, b): (&usize, &usize)| a >= b;
        room.rank() == ty.rank() && room.shape.iter().zip(&ty.shape).all(fits)
    };
    if dynamic || before.dtype != after.dtype || !holds(after, before) {
        let (before, after) = (Box::new(before.clone()), Box::new(after.clone()));
        return Err(StateError::Types { pair: Box::new(pair.clone()), before, after });
    }
    Ok(place)
}

impl Place {
    /// The value that a run finds, and the one that it leaves.
    pub fn values(self, graph: &Graph) -> (ValueId, ValueId) {
        let input = ValueId { node: graph.inputs()[self.input], out: 0 };
        (input, graph.outputs[self.output].1)
    }

    /// The axes along which a run adds to the state.
    pub fn growing(self, graph: &Graph) -> Vec<usize> {
        let (before, after) = self.values(graph);
        let (before, after) = (graph.ty(before), graph.ty(after));
        (0..before.rank()).filter(|&axis| before.shape[axis] != after.shape[axis]).collect()
    }
}

/// Lets the results of pairs that are the input with more rows be appended to it.
pub fn append(graph: &mut Graph, places: &[Place]) {
    for place in places {
        let (before, after) = place.values(graph);
        let operands = graph.operands(after.node);
        let (axis, rows, each) = match (graph.compute_of(after.node), &operands[..]) {
            (Some(ComputeOp { kind: Kind::Concat { axis }, .. }), &[first, rows])
                if first == before =>
            {
                (*axis, rows, false)
            }
            (Some(ComputeOp { kind: Kind::Other(kind), .. }), &[first, rows, _])
                if first == before && kind == CACHE =>
            {
                (2, rows, true)
            }
            _ => continue,
        };
        let extent = |value: ValueId| graph.ty(value).shape[axis];
        let (end, count) = (extent(after), extent(rows));
        if rows == before || extent(before) + count != end {
            continue;
        }
        let number = |n: usize| Extent::Constant(n as i64);
        let op = HostOp::Append { axis, at: number(end - count), count: number(count), each };
        graph.node_mut(after.node).op = Op::Host(op);
    }
}

/// The node that appends to a state in place, if one does.
pub fn appends(graph: &Graph, place: Place) -> Option<NodeId> {
    let (before, after) = place.values(graph);
    let is_append = matches!(graph.node(after.node).op, Op::Host(HostOp::Append { .. }));
    (is_append && graph.operands(after.node)[0] == before).then_some(after.node)
}

/// Gives both ends of each pair the type of its room, which holds the largest of them.
pub fn give_room(
    graph: &mut Graph,
    places: &[Place],
    rooms: &[TensorType],
) -> Result<(), StateError> {
    for (place, room) in places.iter().zip(rooms) {
        let (before, after) = place.values(graph);
        let name = graph.node(before.node).name.clone();
        let failed = |error| StateError::Operator { name: name.clone(), error };
        let append = appends(graph, *place);
        let keeps = |user: NodeId| Some(user) == append;
        widen(graph, before, room, &keeps).map_err(failed)?;
        if append.is_some() {
            widen(graph, after, room, &|_| false).map_err(failed)?;
        } else if after != before && graph.ty(after) != room {
            let ty = graph.ty(after).clone();
            let more = ty.shape.iter().zip(&room.shape).map(|(n, room)| (room - n) as i64);
            let (zero, more) =
                (PadMode::Constant(Scalar::zero(ty.dtype)), more.collect::<Vec<_>>());
            let op = pad::pad(&[ty], zero, &vec![0; more.len()], &more).map_err(failed)?;
            let wide = rewrite::add(graph, &name, op, &[after]);
            graph.outputs[place.output].1 = wide;
        }
    }
    Ok(())
}

/// Gives a value another type; readers get the part of it that is there, but those that take all.
fn widen(
    graph: &mut Graph,
    value: ValueId,
    room: &TensorType,
    takes_all: &dyn Fn(NodeId) -> bool,
) -> Result<(), OpError> {
    let ty = graph.ty(value).clone();
    if ty == *room {
        return Ok(());
    }
    let readers: Vec<(NodeId, u32)> =
        graph.users(value).into_iter().filter(|(user, _)| !takes_all(*user)).collect();
    graph.value_mut(value).ty = room.clone();
    if readers.is_empty() {
        return Ok(());
    }
    let (starts, steps) = (vec![0; ty.rank()], vec![1; ty.rank()]);
    let op = slice::slice(room, &starts, &steps, &ty.shape)?;
    let name = graph.node(value.node).name.clone();
    let part = rewrite::add(graph, &name, op, &[value]);
    for (user, slot) in readers {
        let mut operands = graph.operands(user);
        operands[slot as usize] = part;
        graph.set_operands(user, &operands);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
