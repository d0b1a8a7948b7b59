//! What must hold of every graph, checked after each stage of compilation.
//!
//! A [`Verifier`] goes through a compilation with the graph. It checks the graph after the import, after
//! each pass that changed something, and before it becomes kernels, and the expression of each kernel. It
//! remembers which expressions it has seen, so that a node that no pass touches costs next to nothing.
//!
//! [`verify`] checks
//! - the graph has no cycle; each node reads slots `0..n` once each, from outputs that exist;
//! - inputs are listed, once, under different names, read nothing, and fit their bound value;
//!   constants have the type of their tensor;
//! - a compute node reads and gives the types that its expression says, [`verify_compute`] holds, and
//!   its [`Kind`](crate::op::Kind) says what the expression computes;
//! - host operators have the number of operands and results that they take and give;
//! - both branches of an if take the captures and give the node's types; a loop's body takes and
//!   gives what [`LoopOp`](crate::op::LoopOp) lists; bodies are verified in turn;
//! - graph outputs exist;
//! - a dynamic value is given by a host operator or control flow, and read by host operators and graph
//!   outputs only.
//!
//! [`verify_compute`] checks
//! - loads name inputs or earlier stages, with one `i64` index per axis; variables are axes;
//! - operands of an operation have one type that has the operation, conditions are bool, the body
//!   has the stage's type (`i64` stands for arg-reductions), which have terms to choose from;
//! - extents fit the address space; outputs exist;
//! - indices are in bounds, where that is decidable: an index that a select guards, or that depends on
//!   data, is left to the interpreter.
//!
//! Not checked: the types that host operators give.

mod compute;
mod control;
mod graph;
mod host;
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
    pub problem: Problem,
}

fn location(node: &str, stage: &str) -> String {
    let part = |what: &str, name: &str| match name {
        "" => String::new(),
        name => format!("{what} {name}: "),
    };
    part("node", node) + &part("stage", stage)
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Problem {
    #[error("the graph has a cycle")]
    Cycle,
    #[error("it reads slots {0:?} instead of one of each")]
    Slots(Vec<u32>),
    #[error("{what} is read from an output that does not exist")]
    NoSuchOutput { what: String },
    #[error("{found} {what} instead of {expected}")]
    Count { what: String, expected: usize, found: usize },
    #[error("{what} is {found} instead of {expected}")]
    Type { what: String, expected: TensorType, found: TensorType },
    #[error("the name is used by another {0}")]
    Duplicate(String),
    #[error("it is not listed among the graph's inputs exactly once")]
    UnlistedInput,
    #[error("the graph lists an input that is no input node")]
    NotAnInput,
    #[error("it reads {0}, whose size only the data decides")]
    ReadsDynamic(String),
    #[error("{0} cannot be dynamic")]
    Dynamic(String),
    #[error("{0} is no axis of the stage")]
    NoSuchAxis(VarId),
    #[error("{0} is no input and no earlier stage")]
    NoSuchBuffer(BufId),
    #[error("{found} indices for {buffer} of rank {rank}")]
    Rank { buffer: BufId, rank: usize, found: usize },
    #[error("an index of {buffer} is {found} instead of i64")]
    IndexType { buffer: BufId, found: DType },
    #[error("index {low}..={high} on axis {axis} of {buffer} is not within 0..{extent}")]
    OutOfBounds { buffer: BufId, axis: usize, low: i64, high: i64, extent: usize },
    #[error("operands of {op} are {a} and {b}")]
    Operands { op: &'static str, a: DType, b: DType },
    #[error("{op} is not defined for {dtype}")]
    Undefined { op: &'static str, dtype: DType },
    #[error("a condition is {0} instead of bool")]
    Condition(DType),
    #[error("the body gives {found}, but the stage is {expected}")]
    Body { expected: DType, found: DType },
    #[error("an arg-reduction over nothing has no result")]
    EmptyArg,
    #[error("{0} is too large to address")]
    TooLarge(TensorType),
    #[error("its kind is {kind}, but {reason}")]
    Kind { kind: String, reason: String },
}
