//! Moves of a block to another place of the loop tree, and the checks that they need.

use ansc_graph::{BufId, Expr, VarId};

use super::LoopRef;
use super::error::{Cause, Failure, buffer_name};
use super::query::{block_at, block_path, loop_at_mut, loop_path};
use crate::affine::{self, Extents};
use crate::disjoint::Writes;
use crate::program::{Block, For, ForKind, Program, Scope, Shared, Stmt};
use crate::region::Span;
use crate::tree::{self, Path};

type Checked<T> = Result<T, Failure>;

/// Names and paths of the blocks for which `f` holds.
pub(super) fn blocks_where(program: &Program, f: impl Fn(&Block) -> bool) -> Vec<Path> {
    let names = program.blocks().into_iter().filter(|b| f(b)).map(|b| b.name.clone());
    names.filter_map(|name| block_path(program, &name).ok()).collect()
}

pub(super) fn writers(program: &Program, buffer: BufId) -> Vec<Path> {
    blocks_where(program, |b| b.body.writes().iter().any(|a| a.buffer == buffer))
}

/// Blocks other than its writers that read `buffer`.
pub(super) fn readers(program: &Program, buffer: BufId) -> Vec<Path> {
    blocks_where(program, |b| {
        b.reads().contains(&buffer) && b.body.writes().iter().all(|a| a.buffer != buffer)
    })
}

/// The block must be the only one that writes its buffers.
pub(super) fn check_only_writer(program: &Program, path: &Path) -> Checked<()> {
    let block = block_at(program, path);
    for access in block.body.writes() {
        if writers(program, access.buffer).len() != 1 {
            let buffer = buffer_name(program, access.buffer);
            return Err(Cause::SeveralWriters { buffer }.at_block(&block.name));
        }
    }
    Ok(())
}

/// Blocks that share a loop with `path` and exchange data with it must share that loop with the new
/// place too: what is there after one iteration is what that iteration needs.
pub(super) fn check_neighbours(program: &Program, path: &Path, target: &Path) -> Checked<()> {
    check_producers(program, path, target)?;
    let block = block_at(program, path);
    let written: Vec<BufId> = block.body.writes().iter().map(|a| a.buffer).collect();
    let consumes = |b: &Block| b.reads().iter().any(|r| written.contains(r));
    check_shared_loops(program, path, target, consumes)
}

/// The same for the blocks that write what the block at `path` reads or writes.
pub(super) fn check_producers(program: &Program, path: &Path, target: &Path) -> Checked<()> {
    let buffers = block_at(program, path).buffers();
    let produces = |b: &Block| b.body.writes().iter().any(|a| buffers.contains(&a.buffer));
    check_shared_loops(program, path, target, produces)
}

fn check_shared_loops(
    program: &Program,
    path: &Path,
    target: &Path,
    exchanges: impl Fn(&Block) -> bool,
) -> Checked<()> {
    let block = block_at(program, path);
    for neighbour in blocks_where(program, |b| b.name != block.name && exchanges(b)) {
        let common = common_prefix(path, &neighbour);
        if !target.starts_with(&path[..common]) {
            let name = block_at(program, &neighbour).name.clone();
            return Err(Cause::LeavesNeighbour(name).at_block(&block.name));
        }
    }
    Ok(())
}

/// How many loops two blocks share.
pub(super) fn common_prefix(a: &Path, b: &Path) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count().min(a.len() - 1)
}

/// Takes a block out, with the loops that contain nothing else.
pub(super) fn remove_block(program: &mut Program, path: &Path) -> Block {
    let block = block_at(program, path).clone();
    let mut path = path.clone();
    tree::splice(&mut program.body, &path, vec![]);
    while let Some(_) = path.pop()
        && !path.is_empty()
        && matches!(tree::stmt(&program.body, &path), Some(Stmt::For(l)) if l.body.is_empty())
    {
        tree::splice(&mut program.body, &path, vec![]);
    }
    block
}

/// `block` under fresh serial loops, one for each iterator, that cover `spans`. Conditions over its
/// iterators are its own, and stay; those over loops tell where these overran.
pub(super) fn renest(program: &mut Program, mut block: Block, spans: &[Span]) -> Stmt {
    let mut loops = Vec::with_capacity(spans.len());
    let mut extents = Extents::of(program);
    let mut guards = vec![];
    let own = own_conditions(&block);
    for (iter, span) in block.iters.iter_mut().zip(spans) {
        let name = program.vars[iter.var.index()].clone();
        let var = program.add_var(name.strip_prefix('v').unwrap_or(&name));
        let extent = usize::try_from(span.extent).unwrap_or(0);
        extents.set(var, extent);
        iter.binding = affine::simplify(&(span.min.to_expr() + Expr::Var(var)), &extents);
        guards.push(Expr::int(0).le(iter.binding.clone()));
        guards.push(iter.binding.clone().lt(Expr::index(iter.extent)));
        loops.push(For { var, extent, kind: ForKind::Serial, body: vec![] });
    }
    let needed = guards.into_iter().filter(|g| affine::decided(g, &extents) != Some(true));
    block.predicate = tree::conjunction(needed.chain(own));
    let mut nest = tree::nest(loops, vec![Stmt::Block(Shared::new(block))]);
    nest.pop().expect("one statement")
}

/// The parts of the block's predicate that are over its iterators.
pub(super) fn own_conditions(block: &Block) -> Vec<Expr> {
    let is_own = |v: &VarId| block.iters.iter().any(|iter| iter.var == *v);
    let parts = block.predicate.iter().flat_map(Expr::conjuncts);
    parts.filter(|part| part.vars().iter().all(is_own)).cloned().collect()
}

/// Puts `stmt` into the body of `l` at `index`.
pub(super) fn insert_under(
    program: &mut Program,
    l: LoopRef,
    index: usize,
    stmt: Stmt,
) -> Checked<()> {
    let path = loop_path(program, l)?;
    loop_at_mut(program, &path).body.insert(index, stmt);
    Ok(())
}

/// Whether a statement contains one of the blocks.
pub(super) fn contains(stmt: &Stmt, names: &[String]) -> bool {
    let mut found = false;
    stmt.visit_blocks(&mut |b| found |= names.contains(&b.name));
    found
}

pub(super) fn names(program: &Program, paths: &[Path]) -> Vec<String> {
    paths.iter().map(|p| block_at(program, p).name.clone()).collect()
}

/// Every producer of `block` comes before it, and it before every consumer.
pub(super) fn check_order(program: &Program, name: &str) -> Checked<()> {
    let path = block_path(program, name)?;
    let block = block_at(program, &path);
    for &buffer in &block.reads() {
        for writer in writers(program, buffer) {
            if writer > path {
                let other = block_at(program, &writer).name.clone();
                return Err(Cause::BeforeProducer(other).at_block(name));
            }
        }
    }
    for access in block.body.writes() {
        for reader in readers(program, access.buffer) {
            if reader < path {
                let other = block_at(program, &reader).name.clone();
                return Err(Cause::AfterConsumer(other).at_block(name));
            }
        }
    }
    Ok(())
}

/// Loops that already run in parallel must still be allowed to.
pub(super) fn check_parallel(program: &Program) -> Checked<()> {
    parallel_in(program, program.body.iter())
}

/// The same, given the program from which a block moved: in statements of the root that are as they
/// were, nothing can have changed.
pub(super) fn check_parallel_after_move(program: &Program, before: &[Stmt]) -> Checked<()> {
    let stayed = |stmt: &&Stmt| match stmt {
        Stmt::For(l) => before.iter().any(|old| matches!(old, Stmt::For(old) if old.is(l))),
        Stmt::Block(_) => false,
    };
    parallel_in(program, program.body.iter().filter(|stmt| !stayed(stmt)))
}

fn parallel_in<'p>(program: &Program, stmts: impl Iterator<Item = &'p Stmt>) -> Checked<()> {
    let mut found = None;
    let writes = Writes::of(program);
    let mut check = |l: &For| {
        if found.is_none()
            && matches!(l.kind, ForKind::Parallel | ForKind::Vectorized | ForKind::Bound(_))
            && let Some((block, buffer)) = writes.shared(l, l.kind)
        {
            let buffer = buffer_name(program, buffer);
            found = Some(Cause::SharedWrites { block, buffer }.at_loop(LoopRef(l.var)));
        }
    };
    stmts.for_each(|stmt| tree::visit_loops(std::slice::from_ref(stmt), &mut check));
    found.map_or(Ok(()), Err)
}

/// The loops strictly inside `l` on the way to the block at `path`, which is under `l`.
pub(super) fn loops_below(program: &Program, path: &Path, l: LoopRef) -> Vec<VarId> {
    let loops = tree::loops_above(&program.body, path);
    loops.iter().map(|f| f.var).skip_while(|v| *v != l.0).skip(1).collect()
}

pub(super) fn is_internal(program: &Program, buffer: BufId) -> bool {
    !matches!(program.buffer(buffer).scope, Scope::Input | Scope::Output)
}

/// The iterator that each index of an access is, where all are plain and different; `None` stands
/// for an index that is constant 0.
pub(super) fn plain_indices(indices: &[Expr]) -> Option<Vec<Option<VarId>>> {
    let mut seen = std::collections::BTreeSet::new();
    indices
        .iter()
        .map(|index| match index {
            Expr::Var(v) => seen.insert(*v).then_some(Some(*v)),
            Expr::Const(s) if s.as_i64() == 0 => Some(None),
            _ => None,
        })
        .collect()
}
