//! split: one loop as several nested ones.
//!
//! ```text
//! for i in 0..10 { .. i .. }
//! => split(i, [0, 4])
//! for i_0 in 0..3 { for i_1 in 0..4 { .. i_0 * 4 + i_1 .. where i_0 * 4 + i_1 < 10 } }
//! ```

use ansc_graph::Expr;

use super::error::{Cause, Failure};
use super::query::{check_depth, loop_at, loop_at_mut, loop_path, simplify_under};
use super::{LoopRef, Result, Schedule};
use crate::program::{For, ForKind, Program, Stmt};
use crate::tree;

impl Schedule {
    /// Splits a loop into `factors.len()` loops, outermost first. One factor may be 0: it becomes
    /// the least that covers the extent. Where the product of factors exceeds the extent, blocks
    /// under the loop get a predicate. A loop of one iteration takes factors of 1 only: no iterator
    /// depends on it, so that iterations beyond would not be told apart from the first.
    pub fn split(&mut self, l: LoopRef, factors: &[usize]) -> Result<Vec<LoopRef>> {
        self.apply_in_place("split", |program| split(program, l, factors))
    }
}

fn split(
    program: &mut Program,
    l: LoopRef,
    factors: &[usize],
) -> std::result::Result<Vec<LoopRef>, Failure> {
    let path = loop_path(program, l)?;
    check_depth(program, &path, factors.len())?;
    let For { extent, kind, .. } = *loop_at(program, &path);
    if kind != ForKind::Serial {
        return Err(Cause::Kind(kind).at_loop(l));
    }
    let factors = resolve(factors, extent)
        .ok_or_else(|| Cause::Factors { factors: factors.to_vec(), extent }.at_loop(l))?;
    let base = program.vars[l.0.index()].clone();
    let vars: Vec<_> = (0..factors.len()).map(|i| program.add_var(format!("{base}_{i}"))).collect();
    let index = vars.iter().zip(&factors).map(|(&v, &f)| (Expr::Var(v), f));
    let index = index.reduce(|(outer, _), (v, f)| (outer * Expr::index(f) + v, f));
    let index = index.expect("at least one factor").0;
    let exact = factors.iter().product::<usize>() == extent;
    let guard = (!exact).then(|| index.clone().lt(Expr::index(extent)));

    let mut body = std::mem::take(&mut loop_at_mut(program, &path).body);
    tree::visit_blocks_mut(&mut body, &mut |block| {
        block.substitute_loops(&|v| (v == l.0).then(|| index.clone()));
        block.predicate =
            tree::conjunction(block.predicate.take().into_iter().chain(guard.clone()));
    });
    let loops = vars.iter().zip(&factors).map(|(&var, &extent)| For {
        var,
        extent,
        kind: ForKind::Serial,
        body: vec![],
    });
    let nest: Vec<Stmt> = tree::nest(loops.collect(), body);
    tree::splice(&mut program.body, &path, nest);
    simplify_under(program, &path, &vars);
    Ok(vars.into_iter().map(LoopRef).collect())
}

/// Whether `covered` iterations, or elements, are not far more than the `extent` that is needed:
/// numbers in traces may be anything, and a program that did nothing 2^60 times would be one
/// without an end.
pub(super) fn is_cover(covered: usize, extent: usize) -> bool {
    const MOST: usize = 1 << 20;
    covered >= extent && covered - extent <= extent.max(MOST)
}

/// The factors with a 0 replaced, or `None` if they cannot cover the extent.
fn resolve(factors: &[usize], extent: usize) -> Option<Vec<usize>> {
    let known = factors.iter().filter(|&&f| f != 0).try_fold(1usize, |n, &f| n.checked_mul(f))?;
    if extent == 1 && known > 1 {
        return None;
    }
    match factors.iter().filter(|&&f| f == 0).count() {
        0 if !factors.is_empty() && is_cover(known, extent) => Some(factors.to_vec()),
        1 => {
            let rest = extent.div_ceil(known);
            rest.checked_mul(known).filter(|&covered| is_cover(covered, extent))?;
            Some(factors.iter().map(|&f| if f == 0 { rest } else { f }).collect())
        }
        _ => None,
    }
}
