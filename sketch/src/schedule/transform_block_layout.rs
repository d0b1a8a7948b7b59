//! transform_block_layout: a block over other iterators, under loops of its own.
//!
//! ```text
//! for i in 0..8 { for j in 0..6 { block t (vi = i, vj = j) { t[vi, vj] = .. } } }
//! => transform_block_layout(t, (v0, v1) -> (add(mul(v0, 6), v1)))
//! for x in 0..48 { block t (vx = x) { t[vx // 6, vx % 6] = .. } }
//! ```

use std::collections::BTreeMap;

use ansc_graph::{Expr, VarId};

use super::error::{Cause, Failure};
use super::moves::{check_parallel, own_conditions};
use super::query::{block_at, block_path};
use super::{Result, Schedule};
use crate::affine::{self, Extents};
use crate::index_map::IndexMap;
use crate::program::{Block, Body, For, ForKind, Iter, IterKind, Program, Shared, Stmt};
use crate::tree::{self, Path};

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// `map` takes the values of the block's iterators to those of new ones, and back: it is a
    /// bijection that mixes no spatial iterator with one of a reduction. The block has no predicate
    /// but over its iterators, which are, in their order, the innermost loops around it, and
    /// contain nothing else. The first ones, if the map leaves them alone, keep their loops; the
    /// others are serial.
    pub fn transform_block_layout(&mut self, block: &str, map: &IndexMap) -> Result<()> {
        self.apply("transform_block_layout", |program| transform(program, block, map))
    }
}

fn transform(program: &mut Program, name: &str, map: &IndexMap) -> Checked<()> {
    let path = block_path(program, name)?;
    let kept = kept(map);
    let nest = own_nest(program, &path, kept)?;
    let mut block = block_at(program, &path).clone();
    if matches!(block.body, Body::ArgReduce { .. }) {
        return Err(Cause::ArgReduction.at_block(name));
    }
    let refused = |what: &str| Cause::Map(what.to_owned()).at_block(name);
    if map.inputs() != block.iters.len() {
        return Err(refused("the block has another number of iterators"));
    }
    let lengths: Vec<usize> = block.iters.iter().map(|i| i.extent).collect();
    let back = map.inverse(&lengths).ok_or_else(|| refused("it is no bijection"))?;
    let shape = map.shape(&lengths).ok_or_else(|| refused("it is no bijection"))?;
    let kinds = kinds(&block, map).ok_or_else(|| refused("it mixes kinds of iterators"))?;

    let (loops, mut iters) = fresh(program, &shape[kept..], &kinds[kept..]);
    iters.splice(..0, block.iters[..kept].iter().cloned());
    let old: BTreeMap<VarId, Expr> = {
        let at: Vec<Expr> = iters.iter().map(|i| Expr::Var(i.var)).collect();
        block.iters.iter().map(|i| i.var).zip(back.apply(&at)).collect()
    };
    let mut extents = Extents::of(program);
    iters.iter().for_each(|i| extents.set(i.var, i.extent));
    block.visit_exprs_mut(&mut |e| {
        *e = affine::simplify(&e.substitute(&|v| old.get(&v).cloned()), &extents);
    });
    block.iters = iters;
    tree::splice(
        &mut program.body,
        &nest,
        tree::nest(loops, vec![Stmt::Block(Shared::new(block))]),
    );
    check_parallel(program)
}

/// How many of the first iterators the map leaves alone.
fn kept(map: &IndexMap) -> usize {
    let is_alone = |place: usize| {
        let mut others = map.outputs().iter().enumerate().filter(|(at, _)| *at != place);
        others.all(|(_, e)| !e.vars().contains(&VarId::new(place)))
    };
    let outputs = map.outputs().iter().enumerate();
    outputs.take_while(|(at, e)| **e == Expr::var(*at) && is_alone(*at)).count()
}

/// Where the loops begin that are the block's iterators, without the first `kept`.
fn own_nest(program: &Program, path: &Path, kept: usize) -> Checked<Path> {
    let block = block_at(program, path);
    let loops = tree::loops_above(&program.body, path);
    if block.predicate.as_ref().is_some_and(|p| own_conditions(block).len() < p.conjuncts().len()) {
        return Err(Cause::HasPredicate.at_block(&block.name));
    }
    let first = loops.len().checked_sub(block.iters.len());
    let own = first.map(|first| &loops[first..]);
    let fits = |(at, (l, i)): (usize, (&&For, &Iter))| {
        i.binding == Expr::Var(l.var)
            && i.extent == l.extent
            && (at < kept || l.kind == ForKind::Serial)
            && l.body.len() == 1
    };
    match (first, own) {
        (Some(first), Some(own)) if own.iter().zip(&block.iters).enumerate().all(fits) => {
            Ok(path[..=first + kept].to_vec())
        }
        _ => Err(Cause::BindingNotPlain.at_block(&block.name)),
    }
}

/// The kind of each new iterator; one that depends on no other is spatial.
fn kinds(block: &Block, map: &IndexMap) -> Option<Vec<IterKind>> {
    let kind = |e: &Expr| {
        let vars = e.vars();
        let mut kinds = vars.iter().map(|v| block.iters[v.index()].kind);
        let first = kinds.next().unwrap_or(IterKind::Spatial);
        kinds.all(|k| k == first).then_some(first)
    };
    map.outputs().iter().map(kind).collect()
}

fn fresh(program: &mut Program, shape: &[usize], kinds: &[IterKind]) -> (Vec<For>, Vec<Iter>) {
    let one = |(axis, (&extent, &kind)): (usize, (&usize, &IterKind))| {
        let var = program.add_var(format!("x{axis}"));
        let l = For { var, extent, kind: ForKind::Serial, body: vec![] };
        let binding = Expr::Var(var);
        let var = program.add_var(format!("vx{axis}"));
        (l, Iter { var, extent, kind, binding })
    };
    shape.iter().zip(kinds).enumerate().map(one).unzip()
}
