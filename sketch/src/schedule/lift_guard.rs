//! lift_guard: terms that do not exist are passed over, in place of adding nothing.
//!
//! ```text
//! block s: s[i] sum= select(k < 13 and i + k < 20, x[i + k], 0)
//! => lift_guard(s)
//! block s where k < 13: s[i] sum= select(i + k < 20, x[i + k], 0)
//! ```
//! A part of the condition that depends on results and on terms stays: no guard may do both.

use ansc_graph::Expr;

use super::error::{Cause, Failure};
use super::query::{block_at, block_at_mut, block_path};
use super::{LoopRef, Result, Schedule};
use crate::disjoint::bound;
use crate::program::{Block, Body, IterKind, Program};
use crate::tree;

impl Schedule {
    /// `block` is a reduction whose value is chosen by a condition on places, and else is what
    /// changes nothing. Its initial value is another block's.
    pub fn lift_guard(&mut self, block: &str) -> Result<()> {
        self.apply_in_place("lift_guard", |program| lift_guard(program, block, None))
    }

    /// The same with those parts too that depend on a loop, which is to be peeled next.
    pub(super) fn lift_guard_of(&mut self, block: &str, l: LoopRef) -> Result<()> {
        self.apply_in_place("lift_guard", |program| lift_guard(program, block, Some(l)))
    }
}

/// Whether an expression over the block's iterators depends on results and on terms.
pub(super) fn is_of_both(block: &Block, part: &Expr) -> bool {
    let vars = part.vars();
    let of = |kind| block.iters.iter().any(|i| i.kind == kind && vars.contains(&i.var));
    of(IterKind::Spatial) && of(IterKind::Reduce)
}

fn lift_guard(
    program: &mut Program,
    name: &str,
    peeled: Option<LoopRef>,
) -> std::result::Result<(), Failure> {
    let path = block_path(program, name)?;
    let block = block_at(program, &path);
    let Body::Reduce { combiner, dst, value, init: false } = &block.body else {
        return Err(Cause::Initialising(name.to_owned()).at_block(name));
    };
    let identity = combiner.identity(program.buffer(dst.buffer).ty.dtype).map(Expr::Const);
    let lifted = match value {
        Expr::Select(condition, term, nothing)
            if condition.loads().is_empty() && Some(&**nothing) == identity.as_ref() =>
        {
            Some(((**condition).clone(), (**term).clone()))
        }
        _ => None,
    };
    // Without a condition there is nothing to lift.
    let (Some((condition, term)), Some(identity)) = (lifted, identity) else { return Ok(()) };
    let is_peeled = |part: &Expr| peeled.is_some_and(|l| bound(block, part).vars().contains(&l.0));
    let stays = |part: &&Expr| is_of_both(block, part) && !is_peeled(part);
    let (stay, lifted): (Vec<&Expr>, Vec<&Expr>) =
        condition.conjuncts().into_iter().partition(stays);
    let stay = tree::conjunction(stay.into_iter().cloned());
    let lifted: Vec<Expr> = lifted.into_iter().cloned().collect();
    let block = block_at_mut(program, &path);
    block.predicate = tree::conjunction(block.predicate.take().into_iter().chain(lifted));
    *block.body.value_mut() = match stay {
        Some(stay) => Expr::select(stay, term, identity),
        None => term,
    };
    Ok(())
}
