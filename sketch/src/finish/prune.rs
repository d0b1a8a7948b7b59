//! Buffers that no block accesses, and that are no parameters, are dropped.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BufId, Expr};

use crate::program::{Body, Program};
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
        block.visit_exprs_mut(&mut |e| {
            e.visit_mut(&mut |node| {
                if let Expr::Load(buffer, _) = node {
                    *buffer = renamed[buffer];
                }
            });
        });
        match &mut block.body {
            Body::Assign { dst, .. } | Body::Reduce { dst, .. } => {
                dst.buffer = renamed[&dst.buffer]
            }
            Body::ArgReduce { best, position, .. } => {
                best.buffer = renamed[&best.buffer];
                position.buffer = renamed[&position.buffer];
            }
        }
    });
}
