//! The text form of programs.
//!
//! Variables and buffers appear by name; where a name is used twice, later ones get a number.
//! Print, parse, print is a fixed point; numbers of variables are not kept.
//!
//! ```text
//! program mm
//! in0: f32[4, 8] input
//! mm: f32[4] output
//! params in0, mm
//! for i0 in 0..4 parallel {
//!   for r0 in 0..8 {
//!     block mm (vi0: spatial 4 = i0, vr0: reduce 8 = r0) {
//!       init mm[vi0] sum= in0[vi0, vr0]
//!     }
//!   }
//! }
//! ```

mod display;
mod expr;
mod names;
mod parse;
#[cfg(test)]
mod tests;

pub(crate) use display::{Mark, render};
