//! Graphs of operators, and the meaning of each operator.
//!
//! A [`Graph`] is a DAG of operators on petgraph; every operator that code is generated for *is* a
//! tensor expression, a [`Compute`]: a list of stages over spatial and reduction axes. The meaning
//! of operators is written down here once; the interpreter, costs, fusion and all code follow from
//! it.

#![deny(missing_docs)]

pub mod arith;
pub mod compute;
pub mod cost;
pub mod demand;
pub mod expr;
pub mod flat;
pub mod fuse;
pub mod graph;
pub mod interp;
pub mod memory;
pub mod ops;
pub mod passes;
pub mod scalar;
pub mod sizes;
pub mod states;
mod tensors;
pub mod text;
pub mod verify;

pub use compute::{Combiner, Compute, Reduce, Stage, TensorType};
pub use expr::{BinOp, BufId, Expr, UnOp, VarId};
pub use graph::op::{self, ComputeOp, Kind, Op};
pub use graph::{Graph, Node, NodeId, Value, ValueId};
pub use scalar::Scalar;
