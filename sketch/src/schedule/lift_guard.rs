//! lift_guard: terms that do not exist are passed over, in place of adding nothing.
//!
//! ```text
//! block s: s[i] sum= select(k < 13, x[k], 0)
//! => lift_guard(s)
//! block s where k < 13: s[i] sum= x[k]
//! ```

use ansc_graph::Expr;

use super::error::{Cause, Failure};
use super::query::{block_at, block_at_mut, block_path};
use super::{Result, Schedule};
use crate::program::{Body, Program};
use crate::tree;

impl Schedule {
    /// `block` is a reduction whose value is chosen by a condition on places, and else is what
    /// changes nothing. Its initial value is another block's.
    pub fn lift_guard(&mut self, block: &str) -> Result<()> {
        self.apply_in_place("lift_guard", |program| lift_guard(program, block))
    }
}

fn lift_guard(program: &mut Program, name: &str) -> std::result::Result<(), Failure> {
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
    let Some((condition, term)) = lifted else { return Ok(()) };
    let block = block_at_mut(program, &path);
    block.predicate = tree::conjunction(block.predicate.take().into_iter().chain([condition]));
    *block.body.value_mut() = term;
    Ok(())
}
