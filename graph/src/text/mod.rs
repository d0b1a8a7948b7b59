//! The text form of expressions, computes and graphs.
//!
//! `Display` writes it, `parse` reads it, and print, parse, print is a fixed point. A stage and a
//! node have a line each:
//!
//! ```text
//! graph "mlp" (%0) {
//!   %0: f32[1, 8] = input "x"
//!   %1: f32[8, 4] = const "w" @0x1f0d86a1c2a4a7e0
//!   %2: f32[1, 4] = matmul "fc" (%0, %1) compute(in0: f32[1, 8], in1: f32[8, 4]) -> mm {
//!     mm: f32[1, 4] = sum{r0: 8} mul(in0[i0, r0], in1[r0, i1])
//!   }
//!   output "y" = %2
//! }
//! ```
//!
//! - Variables of a stage are its axes: `i0, i1, ..` spatial, `r0, r1, ..` of the reduction. Where
//!   an expression stands alone they are `v0, v1, ..` and buffers `b0, b1, ..`.
//! - Constants carry their type, `1.5_f32`; integers without one are `i64`, which indices are.
//! - Nodes are numbered in topological order: a graph that was parsed has these numbers as ids.
//! - The name of a value is written where it is not the default (the node's name for inputs and
//!   constants, `NODE:POSITION` for the others).
//! - Constant tensors of up to 16 elements, or of one value only, are written out. Others
//!   are references by hash: the parser asks a [`Constants`] for them.

mod compute;
mod cursor;
mod error;
mod expr;
mod graph;
mod kind;
mod names;
mod node;
mod tensor;
mod token;

pub use cursor::Cursor;
pub use error::{Cause, ParseError};
pub use expr::{Names, Scope, print_expr, read_expr};
pub use names::{first_unused, unique, unused};
pub use tensor::{Constants, NoConstants, Table, hash};
pub use token::{Label, Quoted};

#[cfg(test)]
mod tests;
