//! Buffers that no block accesses, and that are no parameters, are dropped.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::BufId;

use crate::program::Program;
use crate::tree;

pub(super) fn prune_buffers(program: &mut Program) {
    let mut used: BTreeSet<BufId> = program.params.iter().copied().collect();
    program
        .blocks()
        .into_iter()
        .for_each(|b| b.visit_buffers(&mut |buffer| _ = used.insert(buffer)));
    if used.len() == program.buffers.len() {
        return;
    }
    let renamed: BTreeMap<BufId, BufId> =
        used.iter().enumerate().map(|(new, &old)| (old, BufId::new(new))).collect();
    *program.buffers = used.iter().map(|b| program.buffer(*b).clone()).collect();
    program.params.iter_mut().for_each(|p| *p = renamed[p]);
    tree::visit_blocks_mut(&mut program.body, &mut |block| {
        block.visit_accesses_mut(&mut |buffer, _| *buffer = renamed[buffer]);
    });
}
