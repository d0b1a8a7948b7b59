//! re_index_read, re_index_write: a block works on a copy of a buffer whose axes are its own
//! iterators.
//!
//! ```text
//! conv[i] sum= x[i * 2 + r] * w[r]
//! => re_index_read(conv, x, global)
//! x_global[i, r] = x[i * 2 + r]   conv[i] sum= x_global[i, r] * w[r]
//! ```
//! The reads and writes of the block then have the form of a matrix product, even for a
//! convolution.

use ansc_graph::{BufId, Expr, TensorType};

use super::cache::{new_buffer_of, redirect_reads};
use super::compute_at::loads_of;
use super::error::{Cause, Failure, buffer_name};
use super::moves::{check_only_writer, own_conditions, readers, renest, writers};
use super::query::{block_at, block_at_mut, block_path, buffer_named};
use super::{Result, Schedule};
use crate::affine::{Extents, Sum};
use crate::program::{Access, Block, Body, Iter, IterKind, Program, Scope};
use crate::region::Span;
use crate::tree;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// `block`, which reads `buffer` at one place and under no condition, reads a new buffer of
    /// `scope` instead: with an axis for each iterator that the place depends on. A new block,
    /// whose name is returned, fills it before the outermost loop around `block`.
    pub fn re_index_read(&mut self, block: &str, buffer: &str, scope: Scope) -> Result<String> {
        self.apply("re_index_read", |program| {
            let buffer = buffer_named(program, buffer)?;
            read(program, block, buffer, scope)
        })
    }

    /// `block`, which alone writes its buffer, writes a new buffer of `scope` with an axis for each
    /// of its spatial iterators; a new block, whose name is returned, copies it to where it was
    /// written before, after the outermost loop around `block`.
    pub fn re_index_write(&mut self, block: &str, scope: Scope) -> Result<String> {
        self.apply("re_index_write", |program| write(program, block, scope, |i| i.extent != 1))
    }
}

fn read(program: &mut Program, name: &str, original: BufId, scope: Scope) -> Checked<String> {
    let path = block_path(program, name)?;
    let buffer = || buffer_name(program, original);
    let block = block_at(program, &path);
    let at = match &loads_of(block, original)[..] {
        [] => return Err(Cause::NotAccessed { buffer: buffer() }.at_block(name)),
        [first, rest @ ..] if rest.iter().all(|other| other == first) => first.to_vec(),
        _ => return Err(Cause::SeveralPlaces { buffer: buffer() }.at_block(name)),
    };
    if block.body.writes().iter().any(|a| a.buffer == original) {
        return Err(Cause::SeveralPlaces { buffer: buffer() }.at_block(name));
    }
    if !is_inside(program, original, &at) {
        return Err(Cause::ConditionalRead { buffer: buffer() }.at_block(name));
    }
    if let Some(late) = writers(program, original).into_iter().find(|w| w[0] >= path[0]) {
        let writer = block_at(program, &late).name.clone();
        return Err(Cause::BeforeProducer(writer).at_block(name));
    }
    let iters = used_iters(block, &at);
    let cache = new_axes(program, original, &iters, scope)?;
    let own: Vec<Expr> = iters.iter().map(|i| Expr::Var(i.var)).collect();
    redirect_reads(block_at_mut(program, &path), &|buffer, _| {
        (buffer == original).then(|| Expr::Load(cache, own.clone()))
    });
    let base = format!("{}_read", buffer_name(program, original));
    let copied = (Access { buffer: cache, indices: own }, Expr::Load(original, at));
    Ok(insert_copy(program, path[0], &base, &iters, copied))
}

/// The same with axes for those of the iterators that are wanted; the others have one value.
pub(super) fn write(
    program: &mut Program,
    name: &str,
    scope: Scope,
    is_wanted: impl Fn(&Iter) -> bool,
) -> Checked<String> {
    let path = block_path(program, name)?;
    check_only_writer(program, &path)?;
    let block = block_at(program, &path);
    let dst = match &block.body {
        Body::ArgReduce { .. } => return Err(Cause::ArgReduction.at_block(name)),
        Body::Assign { dst, .. } | Body::Reduce { dst, .. } => dst.clone(),
    };
    if !loads_of(block, dst.buffer).is_empty() {
        let buffer = buffer_name(program, dst.buffer);
        return Err(Cause::SeveralPlaces { buffer }.at_block(name));
    }
    if let Some(near) = readers(program, dst.buffer).into_iter().find(|r| r[0] == path[0]) {
        let buffer = buffer_name(program, dst.buffer);
        return Err(Cause::OtherReaders { buffer }.at_block(&block_at(program, &near).name));
    }
    let used = used_iters(block, &dst.indices);
    let all_used = |i: &Iter| i.kind == IterKind::Reduce || i.extent == 1 || used.contains(i);
    let spatial = block.iters.iter().filter(|i| i.kind == IterKind::Spatial);
    let iters: Vec<Iter> = spatial.filter(|i| is_wanted(i)).cloned().collect();
    let extents = Extents::of(program);
    // The copy goes along whole iterators, of which the block has to write all.
    let is_whole = |i: &Iter| {
        let reached = Sum::of(&i.binding, &extents).interval(&extents);
        reached.is_some_and(|(low, high)| low <= 0 && high >= i.extent as i64 - 1)
    };
    let is_complete = block.iters.iter().all(all_used) && iters.iter().all(is_whole);
    if !own_conditions(block).is_empty() || !is_complete {
        return Err(Cause::IndexNotPlain.at_block(name));
    }
    let cache = new_axes(program, dst.buffer, &iters, scope)?;
    let own: Vec<Expr> = iters.iter().map(|i| Expr::Var(i.var)).collect();
    let block = block_at_mut(program, &path);
    block.body.writes_mut().into_iter().for_each(|access| {
        *access = Access { buffer: cache, indices: own.clone() };
    });
    let base = format!("{name}_copy");
    let copied = (dst, Expr::Load(cache, own));
    Ok(insert_copy(program, path[0] + 1, &base, &iters, copied))
}

/// Whether the place is in the buffer whatever the iterators are.
fn is_inside(program: &Program, buffer: BufId, at: &[Expr]) -> bool {
    let extents = Extents::of(program);
    at.iter().zip(&program.buffer(buffer).ty.shape).all(|(index, &length)| {
        let interval = Sum::of(index, &extents).interval(&extents);
        interval.is_some_and(|(low, high)| low >= 0 && high < length as i64)
    })
}

/// The iterators of more than one value that the place depends on, in their order.
fn used_iters(block: &Block, at: &[Expr]) -> Vec<Iter> {
    let used = |i: &&Iter| i.extent != 1 && at.iter().any(|e| e.vars().contains(&i.var));
    block.iters.iter().filter(used).cloned().collect()
}

fn new_axes(program: &mut Program, like: BufId, iters: &[Iter], scope: Scope) -> Checked<BufId> {
    let shape: Vec<usize> = iters.iter().map(|i| i.extent).collect();
    if shape.iter().try_fold(1usize, |n, &length| n.checked_mul(length)).is_none() {
        return Err(Cause::TooLarge.at_buffer(like));
    }
    let ty = TensorType::new(program.buffer(like).ty.dtype, shape);
    Ok(new_buffer_of(program, like, ty, scope))
}

/// A block that assigns at every point of `iters`, in a nest of its own at `place` of the root.
fn insert_copy(
    program: &mut Program,
    place: usize,
    base: &str,
    iters: &[Iter],
    (dst, value): (Access, Expr),
) -> String {
    let twins: Vec<Iter> = iters
        .iter()
        .map(|i| {
            let var = tree::twin(program, i.var);
            Iter { var, extent: i.extent, kind: IterKind::Spatial, binding: Expr::int(0) }
        })
        .collect();
    let rename = |e: &Expr| {
        e.substitute(&|v| match iters.iter().position(|i| i.var == v) {
            Some(at) => Some(Expr::Var(twins[at].var)),
            // An iterator that the copy does not have has only one value.
            None => Some(Expr::int(0)),
        })
    };
    let indices = dst.indices.iter().map(rename).collect();
    let body = Body::Assign { dst: Access { buffer: dst.buffer, indices }, value: rename(&value) };
    let name = program.fresh_block_name(base);
    let spans: Vec<Span> = twins.iter().map(|i| Span::whole(i.extent)).collect();
    let block = Block { name: name.clone(), iters: twins, predicate: None, body };
    let nest = renest(program, block, &spans);
    program.body.insert(place, nest);
    name
}
