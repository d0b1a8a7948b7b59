//! blockize: a nest with iterators of its own.
//!
//! Blocks do not contain blocks here; what tells a nest that is a unit from one that is not is the
//! bindings. After blockize each iterator of the block is bound either to loops around `l` or to
//! loops from `l` on, never to both: seen from inside, the former are constants, and the latter say
//! what the unit does.
//!
//! ```text
//! for io { for jo { for i in 0..4 { for j in 0..8 { block s (vi = io * 4 + i, vj = jo * 8 + j) { c[vi, vj] = .. } } } } }
//! => blockize(i)
//! for io { for jo { for i in 0..4 { for j in 0..8 { block s (vo = io, vi = i, wo = jo, wi = j) { c[vo * 4 + vi, wo * 8 + wi] = .. } } } } }
//! ```
//!
//! Where tiles are no whole parts of the iterator, as those that peeling leaves, the outer iterator
//! is the place where a tile begins: `c[vo + vi]`, vo = io * 13 + 26.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{Expr, VarId};

use super::error::{Cause, Failure};
use super::query::{block_at, block_at_mut, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::affine::{self, Extents, Sum};
use crate::program::{Block, Iter, Program, Stmt};
use crate::tree::{self, Path};

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Separates the iterators of the one block under `l`, whose name is returned. Where both kinds
    /// of loops bind an iterator, the outer ones count in whole nests. No predicate depends on the
    /// inner loops.
    pub fn blockize(&mut self, l: LoopRef) -> Result<String> {
        self.apply("blockize", |program| {
            let path = blockize(program, l)?;
            Ok(block_at(program, &path).name.clone())
        })
    }
}

/// The path of the block.
pub(super) fn blockize(program: &mut Program, l: LoopRef) -> Checked<Path> {
    let path = only_block(program, l)?;
    let inner: BTreeSet<VarId> = inner_loops(program, &path, l);
    let block = block_at(program, &path).clone();
    check_predicate(&block, &inner)?;
    let extents = Extents::of(program);
    let (mut iters, mut replaced) = (vec![], BTreeMap::new());
    for iter in &block.iters {
        match separate(iter, &inner, &extents) {
            Some(Parts::Whole) => iters.push(iter.clone()),
            Some(Parts::Two { outer, inner, length, unit }) => {
                let (a, b) = two(program, iter, (outer, inner), (length, unit));
                let joined = Expr::Var(a.var) * Expr::index(unit) + Expr::Var(b.var);
                replaced.insert(iter.var, joined);
                iters.extend([a, b]);
            }
            None => return Err(Cause::NotATile.at_block(&block.name)),
        }
    }
    let mut extents = extents;
    iters.iter().for_each(|i| extents.set(i.var, i.extent));
    let block = block_at_mut(program, &path);
    block.iters = iters;
    block.visit_exprs_mut(&mut |e| {
        *e = affine::simplify(&e.substitute(&|v| replaced.get(&v).cloned()), &extents);
    });
    Ok(path)
}

/// The path of the block that `l` contains, if that is all it contains.
fn only_block(program: &Program, l: LoopRef) -> Checked<Path> {
    let mut path = loop_path(program, l)?;
    loop {
        match tree::stmt(&program.body, &path) {
            Some(Stmt::For(f)) if f.body.len() == 1 => path.push(0),
            Some(Stmt::Block(_)) => return Ok(path),
            _ => return Err(Cause::NotOneBlock.at_loop(l)),
        }
    }
}

/// The loops from `l` on.
pub(super) fn inner_loops(program: &Program, path: &Path, l: LoopRef) -> BTreeSet<VarId> {
    let loops = tree::loops_above(&program.body, path);
    loops.iter().map(|f| f.var).skip_while(|v| *v != l.0).collect()
}

fn check_predicate(block: &Block, inner: &BTreeSet<VarId>) -> Checked<()> {
    let own: BTreeSet<VarId> = block.iters.iter().map(|i| i.var).collect();
    let vars = block.predicate.iter().flat_map(Expr::vars);
    match vars.into_iter().find(|v| inner.contains(v) || own.contains(v)) {
        Some(_) => Err(Cause::HasPredicate.at_block(&block.name)),
        None => Ok(()),
    }
}

enum Parts {
    /// Bound to one kind of loops alone.
    Whole,
    /// `outer * unit + inner`, where `inner` is less than `length`.
    Two { outer: Sum, inner: Sum, length: usize, unit: usize },
}

fn separate(iter: &Iter, inner: &BTreeSet<VarId>, extents: &Extents) -> Option<Parts> {
    let is_inner = |v: VarId| inner.contains(&v);
    let is_outer = |v: VarId| !inner.contains(&v);
    let sum = Sum::of(&iter.binding, extents);
    let (within, around) = sum.partition(|digit, _| digit.depends_on(&is_inner));
    // A digit of both is neither.
    if within.terms.keys().any(|digit| digit.depends_on(&is_outer)) {
        return None;
    }
    if within.terms.is_empty() || (around.terms.is_empty() && around.constant == 0) {
        return Some(Parts::Whole);
    }
    let (low, high) = within.interval(extents)?;
    let length = high.checked_add(1).filter(|_| low == 0)?;
    let counts = |c: i64| c % length == 0;
    let whole = around.terms.values().all(counts) && counts(around.constant);
    // A tile that begins anywhere has no gaps: as many points as iterations.
    let points = within.to_expr().vars().into_iter().map(|v| extents.get(v).unwrap_or(0));
    let unit = match whole && iter.extent as i64 % length == 0 {
        true => length,
        false if points.product::<usize>() as i64 == length => 1,
        false => return None,
    };
    let mut outer = Sum::constant(around.constant / unit);
    around.terms.into_iter().for_each(|(digit, c)| outer.add_term(digit, c / unit));
    let [length, unit] = [usize::try_from(length).ok()?, usize::try_from(unit).ok()?];
    Some(Parts::Two { outer, inner: within, length, unit })
}

fn two(
    program: &mut Program,
    iter: &Iter,
    (outer, inner): (Sum, Sum),
    (length, unit): (usize, usize),
) -> (Iter, Iter) {
    let name = program.vars[iter.var.index()].clone();
    let mut part = |suffix: &str, extent: usize, binding: Sum| {
        let var = program.add_var(format!("{name}_{suffix}"));
        Iter { var, extent, kind: iter.kind, binding: binding.to_expr() }
    };
    (part("o", iter.extent / unit, outer), part("i", length, inner))
}
