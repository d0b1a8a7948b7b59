//! cache_write, cache_read: a block works on a copy of a buffer.
//!
//! ```text
//! out[i, j] sum= a[i, k] * b[k, j]
//! => cache_write(mm, local)
//! out_local[i, j] sum= a[i, k] * b[k, j]   out[i, j] = out_local[i, j]
//! => cache_read(mm, a, local)
//! a_local[i, k] = a[i, k]   out_local[i, j] sum= a_local[i, k] * b[k, j]   ..
//! ```

use ansc_graph::{BufId, Expr, TensorType};

use super::error::{Cause, Failure, buffer_name};
use super::moves::{blocks_where, plain_indices, renest, writers};
use super::query::{block_at, block_at_mut, block_path, buffer_named};
use super::{Result, Schedule, re_index};
use crate::program::{Access, Block, Body, Iter, IterKind, Program, Scope, Stmt};
use crate::region::Span;
use crate::verify::{Written, written};

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// `block` writes a new buffer of `scope`; a new block, whose name is returned, copies it to
    /// where the block wrote before. The copy comes after the outermost loop around the block. If
    /// the block does not write at its iterators themselves, these are the axes of the new buffer,
    /// and those of the copy.
    pub fn cache_write(&mut self, block: &str, scope: Scope) -> Result<String> {
        self.apply("cache_write", |program| cache_write(program, block, scope))
    }

    /// `block` reads a new buffer of `scope` instead of `buffer`; a new block, whose name is
    /// returned, fills it before the outermost loop around `block`.
    pub fn cache_read(&mut self, block: &str, buffer: &str, scope: Scope) -> Result<String> {
        self.apply("cache_read", |program| {
            let buffer = buffer_named(program, buffer)?;
            cache_read(program, block, buffer, scope)
        })
    }
}

fn cache_write(program: &mut Program, name: &str, scope: Scope) -> Checked<String> {
    let path = block_path(program, name)?;
    let block = block_at(program, &path);
    // An arg-reduction writes two buffers; the cache is for the positions.
    let written = block.body.writes().into_iter().next_back().expect("every block writes");
    if plain_indices(&written.indices).is_none() {
        return re_index::write(program, name, scope, |_| true);
    }
    let original = written.buffer;
    let uses = |b: &Block| b.buffers().contains(&original);
    let writes = |b: &Block| b.body.writes().iter().any(|a| a.buffer == original);
    for other in blocks_where(program, |b| uses(b) && !writes(b)) {
        if other[0] == path[0] {
            let buffer = buffer_name(program, original);
            return Err(Cause::OtherReaders { buffer }.at_block(&block_at(program, &other).name));
        }
    }
    if let Some(elsewhere) = writers(program, original).into_iter().find(|w| w[0] != path[0]) {
        let buffer = buffer_name(program, original);
        return Err(Cause::SeveralWriters { buffer }.at_block(&block_at(program, &elsewhere).name));
    }
    let cache = new_buffer(program, original, scope);
    for writer in writers(program, original) {
        let block = block_at_mut(program, &writer);
        block.visit_accesses_mut(&mut |buffer, _| {
            if *buffer == original {
                *buffer = cache;
            }
        });
    }
    check_whole(program, name, cache, original)?;
    let copy = copy_block(program, &format!("{name}_copy"), cache, original);
    let copy_name = copy.name.clone();
    let nest = copy_nest(program, copy);
    program.body.insert(path[0] + 1, nest);
    Ok(copy_name)
}

fn cache_read(program: &mut Program, name: &str, original: BufId, scope: Scope) -> Checked<String> {
    let path = block_path(program, name)?;
    let block = block_at(program, &path);
    let buffer = || buffer_name(program, original);
    if !block.reads().contains(&original) {
        return Err(Cause::NotAccessed { buffer: buffer() }.at_block(name));
    }
    if let Some(late) = writers(program, original).into_iter().find(|w| w[0] >= path[0]) {
        let writer = block_at(program, &late).name.clone();
        return Err(Cause::BeforeProducer(writer).at_block(name));
    }
    if program.buffer(original).scope != Scope::Input {
        check_whole(program, name, original, original)?;
    }
    let cache = new_buffer(program, original, scope);
    redirect_reads(block_at_mut(program, &path), &same_place(original, cache));
    let copy_name = format!("{}_read", buffer_name(program, original));
    let copy = copy_block(program, &copy_name, original, cache);
    let copy_name = copy.name.clone();
    let nest = copy_nest(program, copy);
    program.body.insert(path[0], nest);
    Ok(copy_name)
}

/// A buffer is copied as a whole: none of it is certain not to be written. Messages call it
/// `original`.
fn check_whole(program: &Program, block: &str, copied: BufId, original: BufId) -> Checked<()> {
    match written(program, copied) {
        Written::All | Written::Unknown => Ok(()),
        Written::Part => {
            let buffer = buffer_name(program, original);
            Err(Cause::PartlyWritten { buffer }.at_block(block))
        }
    }
}

fn new_buffer(program: &mut Program, like: BufId, scope: Scope) -> BufId {
    let ty = program.buffer(like).ty.clone();
    new_buffer_of(program, like, ty, scope)
}

/// A buffer that is named after another one.
pub(super) fn new_buffer_of(
    program: &mut Program,
    like: BufId,
    ty: TensorType,
    scope: Scope,
) -> BufId {
    let name = program.fresh_buffer_name(&format!("{}_{scope}", program.buffer(like).name));
    program.add_buffer(name, ty, scope)
}

/// Replaces each load for which `f` gives an expression by that expression.
pub(super) fn redirect_reads(block: &mut Block, f: &impl Fn(BufId, &[Expr]) -> Option<Expr>) {
    block.visit_exprs_mut(&mut |e| {
        *e = e.rewrite(&mut |node| match node {
            Expr::Load(buffer, indices) => f(*buffer, indices),
            _ => None,
        });
    });
}

fn same_place(from: BufId, to: BufId) -> impl Fn(BufId, &[Expr]) -> Option<Expr> {
    move |buffer, indices| (buffer == from).then(|| Expr::Load(to, indices.to_vec()))
}

/// A block that copies all of `from` to `to`, yet without loops.
fn copy_block(program: &mut Program, name: &str, from: BufId, to: BufId) -> Block {
    let shape = program.buffer(from).ty.shape.clone();
    let iters: Vec<Iter> = shape
        .iter()
        .enumerate()
        .map(|(axis, &extent)| {
            let var = program.add_var(format!("vi{axis}"));
            Iter { var, extent, kind: IterKind::Spatial, binding: Expr::int(0) }
        })
        .collect();
    let indices: Vec<Expr> = iters.iter().map(|i| Expr::Var(i.var)).collect();
    let value = Expr::Load(from, indices.clone());
    let body = Body::Assign { dst: Access { buffer: to, indices }, value };
    let name = program.fresh_block_name(name);
    Block { name, iters, predicate: None, body }
}

fn copy_nest(program: &mut Program, block: Block) -> Stmt {
    let spans: Vec<Span> = block.iters.iter().map(|i| Span::whole(i.extent)).collect();
    renest(program, block, &spans)
}
