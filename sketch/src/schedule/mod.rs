//! Schedules: a program and the primitives that transform it.
//!
//! Each primitive is a method of [`Schedule`], one file each. It checks its preconditions and
//! returns a [`ScheduleError`] that shows the loop nest with the culprit marked; the program is
//! then as it was. Every primitive keeps what the program computes, up to the order of
//! floating-point sums.
//!
//! Blocks are named by their (unique) names, loops by a [`LoopRef`] that stays valid until a
//! primitive replaces the loop.
//!
//! ```text
//! let mut sched = Schedule::new(lower("mm", &compute));
//! let l = sched.loops("mm")?;
//! let i = sched.split(l[0], &[0, 4])?;
//! let j = sched.split(l[1], &[0, 16])?;
//! sched.reorder(&[i[0], j[0], l[2], i[1], j[1]])?;
//! sched.vectorize(j[1])?;
//! ```

mod error;
mod moves;
mod query;

mod add_unit_loop;
mod annotate;
mod blockize;
mod cache;
mod collapse;
mod compute_at;
mod compute_inline;
mod copies;
mod decompose_padding;
mod decompose_reduction;
mod fold_tree;
mod fuse;
mod fuse_nests;
mod fuse_siblings;
mod inline_into;
mod join_noted;
mod kinds;
mod lift_addend;
mod lift_guard;
mod loop_cover;
mod loop_partition;
mod pack;
mod pad;
mod partition_guards;
mod peel;
mod re_index;
mod reorder;
mod reverse_compute_at;
mod reverse_compute_inline;
mod rfactor;
mod scan;
mod set_scope;
mod slice;
mod split;
mod storage_align;
mod tensorize;
mod transform_block_layout;
mod transform_layout;
mod unroll_jam;

use std::collections::BTreeMap;

use ansc_graph::VarId;

use crate::program::Program;

pub use annotate::Annotation;
pub(crate) use copies::copy_with_needs;
pub use error::{Cause, ScheduleError};
pub use pack::Panels;
pub use peel::Rest;

use error::Failure;

/// The result of a primitive: a failed one has changed nothing.
pub type Result<T> = std::result::Result<T, ScheduleError>;

/// A loop of the program, by its variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LoopRef(pub(crate) VarId);

/// A program with the primitives that transform it, each of which checks that the program stays the
/// same function.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    program: Program,
    annotations: BTreeMap<annotate::Target, BTreeMap<String, Annotation>>,
}

impl Schedule {
    /// A schedule that begins with this program.
    pub fn new(program: Program) -> Schedule {
        Schedule { program, annotations: BTreeMap::new() }
    }

    /// The program as all primitives so far have left it.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The program alone, for what comes after scheduling.
    pub fn into_program(self) -> Program {
        self.program
    }

    /// Runs a primitive on a copy and keeps it if that succeeds.
    fn apply<T>(
        &mut self,
        primitive: &'static str,
        f: impl FnOnce(&mut Program) -> std::result::Result<T, Failure>,
    ) -> Result<T> {
        let mut changed = self.program.clone();
        match f(&mut changed) {
            Ok(result) => {
                self.program = changed;
                Ok(result)
            }
            Err(failure) => Err(ScheduleError::new(primitive, failure, &self.program)),
        }
    }

    /// Runs a primitive that changes nothing before it is certain to succeed.
    fn apply_in_place<T>(
        &mut self,
        primitive: &'static str,
        f: impl FnOnce(&mut Program) -> std::result::Result<T, Failure>,
    ) -> Result<T> {
        f(&mut self.program)
            .map_err(|failure| ScheduleError::new(primitive, failure, &self.program))
    }

    fn query<T>(&self, f: impl FnOnce(&Program) -> std::result::Result<T, Failure>) -> Result<T> {
        f(&self.program).map_err(|failure| ScheduleError::new("query", failure, &self.program))
    }
}

#[cfg(test)]
mod data_tests;
#[cfg(test)]
mod tests;
