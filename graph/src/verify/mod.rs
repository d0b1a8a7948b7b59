//! The rules that every graph must follow, checked after each stage of compilation.
//!
//! A [`Verifier`] goes through a compilation with the graph. It checks the graph after the import,
//! after each pass that changed something, and before it becomes kernels, and the expression of
//! each kernel. It remembers which expressions it has seen, so that a node that no pass touches
//! costs next to nothing.
//!
//! [`verify`] checks
//! - the graph has no cycle; each node reads slots `0..n` once each, from outputs that exist;
//! - inputs are listed, once, under different names, read nothing, and fit their bound value;
//!   constants have the type of their tensor;
//! - a compute node reads and gives the types that its expression says, [`verify_compute`] holds,
//!   and its [`Kind`](crate::op::Kind) says what the expression computes;
//! - host operators have the number of operands and results that they take and give;
//! - both branches of an if take the captures and give the node's types; a loop's body takes and
//!   gives what [`LoopOp`](crate::op::LoopOp) lists; bodies are verified in turn;
//! - graph outputs exist;
//! - a dynamic value is given by a host operator or control flow, and read by host operators and
//!   graph outputs only.
//!
//! [`verify_compute`] checks
//! - loads name inputs or earlier stages, with one `i64` index per axis; variables are axes;
//! - operands of an operation have one type that has the operation, conditions are bool, the body
//!   has the stage's type (`i64` stands for arg-reductions), which have terms to choose from;
//! - extents fit the address space; outputs exist;
//! - indices are in bounds, where that is decidable: an index that a select guards, or that depends
//!   on data, is left to the interpreter.
//!
//! Not checked: the types that host operators give.

mod compute;
mod control;
mod graph;
mod kind;
#[cfg(test)]
mod tests;
mod verifier;

use ansc_runtime::DType;

use crate::compute::TensorType;
use crate::expr::{BufId, VarId};

pub use compute::{ill_typed, type_of, verify_compute};
pub use verifier::{Bodies, Defect, Verifier, verify};

/// Something that does not hold, and where.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{}{problem}", location(.node, .stage))]
pub struct Violation {
    /// The name of the node; for one inside of control flow, `outer/inner`. Empty for the graph.
    pub node: String,
    /// The name of the stage; empty where it is not one that is at fault.
    pub stage: String,
    /// The rule that does not hold.
    pub problem: Problem,
}

fn location(node: &str, stage: &str) -> String {
    let part = |what: &str, name: &str| match name {
        "" => String::new(),
        name => format!("{what} {name}: "),
    };
    part("node", node) + &part("stage", stage)
}

/// A rule that a graph or expression does not keep.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Problem {
    /// A node depends on itself.
    #[error("the graph has a cycle")]
    Cycle,
    /// The node's slots are not `0..n`.
    #[error("it reads slots {0:?} instead of one of each")]
    Slots(Vec<u32>),
    /// A node reads an output that its source does not have.
    #[error("{what} is read from an output that does not exist")]
    NoSuchOutput {
        /// The value that is read.
        what: String,
    },
    /// A number is another than the operator demands.
    #[error("{found} {what} instead of {expected}")]
    Count {
        /// The things that are counted.
        what: String,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A type is another than the operator demands.
    #[error("{what} is {found} instead of {expected}")]
    Type {
        /// The value.
        what: String,
        /// The type that it should have.
        expected: TensorType,
        /// The type that it has.
        found: TensorType,
    },
    /// A name must be unique among things of its kind.
    #[error("the name is used by another {0}")]
    Duplicate(String),
    /// An input node is missing in the list of inputs, or there twice.
    #[error("it is not listed among the graph's inputs exactly once")]
    UnlistedInput,
    /// The list of inputs has another node.
    #[error("the graph lists an input that is no input node")]
    NotAnInput,
    /// A value of unknown size is read by something else than an output or a host operator.
    #[error("it reads {0}, whose size only the data decides")]
    ReadsDynamic(String),
    /// Only host operators and control flow give values of unknown size.
    #[error("{0} cannot be dynamic")]
    Dynamic(String),
    /// A variable is beyond the axes of the stage.
    #[error("{0} is no axis of the stage")]
    NoSuchAxis(VarId),
    /// A load names an input or stage that does not exist yet.
    #[error("{0} is no input and no earlier stage")]
    NoSuchBuffer(BufId),
    /// A load has another number of indices.
    #[error("{found} indices for {buffer} of rank {rank}")]
    Rank {
        /// The buffer that is loaded from.
        buffer: BufId,
        /// The number of its axes.
        rank: usize,
        /// The number of indices.
        found: usize,
    },
    /// Indices must be `i64`.
    #[error("an index of {buffer} is {found} instead of i64")]
    IndexType {
        /// The buffer that is loaded from.
        buffer: BufId,
        /// The type of an index.
        found: DType,
    },
    /// An index may lie beside the buffer.
    #[error("index {low}..={high} on axis {axis} of {buffer} is not within 0..{extent}")]
    OutOfBounds {
        /// The buffer that is loaded from.
        buffer: BufId,
        /// Which index, from 0 on.
        axis: usize,
        /// The smallest value that it may have.
        low: i64,
        /// The largest value that it may have.
        high: i64,
        /// Elements of the axis.
        extent: usize,
    },
    /// Both operands must have one type.
    #[error("operands of {op} are {a} and {b}")]
    Operands {
        /// The operation.
        op: &'static str,
        /// The type of the left one.
        a: DType,
        /// The type of the right one.
        b: DType,
    },
    /// The operation has no meaning for this type.
    #[error("{op} is not defined for {dtype}")]
    Undefined {
        /// The operation.
        op: &'static str,
        /// The type of its operands.
        dtype: DType,
    },
    /// The first operand of a select must be a bool.
    #[error("a condition is {0} instead of bool")]
    Condition(DType),
    /// The body's type is not the stage's.
    #[error("the body gives {found}, but the stage is {expected}")]
    Body {
        /// The type of the stage.
        expected: DType,
        /// The type of the body.
        found: DType,
    },
    /// The position of an extreme needs at least one term.
    #[error("an arg-reduction over nothing has no result")]
    EmptyArg,
    /// The size in bytes does not fit an address.
    #[error("{0} is too large to address")]
    TooLarge(TensorType),
    /// The kind promises something that the expression does not keep.
    #[error("its kind is {kind}, but {reason}")]
    Kind {
        /// The kind, as text.
        kind: String,
        /// The promise.
        reason: String,
    },
}
