//! rfactor: a reduction in two steps, so that one of its loops becomes spatial.
//!
//! ```text
//! for ko in 0..4 { for ki in 0..8 { block s: c sum= a[ko * 8 + ki] init } }
//! => rfactor(s, ko, 0)
//! for ko in 0..4 { for ki in 0..8 { block s_rf: c_rf[ko] sum= a[ko * 8 + ki] init } }
//! for v in 0..4 { block s: c sum= c_rf[v] init }
//! ```

use std::collections::BTreeMap;

use ansc_graph::{Combiner, Expr, TensorType, VarId};

use super::error::{Cause, Failure, buffer_name};
use super::moves::{blocks_where, check_only_writer, plain_indices, renest};
use super::query::{block_at, block_at_mut, block_path, bound_to, loop_at, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::program::{Access, Block, Body, ForKind, Iter, IterKind, Program, Scope};
use crate::region::Span;
use crate::tree::{self, Path};

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Reduces separately for each iteration of `l`, into a buffer with an axis more at `axis`;
    /// what is left to reduce is done by the block of the given name in a nest after. Returns the
    /// name of the block that stays under `l`.
    pub fn rfactor(&mut self, block: &str, l: LoopRef, axis: usize) -> Result<String> {
        self.apply("rfactor", |program| rfactor(program, block, l, axis))
    }
}

fn rfactor(program: &mut Program, name: &str, l: LoopRef, axis: usize) -> Checked<String> {
    let path = block_path(program, name)?;
    check(program, &path, l, axis)?;
    let block = block_at(program, &path).clone();
    let Body::Reduce { combiner, dst, .. } = &block.body else {
        return Err(Cause::NotInitialising.at_block(name));
    };
    let (combiner, dst) = (*combiner, dst.clone());
    let partial = partial_buffer(program, &dst, l, axis)?;
    let last = final_block(program, &block, &dst, combiner, partial, (axis, extent(program, l)?));
    let inner = partial_block(program, &path, l, partial, axis)?;
    let inner_name = inner.name.clone();
    *block_at_mut(program, &path) = inner;
    let spans: Vec<Span> = last.iters.iter().map(|i| Span::whole(i.extent)).collect();
    let nest = renest(program, last, &spans);
    program.body.insert(path[0] + 1, nest);
    Ok(inner_name)
}

fn extent(program: &Program, l: LoopRef) -> Checked<usize> {
    Ok(loop_at(program, &loop_path(program, l)?).extent)
}

fn check(program: &Program, path: &Path, l: LoopRef, axis: usize) -> Checked<()> {
    let block = block_at(program, path);
    let target = loop_path(program, l)?;
    if !path.starts_with(&target) {
        return Err(Cause::NotUnder.at_loop(l));
    }
    match loop_at(program, &target).kind {
        ForKind::Serial => {}
        kind => return Err(Cause::Kind(kind).at_loop(l)),
    }
    let dst = match &block.body {
        Body::Reduce { dst, init: true, .. } => dst,
        Body::ArgReduce { .. } => return Err(Cause::ArgReduction.at_block(&block.name)),
        _ => return Err(Cause::NotInitialising.at_block(&block.name)),
    };
    // A loop of one iteration, of a tile of length one, is bound to nothing.
    let is_reduced =
        bound_to(block, IterKind::Reduce).contains(&l.0) || loop_at(program, &target).extent == 1;
    if !is_reduced || bound_to(block, IterKind::Spatial).contains(&l.0) {
        return Err(Cause::NotAReductionLoop.at_loop(l));
    }
    if plain_indices(&dst.indices).is_none() {
        return Err(Cause::IndexNotPlain.at_block(&block.name));
    }
    if axis > dst.indices.len() {
        return Err(Cause::NoSuchAxis { axis }.at_block(&block.name));
    }
    check_only_writer(program, path)?;
    let reads = |b: &Block| b.reads().contains(&dst.buffer);
    match blocks_where(program, reads).into_iter().find(|other| other[0] == path[0]) {
        None => Ok(()),
        Some(_) => {
            let buffer = buffer_name(program, dst.buffer);
            Err(Cause::OtherReaders { buffer }.at_block(&block.name))
        }
    }
}

fn partial_buffer(
    program: &mut Program,
    dst: &Access,
    l: LoopRef,
    axis: usize,
) -> Checked<ansc_graph::BufId> {
    let whole = program.buffer(dst.buffer);
    let mut shape = whole.ty.shape.clone();
    shape.insert(axis, extent(program, l)?);
    let ty = TensorType::new(whole.ty.dtype, shape);
    let name = program.fresh_buffer_name(&format!("{}_rf", whole.name));
    Ok(program.add_buffer(name, ty, Scope::Global))
}

/// Combines the partial results; `new` is the axis that they have more, and its extent.
fn final_block(
    program: &mut Program,
    block: &Block,
    dst: &Access,
    combiner: Combiner,
    partial: ansc_graph::BufId,
    new: (usize, usize),
) -> Block {
    let mut renamed = BTreeMap::new();
    let mut iters = vec![];
    for iter in block.iters.iter().filter(|i| i.kind == IterKind::Spatial) {
        let var = tree::twin(program, iter.var);
        renamed.insert(iter.var, Expr::Var(var));
        iters.push(Iter { var, binding: Expr::int(0), ..iter.clone() });
    }
    let var = program.add_var("vrf");
    iters.push(Iter { var, extent: new.1, kind: IterKind::Reduce, binding: Expr::int(0) });
    let rename = |e: &Expr| e.substitute(&|v| renamed.get(&v).cloned());
    let indices: Vec<Expr> = dst.indices.iter().map(rename).collect();
    let mut source = indices.clone();
    source.insert(new.0, Expr::Var(var));
    let dst = Access { buffer: dst.buffer, indices };
    let value = Expr::Load(partial, source);
    let body = Body::Reduce { combiner, dst, value, init: true };
    Block { name: block.name.clone(), iters, predicate: None, body }
}

/// The block under the loop: spatial along it, with an iterator for each other loop of the
/// reduction.
fn partial_block(
    program: &mut Program,
    path: &Path,
    l: LoopRef,
    partial: ansc_graph::BufId,
    axis: usize,
) -> Checked<Block> {
    let mut block = block_at(program, path).clone();
    let loops = reduction_iters(program, path, l);
    let by_loop: BTreeMap<VarId, Expr> =
        loops.iter().map(|(v, iter)| (*v, Expr::Var(iter.var))).collect();
    let over_iters = |e: &Expr| e.substitute(&|v| by_loop.get(&v).cloned());
    let (spatial, reduced): (Vec<Iter>, Vec<Iter>) =
        block.iters.into_iter().partition(|i| i.kind == IterKind::Spatial);
    if reduced.iter().any(|i| i.binding.vars().iter().any(|v| !by_loop.contains_key(v))) {
        return Err(Cause::BindingNotPlain.at_block(&block.name));
    }
    let terms: BTreeMap<VarId, Expr> =
        reduced.iter().map(|i| (i.var, over_iters(&i.binding))).collect();
    let substitute = |e: &Expr| over_iters(&e.substitute(&|v| terms.get(&v).cloned()));

    let parts: Vec<Expr> = block.predicate.iter().flat_map(Expr::conjuncts).cloned().collect();
    let of_terms =
        |e: &Expr| e.vars().iter().any(|v| by_loop.contains_key(v) || terms.contains_key(v));
    let (guards, kept): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(of_terms);
    block.predicate = tree::conjunction(kept);
    let Body::Reduce { combiner, dst, value, init } = block.body else {
        unreachable!("checked to be a reduction")
    };
    let dtype = program.buffer(partial).ty.dtype;
    let identity = combiner.identity(dtype).expect("only arg-combiners have none");
    let value = match tree::conjunction(guards) {
        None => substitute(&value),
        // A term that does not exist adds nothing.
        Some(guard) => Expr::select(substitute(&guard), substitute(&value), Expr::Const(identity)),
    };
    let mut indices = dst.indices;
    indices.insert(axis, by_loop[&l.0].clone());
    let dst = Access { buffer: partial, indices };
    block.body = Body::Reduce { combiner, dst, value, init };
    block.iters = spatial.into_iter().chain(loops.into_iter().map(|(_, iter)| iter)).collect();
    block.name = program.fresh_block_name(&format!("{}_rf", block.name));
    Ok(block)
}

/// A new iterator for each loop that the reduction runs over; that of `l` is spatial.
fn reduction_iters(program: &mut Program, path: &Path, l: LoopRef) -> Vec<(VarId, Iter)> {
    let reduced = bound_to(block_at(program, path), IterKind::Reduce);
    let loops: Vec<(VarId, usize)> = tree::loops_above(&program.body, path)
        .iter()
        .filter(|f| reduced.contains(&f.var) || f.var == l.0)
        .map(|f| (f.var, f.extent))
        .collect();
    loops
        .into_iter()
        .map(|(v, extent)| {
            let var = program.add_var(format!("v{}", program.vars[v.index()]));
            let kind = if v == l.0 { IterKind::Spatial } else { IterKind::Reduce };
            (v, Iter { var, extent, kind, binding: Expr::Var(v) })
        })
        .collect()
}
