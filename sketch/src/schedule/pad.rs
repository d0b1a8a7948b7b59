//! pad: a spatial iterator runs on to a multiple, over elements that nothing reads.
//!
//! A tile that does not divide its axis then needs no predicate. Loads that would leave their
//! buffer are clamped to its border; buffers that are themselves padded far enough need no clamp.
//!
//! ```text
//! for i in 0..10 { t[i] = x[i] }
//! => pad(t, 0, 4)
//! for i in 0..12 { t[i] = x[min(i, 9)] }      t: f32[12]
//! ```

use ansc_graph::{Expr, VarId};

use super::error::{Cause, Failure, buffer_name};
use super::moves::{check_only_writer, common_prefix, is_internal, plain_indices, writers};
use super::query::{
    block_at, block_at_mut, block_path, blocks_under, loop_at, loop_at_mut, loop_path,
};
use super::split::is_cover;
use super::{LoopRef, Result, Schedule};
use crate::affine::{self, Extents};
use crate::program::{Block, ForKind, IterKind, Program};
use crate::tree::Path;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Rounds the extent of the iterator at `iter` of `block` up to a multiple of `multiple`. It is
    /// spatial and bound to a serial loop of its own; the block alone writes its buffer, which is
    /// neither an input nor a result.
    pub fn pad(&mut self, block: &str, iter: usize, multiple: usize) -> Result<()> {
        self.apply("pad", |program| pad(program, block, iter, multiple))
    }
}

fn pad(program: &mut Program, name: &str, iter: usize, multiple: usize) -> Checked<()> {
    let path = block_path(program, name)?;
    check_only_writer(program, &path)?;
    let block = block_at(program, &path);
    let target =
        block.iters.get(iter).ok_or_else(|| Cause::NoSuchAxis { axis: iter }.at_block(name))?;
    if target.kind == IterKind::Reduce {
        return Err(Cause::IsReduction.at_block(name));
    }
    let (var, extent) = (target.var, target.extent);
    let padded = extent.checked_next_multiple_of(multiple);
    let padded = padded.filter(|&padded| is_cover(padded, extent));
    let padded = padded.ok_or_else(|| Cause::TooLarge.at_block(name))?;
    if padded == extent {
        return Ok(());
    }
    let loop_path = own_loop(program, block, &target.binding, extent)?;
    check_whole_operands(program, &path, var)?;
    grow_buffers(program, &path, var, extent, padded)?;
    block_at_mut(program, &path).iters[iter].extent = padded;
    loop_at_mut(program, &loop_path).extent = padded;
    clamp_loads(program, &path, var);
    Ok(())
}

/// The loop that `binding` is, which drives nothing else.
fn own_loop(program: &Program, block: &Block, binding: &Expr, extent: usize) -> Checked<Path> {
    let not_plain = || Cause::BindingNotPlain.at_block(&block.name);
    let Expr::Var(v) = *binding else { return Err(not_plain()) };
    let path = loop_path(program, LoopRef(v))?;
    let l = loop_at(program, &path);
    let uses = block.iters.iter().filter(|i| i.binding.vars().contains(&v)).count();
    let alone = blocks_under(l).len() == 1 && uses == 1;
    if l.extent != extent || l.kind != ForKind::Serial || !alone {
        return Err(not_plain());
    }
    Ok(path)
}

/// Checks that all elements at places that depend on `var` are there, not only those that are
/// needed now.
fn check_whole_operands(program: &Program, path: &Path, var: VarId) -> Checked<()> {
    let block = block_at(program, path);
    for (buffer, indices) in block.exprs().into_iter().flat_map(|e| e.loads()) {
        if !indices.iter().any(|i| i.vars().contains(&var)) {
            continue;
        }
        for writer in writers(program, buffer) {
            if common_prefix(path, &writer) > 0 {
                let name = block_at(program, &writer).name.clone();
                return Err(Cause::PartlyProduced(name).at_block(&block.name));
            }
        }
    }
    Ok(())
}

/// The axis that `var` indexes becomes `padded` long, if it is not yet.
fn grow_buffers(
    program: &mut Program,
    path: &Path,
    var: VarId,
    extent: usize,
    padded: usize,
) -> Checked<()> {
    let block = block_at(program, path).clone();
    for access in block.body.writes() {
        if !is_internal(program, access.buffer) {
            let buffer = buffer_name(program, access.buffer);
            return Err(Cause::Fixed { buffer }.at_block(&block.name));
        }
        let axes = plain_indices(&access.indices);
        let axis = axes.and_then(|axes| axes.iter().position(|a| *a == Some(var)));
        let axis = axis.ok_or_else(|| Cause::IndexNotPlain.at_block(&block.name))?;
        let length = &mut program.buffers[access.buffer.index()].ty.shape[axis];
        debug_assert!(*length >= extent, "an index stays in its axis");
        *length = padded.max(*length);
    }
    Ok(())
}

fn clamp_loads(program: &mut Program, path: &Path, var: VarId) {
    let extents = Extents::of(program);
    let shapes: Vec<Vec<usize>> = program.buffers.iter().map(|b| b.ty.shape.clone()).collect();
    block_at_mut(program, path).visit_exprs_mut(&mut |e| {
        *e = e.rewrite(&mut |node| {
            let Expr::Load(buffer, indices) = node else { return None };
            let shape = &shapes[buffer.index()];
            let clamped = indices.iter().zip(shape).map(|(index, &n)| {
                if index.vars().contains(&var) { clamp(index, n, &extents) } else { index.clone() }
            });
            Some(Expr::Load(*buffer, clamped.collect()))
        });
    });
}

fn clamp(index: &Expr, extent: usize, extents: &Extents) -> Expr {
    let last = Expr::index(extent.saturating_sub(1));
    affine::simplify(&index.clone().min(last).max(Expr::int(0)), extents)
}
