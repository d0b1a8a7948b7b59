//! Programs with loops rolled up until they are no more code than a kernel may have.
//!
//! ```text
//! for u in 0..8 unrolled { for v in 0..14 unrolled { .. } }   =>   for u in 0..8 { for v in 0..14 unrolled { .. } }
//! ```
//!
//! Terms of sums are rolled up before results, which would leave their registers; loops that stay
//! vectors come last.

use ansc_graph::VarId;

use super::walk::{Counting, Walk};
use crate::machine::Machine;
use crate::program::{For, ForKind, Program, Scope, Stmt};
use crate::tree;

/// A loop over terms of a sum counts as if it saved so many times as much.
const TERMS: usize = 8;

/// The program, with as many loops rolled up as it takes. What rolling up makes no smaller stays
/// too large.
pub fn fitted(mut program: Program, machine: &Machine, budget: usize) -> Program {
    loop {
        let walk = Walk::of(&program, machine, Counting::Code);
        let size = walk.instructions();
        let wanted = if size <= budget { vec![] } else { to_roll(&program, &walk) };
        if wanted.is_empty() {
            return program;
        }
        let mut rolled = program.clone();
        roll(&mut rolled.body, &wanted);
        if Walk::of(&rolled, machine, Counting::Code).instructions() >= size {
            return program;
        }
        program = rolled;
    }
}

/// The loops to roll up: those of the unrolled loops that save most or, if there are none, those of
/// the vectorised ones.
fn to_roll(program: &Program, walk: &Walk<'_>) -> Vec<VarId> {
    let mut written_out = vec![];
    let mut vectors = vec![];
    tree::visit_loops(&program.body, &mut |l: &For| {
        let size = walk.inside(l.var);
        let saved = size - size / l.extent.max(1);
        match l.kind {
            ForKind::Unrolled if saved > 0 => {
                written_out.push((if is_of_terms(program, l) { TERMS } else { 1 } * saved, l.var));
            }
            ForKind::Vectorized if saved > 0 => vectors.push((saved, l.var)),
            _ => {}
        }
    });
    let all = if written_out.is_empty() { vectors } else { written_out };
    let most = all.iter().map(|(saved, _)| *saved).max().unwrap_or(0);
    all.into_iter().filter(|(saved, _)| 2 * saved > most).map(|(_, var)| var).collect()
}

/// Whether all iterations write the same elements of local buffers: those stay registers when it is
/// rolled up.
fn is_of_terms(program: &Program, l: &For) -> bool {
    let mut all = true;
    l.body.iter().for_each(|stmt| {
        stmt.visit_blocks(&mut |block| {
            let indexed = |a: &&crate::program::Access| {
                a.indices.iter().any(|index| index.vars().contains(&l.var))
            };
            let local = |a: &&crate::program::Access| {
                program.buffer(a.buffer).scope == Scope::Local && !indexed(a)
            };
            all &= block.body.writes().iter().all(local);
        });
    });
    all
}

fn roll(stmts: &mut [Stmt], vars: &[VarId]) {
    for stmt in stmts {
        let Stmt::For(l) = stmt else { continue };
        if vars.contains(&l.var) {
            l.kind = ForKind::Serial;
        }
        roll(&mut l.body, vars);
    }
}
