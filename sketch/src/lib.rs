//! How it is computed: tensor programs, the primitives that transform them, and schedules.
//!
//! [`lower`](crate) turns a `Compute` into the naive [`Program`] e0; schedule primitives turn that
//! into a fast one that computes the same function; code generation takes the result.

pub mod program;

pub use program::{
    Access, Block, Body, Buffer, For, ForKind, Iter, IterKind, Program, Scope, Stmt, ThreadAxis,
};
