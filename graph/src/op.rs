//! What a node of the graph does.

use std::sync::Arc;

use ansc_runtime::Tensor;
use ansc_runtime::host::HostOp;

use crate::compute::Compute;
use crate::graph::Graph;

#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// An input of the graph. `bound` holds the value where compilation fixed it.
    Input {
        bound: Option<Arc<Tensor>>,
    },
    Const(Arc<Tensor>),
    /// Given by a tensor expression: code is generated for it.
    Compute(ComputeOp),
    /// Run by the host function of that name. One without results checks its operands: it is there for the error.
    Host(HostOp),
    /// Inputs: condition (`bool` scalar), then what the branches capture. Both branches take all
    /// captures as their inputs, in order, and give outputs of the same types.
    If(Box<IfOp>),
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
    Pool(PoolAttrs),
    /// Reduction over `axes` of one input; kept as extent 1 where `keep`.
    Reduce {
        axes: Vec<usize>,
        keep: bool,
    },
    Concat {
        axis: usize,
    },
    Pad,
    Slice,
    Softmax {
        axis: usize,
    },
    /// Any other expression, by the name of the operator it came from.
    Other(String),
}

/// Which axis of activations holds channels. `First`: `[n, c, spatial..]`; `Last`: `[n, spatial.., c]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Channels {
    First,
    Last,
}

/// A convolution of any spatial rank. Weights are `[m, c / groups, kernel..]` for `Channels::First`
/// and `[kernel.., c / groups, m]` for `Channels::Last`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ConvAttrs {
    /// Of the result and of the weights.
    pub channels: Channels,
    /// Of the input.
    pub input: Channels,
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    pub pads_begin: Vec<usize>,
    pub pads_end: Vec<usize>,
    pub groups: usize,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PoolAttrs {
    pub channels: Channels,
    pub mode: PoolMode,
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    pub pads_begin: Vec<usize>,
    pub pads_end: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PoolMode {
    Max,
    /// Divides by the number of elements of the window inside the input, or inside input and
    /// padding where `count_padding`.
    Average {
        count_padding: bool,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub struct IfOp {
    pub then_branch: Graph,
    pub else_branch: Graph,
}

/// A loop whose body is a graph of its own.
///
/// Inputs of the node: trip count if `has_trip` (`i64` scalar), condition if `has_condition`
/// (`bool` scalar), initial carried values, whole scan inputs, captures.
/// Inputs of the body: iteration number (`i64` scalar), condition (`bool` scalar), carried values,
/// one slice of each scan input (the axis removed), captures.
/// Outputs of the body: condition (`bool` scalar), carried values, one slice of each scan output.
/// Outputs of the node: final carried values, whole scan outputs.
#[derive(Clone, PartialEq, Debug)]
pub struct LoopOp {
    pub body: Graph,
    /// Iterations at most; the length of every scan output.
    pub max_trip: u64,
    pub has_trip: bool,
    pub has_condition: bool,
    pub carried: usize,
    pub scan_inputs: Vec<ScanAxis>,
    pub scan_outputs: Vec<ScanAxis>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanAxis {
    pub axis: usize,
    pub reverse: bool,
}
