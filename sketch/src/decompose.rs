//! A reduction as an assignment of the identity and an update.
//!
//! ```text
//! for i { for k { block mm: c[i] sum= x init } }
//! => (at k)
//! for i { block mm_init: c[i] = 0   for k { block mm: c[i] sum= x } }
//! ```

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{Combiner, Expr, Scalar, VarId};

use crate::program::{Access, Block, Body, For, ForKind, Iter, IterKind, Program, Shared, Stmt};
use crate::tree;

/// The depth of the outermost loop above the block at `path` that a reduction iterator depends on;
/// the depth of the block itself if there is none.
pub(crate) fn outermost_reduction(program: &Program, path: &[usize]) -> usize {
    let reduced = bound_vars(block_at(program, path), IterKind::Reduce);
    let loops = tree::loops_above(&program.body, path);
    loops.iter().position(|l| reduced.contains(&l.var)).unwrap_or(loops.len())
}

/// Splits the reduction at `path`, which has `init` set, in two: the identity is assigned just
/// before the ancestor of depth `depth` (the block itself, if that is its depth). No loop
/// further out may be bound by a reduction iterator. Returns the name of the (last) new block.
pub(crate) fn decompose(program: &mut Program, path: &[usize], depth: usize) -> String {
    let block = block_at(program, path).clone();
    let inner: Vec<For> = tree::loops_above(&program.body, path)[depth..]
        .iter()
        .map(|l| For { var: l.var, extent: l.extent, kind: l.kind, body: vec![] })
        .collect();
    let spatial = bound_vars(&block, IterKind::Spatial);
    let kept: Vec<For> = inner.into_iter().filter(|l| spatial.contains(&l.var)).collect();
    let dropped: BTreeSet<VarId> = bound_vars(&block, IterKind::Reduce);
    let mut inits = vec![];
    let mut last = String::new();
    for (suffix, dst, value) in identities(program, &block.body) {
        last = program.fresh_block_name(&format!("{}{suffix}", block.name));
        inits.extend(init_nest(program, &block, &kept, &dropped, last.clone(), dst, value));
    }
    let Stmt::Block(update) = tree::stmt_mut(&mut program.body, path) else {
        unreachable!("the path of a block")
    };
    match &mut update.body {
        Body::Reduce { init, .. } | Body::ArgReduce { init, .. } => *init = false,
        Body::Assign { .. } => unreachable!("an assignment is not initialised"),
    }
    let (siblings, index) = tree::siblings_mut(&mut program.body, &path[..=depth]);
    siblings.splice(index..index, inits);
    last
}

fn block_at<'a>(program: &'a Program, path: &[usize]) -> &'a Block {
    match tree::stmt(&program.body, path) {
        Some(Stmt::Block(block)) => block,
        _ => unreachable!("the path of a block"),
    }
}

/// Loop variables in the bindings of the iterators of a kind.
fn bound_vars(block: &Block, kind: IterKind) -> BTreeSet<VarId> {
    block.iters.iter().filter(|i| i.kind == kind).flat_map(|i| i.binding.vars()).collect()
}

/// The identity that each destination begins with, and the suffix of the name of the block that
/// assigns it.
fn identities(program: &Program, body: &Body) -> Vec<(&'static str, Access, Scalar)> {
    let dtype = |access: &Access| program.buffer(access.buffer).ty.dtype;
    match body {
        Body::Assign { .. } => vec![],
        Body::Reduce { combiner, dst, .. } => {
            let identity = combiner.identity(dtype(dst)).expect("a plain combiner");
            vec![("_init", dst.clone(), identity)]
        }
        Body::ArgReduce { combiner, best, position, .. } => {
            let worst = match combiner {
                Combiner::ArgMin { .. } => Scalar::highest(dtype(best)),
                _ => Scalar::lowest(dtype(best)),
            };
            vec![
                ("_best_init", best.clone(), worst),
                // If no term beats the worst value, all terms equal it, and the first one is at 0.
                ("_init", position.clone(), Scalar::zero(dtype(position))),
            ]
        }
    }
}

/// The nest that assigns `value` at every point of the spatial iterators below the split.
pub(crate) fn init_nest(
    program: &mut Program,
    block: &Block,
    kept: &[For],
    dropped: &BTreeSet<VarId>,
    name: String,
    dst: Access,
    value: Scalar,
) -> Vec<Stmt> {
    let mut renamed: BTreeMap<VarId, VarId> = BTreeMap::new();
    let loops = kept
        .iter()
        .map(|l| {
            let var = tree::twin(program, l.var);
            renamed.insert(l.var, var);
            let kind = if l.kind == ForKind::Parallel { ForKind::Serial } else { l.kind };
            For { var, extent: l.extent, kind, body: vec![] }
        })
        .collect();
    let spatial = block.iters.iter().filter(|i| i.kind == IterKind::Spatial);
    for iter in spatial.clone() {
        renamed.insert(iter.var, tree::twin(program, iter.var));
    }
    let rename = |e: &Expr| e.substitute(&|v| renamed.get(&v).map(|&v| Expr::Var(v)));
    let iters = spatial
        .map(|i| Iter { var: renamed[&i.var], binding: rename(&i.binding), ..i.clone() })
        .collect();
    let reduced: BTreeSet<VarId> =
        block.iters.iter().filter(|i| i.kind == IterKind::Reduce).map(|i| i.var).collect();
    // A loop that results and terms share is a loop of this nest, too: its guard stays.
    let is_gone =
        |v: &VarId| reduced.contains(v) || dropped.contains(v) && !renamed.contains_key(v);
    let of_reduction = |e: &Expr| e.vars().iter().any(is_gone);
    let predicate = block.predicate.iter().flat_map(Expr::conjuncts);
    let predicate = tree::conjunction(predicate.filter(|p| !of_reduction(p)).map(rename));
    let indices = dst.indices.iter().map(rename).collect();
    let dst = Access { buffer: dst.buffer, indices };
    let body = Body::Assign { dst, value: Expr::Const(value) };
    tree::nest(loops, vec![Stmt::Block(Shared::new(Block { name, iters, predicate, body }))])
}
