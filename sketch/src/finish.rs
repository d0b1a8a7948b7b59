//! The last step before code generation.
//!
//! In: any valid program. Out: a program that computes the same, in which no reduction has `init`
//! set, and loops of extent 1 are gone.

use ansc_graph::Expr;

use crate::decompose;
use crate::program::{Program, Stmt};
use crate::tree;

pub fn finish(mut program: Program) -> Program {
    decompose_inits(&mut program);
    drop_unit_loops(&mut program);
    program
}

fn decompose_inits(program: &mut Program) {
    let has_init = &mut |s: &Stmt| matches!(s, Stmt::Block(b) if b.has_init());
    while let Some(path) = tree::find(&program.body, has_init) {
        let depth = decompose::outermost_reduction(program, &path);
        decompose::decompose(program, &path, depth);
    }
}

fn drop_unit_loops(program: &mut Program) {
    let body = std::mem::take(&mut program.body);
    program.body = tree::rewrite(body, &mut |stmt| match stmt {
        Stmt::For(mut l) if l.extent == 1 => {
            let var = l.var;
            tree::visit_blocks_mut(&mut l.body, &mut |block| {
                block.substitute_loops(&|v| (v == var).then(|| Expr::int(0)));
            });
            l.body
        }
        other => vec![other],
    });
}
