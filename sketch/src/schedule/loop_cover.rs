//! loop_cover: a loop as whole lengths, and a last part that may begin in the one before.
//!
//! ```text
//! for i in 0..21 { block s: x[i] = .. }
//! => loop_cover(i, 16, 8)
//! for i in 0..16 { block s: x[i] = .. }
//! for i in 0..8 { block s_1: x[i + 13] = .. }
//! ```
//! Elements of both loops are computed twice. So blocks under the loop only assign, and none of
//! them reads what one of them writes.

use std::collections::BTreeSet;

use ansc_graph::BufId;

use super::error::{Cause, Failure};
use super::loop_partition::{add_part, settle};
use super::query::{blocks_under, loop_at, loop_at_mut, loop_path};
use super::{LoopRef, Result, Schedule, copies};
use crate::program::{Block, Body, ForKind, Program};
use crate::tree::Path;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Parts the serial loop `l`, which has more iterations than `length` and no multiple of it:
    /// the first part are all whole lengths, the second one the `last` iterations, which are at
    /// least those that are left. It has copies of the blocks, with the same annotations.
    pub fn loop_cover(&mut self, l: LoopRef, length: usize, last: usize) -> Result<[LoopRef; 2]> {
        let (loops, twins) =
            self.apply_in_place("loop_cover", |program| cover(program, l, length, last))?;
        self.copy_all_notes(&twins);
        Ok(loops)
    }
}

fn cover(
    program: &mut Program,
    l: LoopRef,
    length: usize,
    last: usize,
) -> Checked<([LoopRef; 2], copies::Twins)> {
    let path = loop_path(program, l)?;
    let extent = check(program, &path, l, [length, last])?;
    let private = copies::private_buffers(program, l.0);
    let body = loop_at(program, &path).body.clone();
    loop_at_mut(program, &path).extent = extent / length * length;
    let range = (extent - last, extent);
    let (last, twins) = add_part(program, &path, 1, range, &body, &private);
    settle(program, &path, &[l, last]);
    Ok(([l, last], twins))
}

fn check(program: &Program, path: &Path, l: LoopRef, [length, last]: [usize; 2]) -> Checked<usize> {
    let target = loop_at(program, path);
    if target.kind != ForKind::Serial {
        return Err(Cause::Kind(target.kind).at_loop(l));
    }
    let extent = target.extent;
    let left = extent.checked_rem(length).unwrap_or(0);
    if left == 0 || length > extent || !(left..=extent).contains(&last) {
        return Err(Cause::Points { points: vec![length, last], extent }.at_loop(l));
    }
    let blocks = blocks_under(target);
    let written: BTreeSet<BufId> =
        blocks.iter().flat_map(|b| b.body.writes()).map(|access| access.buffer).collect();
    let may_repeat = |block: &&&Block| {
        matches!(block.body, Body::Assign { .. }) && block.reads().is_disjoint(&written)
    };
    match blocks.iter().find(|block| !may_repeat(block)) {
        Some(block) => Err(Cause::Repeats(block.name.clone()).at_loop(l)),
        None => Ok(extent),
    }
}
