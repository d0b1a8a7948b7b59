//! join_noted: loops over slices become one, and what stands between their nests is of one slice.
//!
//! ```text
//! parallel p in 0..2 { t[p, ..] = .. }   parallel q in 0..2 { u[q, ..] = t[q, ..] }
//! parallel r in 0..2 { v[r, ..] = u[r, ..] }   parallel s in 0..2 { y[s, ..] = v[s, ..] }
//! => join_noted("slices")
//! parallel p in 0..2 {
//!   t[p, ..] = ..; u[p, ..] = t[p, ..]; t[p, ..] = u[p, ..]; y[p, ..] = t[p, ..]
//! }
//! ```
//!
//! A slice is small where all of it is large: what one of its nests leaves to the next one stays in
//! the cache. A buffer that nobody reads any more gives its memory to the next one of its type.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BufId, VarId};

use super::copies;
use super::error::Failure;
use super::moves::check_parallel;
use super::query::{loop_at, loop_at_mut, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::program::{For, Program, Scope};
use crate::tree;

impl Schedule {
    /// Fuses all loops of the root that have the note: each follows the one before directly, and
    /// exchanges nothing with it but within an iteration
    /// ([`fuse_siblings`](Schedule::fuse_siblings)). Workspaces that are used inside alone become
    /// local ones, which share memory.
    pub fn join_noted(&mut self, key: &str) -> Result<()> {
        let noted: BTreeSet<VarId> = self.noted(key).into_iter().map(|(v, _)| v).collect();
        let mut loops = vec![];
        for stmt in &self.program.body {
            if let crate::program::Stmt::For(l) = stmt
                && noted.contains(&l.var)
            {
                loops.push(LoopRef(l.var));
            }
        }
        let Some((&first, rest)) = loops.split_first() else { return Ok(()) };
        let mut changed = self.clone();
        rest.iter().try_for_each(|&next| changed.fuse_siblings(first, next))?;
        changed.apply("join_noted", |program| keep(program, first))?;
        *self = changed;
        Ok(())
    }
}

/// Makes workspaces of the loop local.
fn keep(program: &mut Program, l: LoopRef) -> std::result::Result<(), Failure> {
    let common = tree::common_loops(program);
    for (buffer, loops) in &common {
        let own = &mut program.buffers[buffer.index()];
        if own.scope == Scope::Global && loops.contains(&l.0) {
            own.scope = Scope::Local;
        }
    }
    check_parallel(program)?;
    let path = loop_path(program, l)?;
    let is_own = |buffer: &BufId| {
        let is_innermost = common.get(buffer).is_some_and(|loops| loops.last() == Some(&l.0));
        is_innermost && program.buffer(*buffer).scope == Scope::Local
    };
    let heirs = heirs(program, loop_at(program, &path), is_own);
    let body = &mut loop_at_mut(program, &path).body;
    tree::visit_blocks_mut(body, &mut |block| copies::redirect(block, &heirs));
    Ok(())
}

/// The buffers that lie in the memory of another one, and of which.
fn heirs(program: &Program, l: &For, is_own: impl Fn(&BufId) -> bool) -> BTreeMap<BufId, BufId> {
    let mut last_use: BTreeMap<BufId, usize> = BTreeMap::new();
    let mut uses = vec![];
    for (at, stmt) in l.body.iter().enumerate() {
        stmt.visit_blocks(&mut |block| {
            block.visit_buffers(&mut |buffer| {
                if is_own(&buffer) {
                    last_use.insert(buffer, at).is_none().then(|| uses.push((buffer, at)));
                }
            });
        });
    }
    let ty = |buffer: BufId| &program.buffer(buffer).ty;
    let mut heirs = BTreeMap::new();
    // The memory that there is, with the buffer that had it last.
    let mut taken: Vec<(BufId, BufId)> = vec![];
    for (buffer, begins) in uses {
        let fits =
            |(_, user): &&mut (BufId, BufId)| ty(*user) == ty(buffer) && last_use[user] < begins;
        match taken.iter_mut().find(fits) {
            Some((memory, user)) => {
                *user = buffer;
                heirs.insert(buffer, *memory);
            }
            None => taken.push((buffer, buffer)),
        }
    }
    heirs
}
