//! add_unit_loop: a loop of one iteration around a statement.
//!
//! ```text
//! block s (..) { .. }
//! => add_unit_loop(s)
//! for u in 0..1 { block s (..) { .. } }
//! ```

use super::query::{block_path, check_depth, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::program::{For, ForKind, Program};
use crate::tree;

impl Schedule {
    /// A unit loop directly around a block.
    pub fn add_unit_loop(&mut self, block: &str) -> Result<LoopRef> {
        self.apply("add_unit_loop", |program| {
            let path = block_path(program, block)?;
            check_depth(program, &path, 1)?;
            Ok(wrap(program, &path))
        })
    }

    /// A unit loop directly around a loop.
    pub fn add_unit_loop_around(&mut self, l: LoopRef) -> Result<LoopRef> {
        self.apply("add_unit_loop", |program| {
            let path = loop_path(program, l)?;
            check_depth(program, &path, 1)?;
            Ok(wrap(program, &path))
        })
    }
}

fn wrap(program: &mut Program, path: &[usize]) -> LoopRef {
    let var = program.add_var("u");
    let stmt = tree::stmt_mut(&mut program.body, path).clone();
    let unit = For { var, extent: 1, kind: ForKind::Serial, body: vec![] };
    let nest = tree::nest(vec![unit], vec![stmt]);
    tree::splice(&mut program.body, path, nest);
    LoopRef(var)
}
