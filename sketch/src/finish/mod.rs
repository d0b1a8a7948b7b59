//! The last step before code generation.
//!
//! In: any valid program. Out: a program that computes the same, in which
//! - no reduction has `init` set,
//! - loops of extent 1 are gone (but for those over threads), and so are
//!   unused buffers,
//! - predicates, indices and values are over loop variables only, and simplified; block iterators
//!   remain to tell what is spatial and what is reduced,
//! - local buffers are as large as what one iteration of their home loop uses,
//! - axes have the strides that were asked for.

pub(crate) mod align;
mod compact;
mod prune;
mod resolve;

use ansc_graph::Expr;

use crate::decompose;
use crate::program::{For, ForKind, Program, Stmt, ThreadAxis};
use crate::tree;

/// Makes what the module describes of any valid program.
pub fn finish(mut program: Program) -> Program {
    decompose_inits(&mut program);
    drop_unit_loops(&mut program);
    resolve::resolve(&mut program);
    compact::compact_buffers(&mut program);
    align::align_buffers(&mut program);
    prune::prune_buffers(&mut program);
    #[cfg(any(test, debug_assertions))]
    if let Err(fault) = crate::verify::verify(&program) {
        panic!("{fault}\n{program}");
    }
    program
}

/// Assigns the identity just before the outermost loop of each reduction.
pub(crate) fn decompose_inits(program: &mut Program) {
    let has_init = &mut |s: &Stmt| matches!(s, Stmt::Block(b) if b.has_init());
    while let Some(path) = tree::find(&program.body, has_init) {
        let depth = decompose::outermost_reduction(program, &path);
        decompose::decompose(program, &path, depth);
    }
}

fn drop_unit_loops(program: &mut Program) {
    let body = std::mem::take(&mut program.body);
    program.body = tree::rewrite(body, &mut |stmt| match stmt {
        Stmt::For(mut l) if l.extent == 1 && !is_marked(&l) => {
            let var = l.var;
            tree::visit_blocks_mut(&mut l.body, &mut |block| {
                block.substitute_loops(&|v| (v == var).then(|| Expr::int(0)));
            });
            l.into_inner().body
        }
        other => vec![other],
    });
}

/// Whether the loop says who executes its body, even if that is only one thread, or an instruction.
fn is_marked(l: &For) -> bool {
    match l.kind {
        ForKind::Bound(axis) => axis != ThreadAxis::Virtual,
        ForKind::Tensor(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
