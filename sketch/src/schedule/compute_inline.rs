//! compute_inline: a producer becomes part of the expressions that read it.
//!
//! ```text
//! t[i] = f(i)   u[j] = g(t[j + 1])
//! => compute_inline(t)
//! u[j] = g(f(j + 1))
//! ```

use ansc_graph::{BufId, Expr, VarId};

use super::error::{Cause, Failure};
use super::moves::{
    check_only_writer, check_producers, is_internal, plain_indices, readers, remove_block,
};
use super::query::{block_at, block_path};
use super::{Result, Schedule};
use crate::program::{Access, Block, Body, Program};
use crate::tree;

impl Schedule {
    /// Removes `block`, which assigns without reducing, and puts its value where it is read.
    pub fn compute_inline(&mut self, block: &str) -> Result<()> {
        self.apply("compute_inline", |program| compute_inline(program, block))
    }
}

fn compute_inline(program: &mut Program, name: &str) -> std::result::Result<(), Failure> {
    let path = block_path(program, name)?;
    check_only_writer(program, &path)?;
    let block = block_at(program, &path);
    let (dst, value) = assignment(block)?;
    if !is_internal(program, dst.buffer) {
        return Err(Cause::WritesResult.at_block(name));
    }
    if readers(program, dst.buffer).is_empty() {
        return Err(Cause::NoConsumer.at_block(name));
    }
    let axes = inlinable_axes(block, &dst)?;
    for reader in readers(program, dst.buffer) {
        check_producers(program, &path, &reader)?;
    }
    remove_block(program, &path);
    tree::visit_blocks_mut(&mut program.body, &mut |reader| {
        reader.visit_exprs_mut(&mut |e| {
            *e = e.rewrite(&mut |node| inlined(node, dst.buffer, &axes, &value));
        });
    });
    Ok(())
}

/// What the block assigns, if it does so at every point.
pub(super) fn assignment(block: &Block) -> std::result::Result<(Access, Expr), Failure> {
    let Body::Assign { dst, value } = &block.body else {
        return Err(Cause::IsReduction.at_block(&block.name));
    };
    Ok((dst.clone(), value.clone()))
}

/// The iterator of each axis of `dst`; together they are all iterators.
fn inlinable_axes(block: &Block, dst: &Access) -> std::result::Result<Vec<Option<VarId>>, Failure> {
    let axes = plain_indices(&dst.indices);
    let complete = |axes: &Vec<Option<VarId>>| {
        block.iters.iter().all(|i| i.extent == 1 || axes.contains(&Some(i.var)))
    };
    axes.filter(complete).ok_or_else(|| Cause::IndexNotPlain.at_block(&block.name))
}

/// What a load of the inlined buffer becomes.
fn inlined(node: &Expr, buffer: BufId, axes: &[Option<VarId>], value: &Expr) -> Option<Expr> {
    match node {
        Expr::Load(loaded, indices) if *loaded == buffer => Some(value.substitute(&|v| {
            let axis = axes.iter().position(|a| *a == Some(v));
            // An iterator that no index is has extent 1.
            Some(axis.map_or_else(|| Expr::int(0), |axis| indices[axis].clone()))
        })),
        _ => None,
    }
}
