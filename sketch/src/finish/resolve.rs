//! Expressions over loop variables only, simplified.
//!
//! ```text
//! block s (vi: spatial 8 = i0 * 4 + i1) { where lt(i0 * 4 + i1, 8)   s[vi] = x[vi // 4, vi % 4] }
//! => i1 in 0..4
//! block s (vi: spatial 8 = i0 * 4 + i1) { s[i0 * 4 + i1] = x[i0, i1] }
//! ```

use ansc_graph::Expr;

use crate::affine::{self, Extents};
use crate::program::Program;
use crate::tree;

pub(super) fn resolve(program: &mut Program) {
    let mut extents = Extents::of(program);
    tree::visit_blocks_mut(&mut program.body, &mut |block| {
        extents.simplify_and_bind(&mut block.iters);
        block.visit_exprs_mut(&mut |e| *e = affine::simplify(e, &extents));
        extents.bind(&[]);
        block.predicate = block.predicate.take().filter(|p| *p != Expr::bool(true));
    });
}
