//! The operations that nodes of the graph do.

use std::sync::Arc;

use ansc_runtime::Tensor;
use ansc_runtime::host::HostOp;

use super::{Graph, NodeId, ValueId};
use crate::compute::Compute;

/// The work of a node, by who does it.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// An input of the graph. `bound` holds the value where compilation fixed it.
    Input {
        /// The value that compilation fixed, if it did.
        bound: Option<Arc<Tensor>>,
    },
    /// A tensor that is known when compiling.
    Const(Arc<Tensor>),
    /// Given by a tensor expression: code is generated for it.
    Compute(ComputeOp),
    /// Run by the host function of that name. One without results checks its operands: it is there
    /// for the error.
    Host(HostOp),
    /// Inputs: condition (`bool` scalar), then what the branches capture. Both branches take all
    /// captures as their inputs, in order, and give outputs of the same types.
    If(Box<IfOp>),
    /// Inputs and outputs are those that [`LoopOp`] tells.
    Loop(Box<LoopOp>),
}

impl Op {
    /// Whether a node that nothing reads has an effect all the same.
    pub fn is_check(&self) -> bool {
        matches!(self, Op::Host(HostOp::CheckIndices { .. }))
    }
}

/// A tensor expression, and what passes may know about it without reading the expression.
#[derive(Clone, PartialEq, Debug)]
pub struct ComputeOp {
    /// A recognised meaning. The expression is the truth; constructors in `ops/` keep both in step.
    pub kind: Kind,
    /// The computation itself; passes replace it as a whole.
    pub expr: Arc<Compute>,
}

/// Meanings that passes match on. Everything that no pass needs to recognise is `Other`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// One stage without reduction; every input is read once or more at the output's own index,
    /// after numpy broadcasting (aligned at the last axis).
    Map,
    /// The same elements in row-major order under another shape.
    Reshape,
    /// Output axis `i` is input axis `perm[i]`.
    Transpose(Vec<usize>),
    /// Inputs: x, weight. Bias is a `Map` after it.
    Conv(ConvAttrs),
    /// Inputs: a `[..batch, m, k]`, b `[..batch, k, n]` with numpy broadcasting of the batch axes.
    MatMul,
    /// A pooling of windows of one input.
    Pool(PoolAttrs),
    /// Reduction over `axes` of one input; kept as extent 1 where `keep`.
    Reduce {
        /// The axes that are reduced, ascending.
        axes: Vec<usize>,
        /// Whether they stay, with extent 1.
        keep: bool,
    },
    /// Joins all inputs along an axis.
    Concat {
        /// The axis whose extents add up.
        axis: usize,
    },
    /// One input with elements around it that are constant or copies of its own.
    Pad,
    /// A part of one input, with a step for each axis.
    Slice,
    /// Exponentials that add up to 1 along an axis.
    Softmax {
        /// The axis that is summed along.
        axis: usize,
    },
    /// Any other expression, by the name of the operator it came from.
    Other(String),
}

/// Which axis of activations holds channels. `First`: `[n, c, spatial..]`; `Last`: `[n, spatial..,
/// c]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Channels {
    /// `[n, c, spatial..]`.
    First,
    /// `[n, spatial.., c]`.
    Last,
}

/// A convolution of any spatial rank. Weights are `[m, c / groups, kernel..]` for `Channels::First`
/// and `[kernel.., c / groups, m]` for `Channels::Last`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ConvAttrs {
    /// Where the channels of the result and of the weights are.
    pub channels: Channels,
    /// Where the channels of the input are.
    pub input: Channels,
    /// Extents of the window, for each spatial axis.
    pub kernel: Vec<usize>,
    /// Elements between neighbouring windows, for each spatial axis.
    pub strides: Vec<usize>,
    /// Elements between neighbouring points of a window, 1 for dense ones, for each spatial axis.
    pub dilations: Vec<usize>,
    /// Zeros before the first element, for each spatial axis.
    pub pads_begin: Vec<usize>,
    /// Zeros after the last element, for each spatial axis.
    pub pads_end: Vec<usize>,
    /// Parts that the channels fall into; each output channel sees those of its own part.
    pub groups: usize,
}

/// A pooling of any spatial rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PoolAttrs {
    /// Where the channels are, in input and result.
    pub channels: Channels,
    /// How the elements of a window become one.
    pub mode: PoolMode,
    /// Extents of the window, for each spatial axis.
    pub kernel: Vec<usize>,
    /// Elements between neighbouring windows, for each spatial axis.
    pub strides: Vec<usize>,
    /// Elements between neighbouring points of a window, 1 for dense ones, for each spatial axis.
    pub dilations: Vec<usize>,
    /// Padding before the first element, for each spatial axis.
    pub pads_begin: Vec<usize>,
    /// Padding after the last element, for each spatial axis.
    pub pads_end: Vec<usize>,
}

/// How the elements of a window become one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PoolMode {
    /// The largest element inside of the input.
    Max,
    /// Divides by the number of elements of the window inside the input, or inside input and
    /// padding where `count_padding`.
    Average {
        /// Whether elements of the padding count.
        count_padding: bool,
    },
}

/// Two graphs of which one runs. Both have the same inputs and outputs.
#[derive(Clone, PartialEq, Debug)]
pub struct IfOp {
    /// Runs if the condition holds.
    pub then_branch: Graph,
    /// Runs if it does not.
    pub else_branch: Graph,
}

/// A loop whose body is a graph of its own.
///
/// Inputs of the node: trip count if `has_trip` (`i64` scalar), condition if `has_condition`
/// (`bool` scalar), initial carried values, whole scan inputs, captures.
/// Inputs of the body: iteration number (`i64` scalar), condition (`bool` scalar), carried values,
/// one slice of each scan input (the axis removed), captures.
/// Outputs of the body: condition (`bool` scalar), carried values, one slice of each scan output.
/// Outputs of the node: final carried values, whole scan outputs. Where only a trip count ends the
/// loop, a scan output may be as long as declared; what no iteration gave then holds anything.
#[derive(Clone, PartialEq, Debug)]
pub struct LoopOp {
    /// One iteration.
    pub body: Graph,
    /// Iterations at most; the length of every scan output.
    pub max_trip: u64,
    /// Whether the node has a trip count, which may be lower than `max_trip`.
    pub has_trip: bool,
    /// Whether the node has a condition, without which the first iteration always happens.
    pub has_condition: bool,
    /// The number of values that an iteration hands to the next.
    pub carried: usize,
    /// One for each scan input, in order.
    pub scan_inputs: Vec<ScanAxis>,
    /// One for each scan output, in order.
    pub scan_outputs: Vec<ScanAxis>,
}

impl LoopOp {
    /// Whether the loop at `node` goes on until its trips are done: no iteration ends it.
    pub fn never_ends_early(&self) -> bool {
        let (_, condition) = self.body.outputs[0];
        let holds = self.body.const_of(condition).is_some_and(|t| t.bytes() == [1]);
        holds || condition == self.input(1)
    }

    /// Whether the trip count of the loop at `node` is none, or always the highest.
    pub fn makes_all_trips(&self, graph: &Graph, node: NodeId) -> bool {
        let trip = || graph.const_of(graph.operands(node)[0])?.to_i64_vec()?.first().copied();
        !self.has_trip || trip().is_some_and(|t| u64::try_from(t) == Ok(self.max_trip))
    }

    /// Whether the body looks at this one of its inputs.
    pub fn reads(&self, index: usize) -> bool {
        let value = self.input(index);
        !self.body.users(value).is_empty() || self.body.is_output(value)
    }

    fn input(&self, index: usize) -> ValueId {
        ValueId { node: self.body.inputs()[index], out: 0 }
    }
}

/// How the slices of a scan input or output lie in the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanAxis {
    /// The axis of the whole that iterations count along.
    pub axis: usize,
    /// Whether slices are taken from the last to the first.
    pub reverse: bool,
}
