//! How it is computed: tensor programs, the primitives that transform them, and schedules.
//!
//! [`lower()`] turns a `Compute` into the naive [`Program`] e0; schedule primitives turn that into
//! a fast one that computes the same function; code generation takes what [`finish()`] makes of it.

mod affine;
pub mod algorithm;
pub mod budget;
mod choices;
mod choose;
mod contraction;
mod decompose;
mod disjoint;
mod doubling;
pub mod exec;
pub mod features;
pub mod finish;
pub mod gpu;
mod hash;
pub mod index_map;
mod inline;
pub mod intrinsic;
pub mod lower;
pub mod lowering;
pub mod machine;
mod needed;
pub mod notes;
pub mod packed;
pub mod postprocess;
pub mod price;
pub mod program;
mod raise;
mod region;
pub mod rules;
pub mod sample;
pub mod schedule;
pub mod scheduled;
mod slices;
pub mod space;
mod switch;
pub mod task;
#[cfg(test)]
mod testing;
mod text;
pub mod trace;
mod tree;
mod usage;
mod vectors;
pub mod verify;
mod walk;
pub mod work;

pub use choose::{CLEARLY_CORRECTED, Choice};
pub use contraction::operands::MIN_ROWS_TO_TURN;
pub use features::{Features, features};
pub use finish::finish;
pub use index_map::IndexMap;
pub use intrinsic::Intrinsic;
pub use lower::lower;
pub use machine::Machine;
pub use needed::{leave_out, terms_beyond};
pub use program::{
    Access, Ahead, Align, Block, Body, Buffer, For, ForKind, Iter, IterKind, Program, Scope, Stmt,
    ThreadAxis,
};
pub use schedule::{LoopRef, Schedule, ScheduleError};
pub use scheduled::Scheduled;
pub use task::Task;
pub use trace::Trace;
pub use work::work;
