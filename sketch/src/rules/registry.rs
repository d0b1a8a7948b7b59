//! Rules that are asked for every task: those of a compiler that somebody builds with rules of
//! their own.
//!
//! ```text
//! rules::register(Box::new(TileDepthwise));
//! ansc::command_line::main(std::env::args_os())     `tune`, `sketches`, .. ask the rule, too
//! ```

use std::sync::{Arc, PoisonError, RwLock};

use super::Rule;

static RULES: RwLock<Vec<Arc<dyn Rule>>> = RwLock::new(vec![]);

/// Asks `rule` before all others wherever sketches are derived from here on.
pub fn register(rule: Box<dyn Rule>) {
    // A list is whole after every insertion, whatever panicked beside it.
    RULES.write().unwrap_or_else(PoisonError::into_inner).insert(0, rule.into());
}

/// The rules that were registered; the last of them is the first.
pub(super) fn registered() -> Vec<Arc<dyn Rule>> {
    RULES.read().unwrap_or_else(PoisonError::into_inner).clone()
}
