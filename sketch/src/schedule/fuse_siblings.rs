//! fuse_siblings: two loops, one after the other, as one.
//!
//! ```text
//! for i in 0..4 { t[i] = x[i] * 2 }   for j in 0..4 { y[j] = t[j] + 1 }
//! => fuse_siblings(i, j)
//! for i in 0..4 { t[i] = x[i] * 2   y[i] = t[i] + 1 }
//! ```

use std::collections::BTreeSet;

use ansc_graph::{BufId, Expr};

use super::copies;
use super::error::{Cause, Failure, buffer_name};
use super::query::{blocks_under, loop_at, loop_at_mut, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::program::Program;
use crate::tree;
use crate::verify;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// The body of `next`, the loop directly after `l`, moves to the end of `l`'s. Both are as many
    /// iterations, executed in the same way, and no iteration of one touches what another iteration
    /// of the other writes.
    pub fn fuse_siblings(&mut self, l: LoopRef, next: LoopRef) -> Result<()> {
        self.apply("fuse_siblings", |program| fuse_siblings(program, l, next))
    }
}

fn fuse_siblings(program: &mut Program, l: LoopRef, next: LoopRef) -> Checked<()> {
    let (path, after) = (loop_path(program, l)?, loop_path(program, next)?);
    let mut expected = path.clone();
    *expected.last_mut().expect("the path of a loop") += 1;
    if after != expected {
        return Err(Cause::NotSiblings.at_loop(next));
    }
    let (first, second) = (loop_at(program, &path), loop_at(program, &after));
    if (first.extent, first.kind) != (second.extent, second.kind) {
        return Err(Cause::DifferentLoops.at_loop(next));
    }
    let moved: BTreeSet<String> = blocks_under(second).iter().map(|b| b.name.clone()).collect();
    // A buffer that one of the loops uses alone is private already. One that both use becomes so,
    // and its content is lost after each iteration.
    let private: Vec<BufId> =
        [l, next].iter().flat_map(|l| copies::private_buffers(program, l.0)).collect();
    let mut body = second.body.clone();
    tree::visit_blocks_mut(&mut body, &mut |block| {
        block.substitute_loops(&|v| (v == next.0).then_some(Expr::Var(l.0)));
    });
    tree::splice(&mut program.body, &after, vec![]);
    loop_at_mut(program, &path).body.extend(body);
    let matters = |pair: &verify::Pair| {
        let is_across = moved.contains(&pair.block) != moved.contains(&pair.other);
        is_across || (pair.private && !private.contains(&pair.buffer))
    };
    // One iteration has no other one beside it.
    let several = loop_at(program, &path).extent > 1;
    match several.then(|| verify::meeting(program, l.0, matters)).flatten() {
        None => Ok(()),
        Some(pair) => {
            let buffer = buffer_name(program, pair.buffer);
            Err(Cause::Dependent { block: pair.block, other: pair.other, buffer }.at_loop(next))
        }
    }
}
