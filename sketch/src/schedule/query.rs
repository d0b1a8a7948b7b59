//! Questions about the program of a schedule.

use ansc_graph::{BufId, Expr, VarId};

use super::error::{Cause, Failure};
use super::{LoopRef, Result, Schedule};
use crate::affine::{self, Extents};
use crate::program::{Block, For, IterKind, Program, Stmt};
use crate::tree::{self, Path};

impl Schedule {
    /// Names of all blocks, in program order.
    pub fn blocks(&self) -> Vec<String> {
        self.program.blocks().iter().map(|b| b.name.clone()).collect()
    }

    /// The block of that name.
    pub fn block(&self, name: &str) -> Result<&Block> {
        let path = self.query(|p| block_path(p, name))?;
        Ok(block_at(&self.program, &path))
    }

    /// The loops around a block, outermost first.
    pub fn loops(&self, block: &str) -> Result<Vec<LoopRef>> {
        let path = self.query(|p| block_path(p, block))?;
        let loops = tree::loops_above(&self.program.body, &path);
        Ok(loops.iter().map(|l| LoopRef(l.var)).collect())
    }

    /// Iterations of a loop.
    pub fn extent(&self, l: LoopRef) -> Result<usize> {
        Ok(self.for_loop(l)?.extent)
    }

    /// A loop of the program.
    pub fn for_loop(&self, l: LoopRef) -> Result<&For> {
        let path = self.query(|p| loop_path(p, l))?;
        Ok(loop_at(&self.program, &path))
    }

    /// Whether an iterator of `kind` of a block under the loop depends on it.
    pub fn loop_serves(&self, l: LoopRef, kind: IterKind) -> Result<bool> {
        Ok(serves(self.for_loop(l)?, l.0, kind))
    }

    /// The loops around `block` that its reduction depends on, outermost first.
    pub fn reduction_loops(&self, block: &str) -> Result<Vec<LoopRef>> {
        let reduced = bound_to(self.block(block)?, IterKind::Reduce);
        Ok(self.loops(block)?.into_iter().filter(|l| reduced.contains(&l.0)).collect())
    }

    /// The loops around `block` that its spatial iterators depend on, outermost first.
    pub fn spatial_loops(&self, block: &str) -> Result<Vec<LoopRef>> {
        let spatial = bound_to(self.block(block)?, IterKind::Spatial);
        Ok(self.loops(block)?.into_iter().filter(|l| spatial.contains(&l.0)).collect())
    }

    /// Blocks that write what `block` reads, in program order.
    pub fn producers(&self, block: &str) -> Result<Vec<String>> {
        let reads = self.block(block)?.reads();
        let writes_one = |b: &&&Block| {
            b.name != block && b.body.writes().iter().any(|a| reads.contains(&a.buffer))
        };
        Ok(self.program.blocks().iter().filter(writes_one).map(|b| b.name.clone()).collect())
    }

    /// Blocks that read what `block` writes, in program order.
    pub fn consumers(&self, block: &str) -> Result<Vec<String>> {
        let written: Vec<BufId> =
            self.block(block)?.body.writes().iter().map(|a| a.buffer).collect();
        let reads_one =
            |b: &&&Block| b.name != block && b.reads().iter().any(|r| written.contains(r));
        Ok(self.program.blocks().iter().filter(reads_one).map(|b| b.name.clone()).collect())
    }

    /// The buffer of that name.
    pub fn buffer(&self, name: &str) -> Result<BufId> {
        self.query(|p| buffer_named(p, name))
    }
}

pub(super) fn buffer_named(program: &Program, name: &str) -> std::result::Result<BufId, Failure> {
    let index = program.buffers.iter().position(|b| b.name == name);
    index.map(BufId::new).ok_or_else(|| Cause::NoSuchBuffer(name.to_owned()).into())
}

pub(super) fn block_path(program: &Program, name: &str) -> std::result::Result<Path, Failure> {
    tree::find_only(&program.body, &mut |s| matches!(s, Stmt::Block(b) if b.name == name))
        .ok_or_else(|| Cause::NoSuchBlock(name.to_owned()).into())
}

pub(super) fn loop_path(program: &Program, l: LoopRef) -> std::result::Result<Path, Failure> {
    tree::find_only(&program.body, &mut |s| matches!(s, Stmt::For(f) if f.var == l.0))
        .ok_or_else(|| Cause::NoSuchLoop.into())
}

/// Loops that may be nested. No schedule needs as many; whoever walks through a program does so
/// level by level.
const MOST_NESTED: usize = 128;

/// Refuses `added` more loops in the nest that `path` leads into, if that made it too deep.
pub(super) fn check_depth(
    program: &Program,
    path: &[usize],
    added: usize,
) -> std::result::Result<(), Failure> {
    let nest = path.first().and_then(|&root| program.body.get(root));
    let depth = nest.map_or(0, tree::depth);
    match depth.checked_add(added) {
        Some(depth) if depth <= MOST_NESTED => Ok(()),
        _ => Err(Cause::TooDeep(MOST_NESTED).into()),
    }
}

pub(super) fn block_at<'a>(program: &'a Program, path: &[usize]) -> &'a Block {
    match tree::stmt(&program.body, path) {
        Some(Stmt::Block(block)) => block,
        _ => unreachable!("the path of a block"),
    }
}

pub(super) fn block_at_mut<'a>(program: &'a mut Program, path: &[usize]) -> &'a mut Block {
    match tree::stmt_mut(&mut program.body, path) {
        Stmt::Block(block) => block,
        Stmt::For(_) => unreachable!("the path of a block"),
    }
}

pub(super) fn loop_at<'a>(program: &'a Program, path: &[usize]) -> &'a For {
    match tree::stmt(&program.body, path) {
        Some(Stmt::For(l)) => l,
        _ => unreachable!("the path of a loop"),
    }
}

pub(super) fn loop_at_mut<'a>(program: &'a mut Program, path: &[usize]) -> &'a mut For {
    match tree::stmt_mut(&mut program.body, path) {
        Stmt::For(l) => l,
        Stmt::Block(_) => unreachable!("the path of a loop"),
    }
}

/// The loop variables in the bindings of the block's iterators of `kind`.
pub(super) fn bound_to(block: &Block, kind: IterKind) -> std::collections::BTreeSet<VarId> {
    block.iters.iter().filter(|i| i.kind == kind).flat_map(|i| i.binding.vars()).collect()
}

/// Whether a block under `l` has an iterator of `kind` that depends on `var`.
pub(super) fn serves(l: &For, var: VarId, kind: IterKind) -> bool {
    blocks_under(l).iter().any(|b| bound_to(b, kind).contains(&var))
}

pub(super) fn blocks_under(l: &For) -> Vec<&Block> {
    let mut blocks = vec![];
    l.body.iter().for_each(|s| s.visit_blocks(&mut |b| blocks.push(b)));
    blocks
}

/// Simplifies the bindings and predicates below the loop at `path` that depend on `changed`; the
/// others were simplified before.
pub(super) fn simplify_under(program: &mut Program, path: &[usize], changed: &[VarId]) {
    let extents = Extents::of(program);
    let is_new = |e: &Expr| {
        e.any(&mut |node| {
            matches!(node, Expr::Var(v) if changed.contains(v) || extents.get(*v) == Some(1))
        })
    };
    let body = &mut loop_at_mut(program, path).body;
    tree::visit_blocks_mut(body, &mut |block| {
        for iter in block.iters.iter_mut().filter(|i| is_new(&i.binding)) {
            iter.binding = affine::simplify(&iter.binding, &extents);
        }
        if block.predicate.as_ref().is_some_and(is_new) {
            let predicate = block.predicate.take().map(|p| affine::simplify(&p, &extents));
            block.predicate = predicate.filter(|p| *p != Expr::bool(true));
        }
    });
}
