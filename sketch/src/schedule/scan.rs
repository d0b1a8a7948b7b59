//! scan: elements that are combined with all before them become one pass with a running value.
//!
//! ```text
//! for j { for i in 0..4 { a[i, j] = x[i, j] + select(1 <= i, x[i - 1, j], 0) } }
//! for i, j { s[i, j] = a[i, j] + select(2 <= i, a[i - 2, j], 0) }
//! => scan(a, i, i)
//! for j { running[j] = 0   for i in 0..4 { running[j] += x[i, j]   s[i, j] = running[j] } }
//! ```
//!
//! The chain of blocks doubles the distance from step to step (`doubling`). Each loop inside of
//! that which is run along has a running value for each of its iterations. They are stored at the
//! end of that loop's body, or of one inside of it: pieces of a long row are stored as they are
//! made.

use ansc_graph::{BufId, Expr, TensorType, VarId};

use super::copies;
use super::error::{Cause, Failure, buffer_name};
use super::moves::{check_parallel, is_internal, readers, remove_block, writers};
use super::query::{block_at, block_path, blocks_under, loop_at, loop_at_mut, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::decompose;
use crate::doubling::Doubling;
use crate::program::{Access, Block, Body, ForKind, Iter, IterKind, Program, Scope, Shared, Stmt};
use crate::tree::{self, Path};

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// `block`, the first of a chain that doubles distances along the serial loop `l`, goes along
    /// it with a running value, and the others vanish. Each of these has a nest of its own, to
    /// which nothing was done yet, and only the next one reads what it writes. Returns the name of
    /// the block that stores running values in the loop `place`, which is `l` or inside of it; the
    /// one that initialises them is `block` with `_init`.
    pub fn scan(&mut self, block: &str, l: LoopRef, place: LoopRef) -> Result<String> {
        let mut twins = copies::Twins::default();
        let stored = self.apply("scan", |program| {
            let (stored, made) = scan(program, block, [l, place])?;
            twins = made;
            Ok(stored)
        })?;
        self.copy_all_notes(&twins);
        Ok(stored)
    }
}

/// The blocks after the first one of a chain, and what the last one writes.
struct Chain {
    first: Doubling,
    later: Vec<String>,
    result: BufId,
}

fn scan(
    program: &mut Program,
    name: &str,
    [l, place]: [LoopRef; 2],
) -> Checked<(String, copies::Twins)> {
    let path = block_path(program, name)?;
    let target = loop_path(program, l)?;
    let inside = loop_path(program, place)?;
    if !path.starts_with(&inside) || !inside.starts_with(&target) {
        return Err(Cause::NotUnder.at_loop(place));
    }
    let chain = chain(program, block_at(program, &path))?;
    check(program, &path, &target, l, chain.first.axis)?;
    for later in &chain.later {
        let path = block_path(program, later)?;
        remove_block(program, &path);
    }
    let stored = match chain.later.last() {
        Some(last) => last.clone(),
        None => program.fresh_block_name(&format!("{name}_store")),
    };
    let (scanning, storing) = blocks(program, block_at(program, &path).clone(), &chain, &stored);
    let body = &mut loop_at_mut(program, &inside).body;
    body.push(body[0].clone());
    let mut store = path.clone();
    store[inside.len()] = 1;
    *tree::stmt_mut(&mut program.body, &path) = Stmt::Block(Shared::new(scanning));
    *tree::stmt_mut(&mut program.body, &store) = Stmt::Block(Shared::new(storing));
    let twins = copies::own_names(program);
    decompose::decompose(program, &path, target.len() - 1);
    check_parallel(program)?;
    Ok((stored, twins))
}

/// The loop takes the axis of the chain, and no other, from its first element to the last; nothing
/// else is in the nest.
fn check(program: &Program, path: &Path, target: &Path, l: LoopRef, axis: usize) -> Checked<()> {
    if !path.starts_with(target) {
        return Err(Cause::NotUnder.at_loop(l));
    }
    let target = loop_at(program, target);
    if target.kind != ForKind::Serial {
        return Err(Cause::Kind(target.kind).at_loop(l));
    }
    let block = block_at(program, path);
    if blocks_under(loop_at(program, &path[..1])).len() != 1 {
        return Err(Cause::NotOneBlock.at_block(&block.name));
    }
    let own = own_place(block).ok_or_else(|| Cause::IndexNotPlain.at_block(&block.name))?;
    let takes = |iter: &Iter| iter.binding.vars().contains(&l.0);
    let is_whole = |iter: &Iter| iter.binding == Expr::Var(l.0) && iter.extent == target.extent;
    let fits = |iter: &Iter| if iter.var == own[axis] { is_whole(iter) } else { !takes(iter) };
    let guard = block.predicate.iter().flat_map(Expr::vars).any(|v| v == own[axis] || v == l.0);
    match block.iters.iter().all(fits) && !guard {
        true => Ok(()),
        false => Err(Cause::BindingNotPlain.at_block(&block.name)),
    }
}

/// Where the block writes, if that is at each of its iterators.
fn own_place(block: &Block) -> Option<Vec<VarId>> {
    let Body::Assign { dst, .. } = &block.body else { return None };
    let index = |index: &Expr| match index {
        Expr::Var(v) => Some(*v),
        _ => None,
    };
    let own: Vec<VarId> = dst.indices.iter().map(index).collect::<Option<_>>()?;
    block.iters.iter().map(|i| i.var).eq(own.iter().copied()).then_some(own)
}

fn step(program: &Program, block: &Block) -> Option<(Doubling, BufId)> {
    let Body::Assign { dst, value } = &block.body else { return None };
    let ty = &program.buffer(dst.buffer).ty;
    Some((Doubling::of(value, &own_place(block)?, ty)?, dst.buffer))
}

fn chain(program: &Program, block: &Block) -> Checked<Chain> {
    let no_chain = |name: &str| Cause::NoChain.at_block(name);
    let (first, mut result) = step(program, block)
        .filter(|(step, _)| step.distance == 1)
        .ok_or_else(|| no_chain(&block.name))?;
    let extent = program.buffer(result).ty.shape[first.axis];
    let (mut later, mut reach) = (vec![], 2);
    check_only_one_writes(program, result, &block.name)?;
    while reach < extent {
        let next = match readers(program, result).as_slice() {
            [one] if is_internal(program, result) => block_at(program, one),
            _ => return Err(no_chain(&block.name)),
        };
        let expected = Doubling { source: result, distance: reach, ..first };
        let (found, written) = step(program, next).ok_or_else(|| no_chain(&next.name))?;
        if found != expected || !is_untouched(program, next) {
            return Err(no_chain(&next.name));
        }
        check_only_one_writes(program, written, &next.name)?;
        later.push(next.name.clone());
        (result, reach) = (written, 2 * reach);
    }
    Ok(Chain { first, later, result })
}

fn check_only_one_writes(program: &Program, buffer: BufId, block: &str) -> Checked<()> {
    match writers(program, buffer).as_slice() {
        [_] => Ok(()),
        _ => {
            let buffer = buffer_name(program, buffer);
            Err(Cause::SeveralWriters { buffer }.at_block(block))
        }
    }
}

/// Whether each iterator of the block is a loop of its own in a nest of its own.
fn is_untouched(program: &Program, block: &Block) -> bool {
    let Ok(path) = block_path(program, &block.name) else { return false };
    let loops = tree::loops_above(&program.body, &path);
    let bound = block.iters.iter().map(|i| (i.binding.clone(), i.extent));
    loops.first().is_none_or(|root| blocks_under(root).len() == 1)
        && block.predicate.is_none()
        && loops.iter().map(|l| (Expr::Var(l.var), l.extent)).eq(bound)
}

/// The block that adds to the running values, and the one that stores them.
fn blocks(program: &mut Program, mut block: Block, chain: &Chain, stored: &str) -> (Block, Block) {
    let Doubling { source, combiner, axis, reverse, .. } = chain.first;
    let here: Vec<Expr> = block.iters.iter().map(|i| Expr::Var(i.var)).collect();
    let mut ty = program.buffer(chain.result).ty.clone();
    let extent = ty.shape.remove(axis);
    let name = program.fresh_buffer_name(&format!("{}_running", block.name));
    let dtype = ty.dtype;
    let running = program.add_buffer(name, TensorType::new(dtype, ty.shape), Scope::Local);
    let mut lanes = here.clone();
    lanes.remove(axis);
    let along = &mut block.iters[axis];
    if reverse {
        along.binding = Expr::index(extent - 1) - along.binding.clone();
    }
    let value = Expr::Load(running, lanes.clone());
    let dst = Access { buffer: chain.result, indices: here.clone() };
    let body = Body::Assign { dst, value };
    let storing = Block { name: stored.to_owned(), body, ..block.clone() };
    block.iters[axis].kind = IterKind::Reduce;
    let (dst, value) = (Access { buffer: running, indices: lanes }, Expr::Load(source, here));
    block.body = Body::Reduce { combiner, dst, value, init: true };
    (block, storing)
}
