//! fold_tree: the last step of a reduction in vectors of half the width each.
//!
//! ```text
//! for k in 0..8 { block s (vk = k) { s[] sum= acc[vk] init } }
//! => fold_tree(s)
//! for l in 0..4 vectorized { acc[l] sum= acc[l + 4] }
//! for l in 0..2 vectorized { acc[l] sum= acc[l + 2] }
//! acc[0] sum= acc[1]
//! s[] = acc[0]
//! ```
//!
//! If there are several vectors of partial results, they are added to the first one before: 24 is
//! twice a vector of 8, then 4, 2, 1. An odd number loses its upper half, rounded down, in each
//! step.

use ansc_graph::{BufId, Combiner, Expr};

use super::copies;
use super::error::{Cause, Failure, buffer_name};
use super::moves::{blocks_where, is_internal};
use super::query::{block_at, block_path};
use super::{LoopRef, Result, Schedule};
use crate::affine::Extents;
use crate::disjoint::{bound, determines};
use crate::program::{Access, Block, Body, For, ForKind, Iter, IterKind, Program, Shared, Stmt};
use crate::tree::{self, Path};
use crate::vectors::fold_steps;

type Checked<T> = std::result::Result<T, Failure>;

/// Partial results that are worth steps of their own.
const MOST: usize = 128;
/// Fewer lanes are no vector of partial results.
const FEWEST_LANES: usize = 4;

impl Schedule {
    /// `block` combines at most 128 elements of a workspace, along one axis: it reads nothing else,
    /// and nothing else reads them, for they are overwritten. The serial loop over them is directly
    /// around the block and contains nothing else. The block then takes the first element, under
    /// its name; the steps before it are new blocks, whose names are returned. Sums are
    /// reassociated.
    pub fn fold_tree(&mut self, block: &str) -> Result<Vec<String>> {
        self.apply("fold_tree", |program| fold_tree(program, block))
    }
}

/// The elements that are combined: `buffer[.., term, ..]`.
struct Terms {
    combiner: Combiner,
    buffer: BufId,
    indices: Vec<Expr>,
    axis: usize,
    count: usize,
}

fn fold_tree(program: &mut Program, name: &str) -> Checked<Vec<String>> {
    let path = block_path(program, name)?;
    let l = check_loop(program, &path)?;
    let terms = terms(program, &path, &l)?;
    check_use(program, &path, &terms)?;
    let block = block_at(program, &path).clone();
    let whole = 1 << terms.count.trailing_zeros();
    let lanes = if whole >= FEWEST_LANES { whole } else { terms.count };
    let steps = fold_steps(terms.count / lanes, lanes);
    let fold = program.fresh_block_name(&format!("{name}_fold"));
    let first = Some(fold.clone()).filter(|_| !steps.is_empty());
    let mut stmts = vec![];
    for (from, width) in steps {
        stmts.extend(step(program, &block, &terms, &fold, (from, width)));
    }
    stmts.push(last(block, &terms));
    tree::splice(&mut program.body, &path[..path.len() - 1], stmts);
    let copies = copies::own_names(program).blocks;
    Ok(first.into_iter().chain(copies.into_iter().map(|(_, copy)| copy)).collect())
}

/// The loop directly around the block.
fn check_loop(program: &Program, path: &Path) -> Checked<For> {
    let name = &block_at(program, path).name;
    let loops = tree::loops_above(&program.body, path);
    let Some((l, outer)) = loops.split_last() else {
        return Err(Cause::NotAReductionLoop.at_block(name));
    };
    let at = LoopRef(l.var);
    match l.kind {
        ForKind::Serial | ForKind::Unrolled => {}
        kind => return Err(Cause::Kind(kind).at_loop(at)),
    }
    if l.body.len() != 1 {
        return Err(Cause::NotOneBlock.at_loop(at));
    }
    if l.extent == 0 || l.extent > MOST {
        return Err(Cause::TooManyIterations { extent: l.extent, most: MOST }.at_loop(at));
    }
    if let Some(vector) = outer.iter().find(|l| l.kind == ForKind::Vectorized) {
        return Err(Cause::NestedVectors.at_loop(LoopRef(vector.var)));
    }
    Ok((*l).clone())
}

fn terms(program: &Program, path: &Path, l: &For) -> Checked<Terms> {
    let block = block_at(program, path);
    let Body::Reduce { combiner, value: Expr::Load(buffer, indices), .. } = &block.body else {
        let buffer = buffer_name(program, block.body.writes()[0].buffer);
        return Err(Cause::NotAFold { buffer }.at_block(&block.name));
    };
    let mut reduced = block.iters.iter().filter(|i| i.kind == IterKind::Reduce);
    let (Some(term), None) = (reduced.next(), reduced.next()) else {
        return Err(Cause::NotAReductionLoop.at_loop(LoopRef(l.var)));
    };
    let depends = |e: &Expr| e.vars().iter().any(|v| *v == l.var || *v == term.var);
    let uses = block.iters.iter().filter(|i| depends(&i.binding)).count();
    // Nothing is bound to a loop of one iteration.
    let is_plain = term.binding == Expr::Var(l.var) && uses == 1;
    if !is_plain && (l.extent > 1 || term.binding != Expr::int(0)) {
        return Err(Cause::BindingNotPlain.at_block(&block.name));
    }
    if block.predicate.as_ref().is_some_and(depends) {
        return Err(Cause::HasPredicate.at_block(&block.name));
    }
    let along: Vec<usize> = (0..indices.len()).filter(|&axis| depends(&indices[axis])).collect();
    match along.as_slice() {
        &[axis] if indices[axis] == Expr::Var(term.var) => Ok(Terms {
            combiner: *combiner,
            buffer: *buffer,
            indices: indices.clone(),
            axis,
            count: l.extent,
        }),
        _ => {
            let buffer = buffer_name(program, *buffer);
            Err(Cause::NotAFold { buffer }.at_block(&block.name))
        }
    }
}

/// Nobody else takes the elements that are overwritten, and neither does the block in another
/// iteration.
fn check_use(program: &Program, path: &Path, terms: &Terms) -> Checked<()> {
    let block = block_at(program, path);
    let buffer = || buffer_name(program, terms.buffer);
    if !is_internal(program, terms.buffer) {
        return Err(Cause::Fixed { buffer: buffer() }.at_buffer(terms.buffer));
    }
    let reads = |b: &Block| b.name != block.name && b.reads().contains(&terms.buffer);
    if let Some(other) = blocks_where(program, reads).first() {
        let other = &block_at(program, other).name;
        return Err(Cause::OtherReaders { buffer: buffer() }.at_block(other));
    }
    let loops = tree::loops_above(&program.body, path);
    let extents = Extents::of(program);
    let indices: Vec<Expr> = terms.indices.iter().map(|i| bound(block, i)).collect();
    let is_own = |l: &&&For| {
        copies::private_buffers(program, l.var).contains(&terms.buffer)
            || determines(&indices, l.var, &extents)
    };
    match loops[..loops.len() - 1].iter().find(|l| !is_own(l)) {
        None => Ok(()),
        Some(l) => {
            let (block, other) = (block.name.clone(), block.name.clone());
            Err(Cause::Dependent { block, other, buffer: buffer() }.at_loop(LoopRef(l.var)))
        }
    }
}

/// The block without its reduction.
fn point(block: &Block, body: Body) -> Block {
    let spatial = block.iters.iter().filter(|i| i.kind == IterKind::Spatial);
    Block { iters: spatial.cloned().collect(), body, ..block.clone() }
}

/// Adds `width` elements, from `from` on, to the first ones.
fn step(
    program: &mut Program,
    block: &Block,
    terms: &Terms,
    name: &str,
    (from, width): (usize, usize),
) -> Vec<Stmt> {
    let (l, lane) = (program.add_var("l"), program.add_var("vl"));
    let (to, source) = match width {
        1 => (Expr::int(0), Expr::index(from)),
        _ => (Expr::Var(lane), Expr::Var(lane) + Expr::index(from)),
    };
    let dst = Access { buffer: terms.buffer, indices: terms.at(to) };
    let value = Expr::Load(terms.buffer, terms.at(source));
    let body = Body::Reduce { combiner: terms.combiner, dst, value, init: false };
    let mut block = Block { name: name.to_owned(), ..point(block, body) };
    let mut loops = vec![];
    if width > 1 {
        let kind = IterKind::Spatial;
        block.iters.push(Iter { var: lane, extent: width, kind, binding: Expr::Var(l) });
        loops.push(For { var: l, extent: width, kind: ForKind::Vectorized, body: vec![] });
    }
    tree::nest(loops, vec![Stmt::Block(Shared::new(block))])
}

/// Takes the first element.
fn last(block: Block, terms: &Terms) -> Stmt {
    let value = Expr::Load(terms.buffer, terms.at(Expr::int(0)));
    let body = match block.body.clone() {
        Body::Reduce { dst, init: true, .. } => Body::Assign { dst, value },
        Body::Reduce { dst, combiner, .. } => Body::Reduce { combiner, dst, value, init: false },
        other => other,
    };
    Stmt::Block(Shared::new(point(&block, body)))
}

impl Terms {
    fn at(&self, index: Expr) -> Vec<Expr> {
        let mut indices = self.indices.clone();
        indices[self.axis] = index;
        indices
    }
}
