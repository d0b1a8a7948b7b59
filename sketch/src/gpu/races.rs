//! Checks for races, before anything runs: no two threads write one element at a time.
//!
//! In: what each thread does. When threads execute a block of the program, no two of them may write
//! the same element of shared or global memory, be they of one thread block or of different ones.
//! No thread may read what another thread block writes. Barriers keep the order between statements
//! (see `barriers`).

use ansc_graph::{BufId, Expr};

use super::threads::Threads;
use super::{AXES, GpuError};
use crate::affine::{Digit, Extents, Sum};
use crate::disjoint::determines;
use crate::program::{Access, Block, Program, Scope};

pub(super) fn check(program: &Program, threads: &Threads) -> Result<(), GpuError> {
    let mut extents = Extents::of(program);
    threads.iter().for_each(|axis| extents.set(axis.var, axis.extent));
    let check = Check { program, threads, extents };
    for block in program.blocks() {
        check.writes(block)?;
        check.own_reads(block)?;
    }
    check.across_blocks()
}

struct Check<'a> {
    program: &'a Program,
    threads: &'a Threads,
    extents: Extents,
}

impl Check<'_> {
    fn writes(&self, block: &Block) -> Result<(), GpuError> {
        for access in block.body.writes() {
            let first = match self.program.buffer(access.buffer).scope {
                Scope::Local | Scope::Fragment => continue,
                Scope::Shared => 3,
                _ => 0,
            };
            let indices = self.within_block(access, first);
            for (place, axis) in self.threads.iter().enumerate().skip(first) {
                let alone = is_first(block, axis.var);
                if axis.extent > 1 && !alone && !determines(&indices, axis.var, &self.extents) {
                    return Err(GpuError::SharedWrites {
                        block: block.name.clone(),
                        buffer: self.name(access.buffer),
                        axis: AXES[place],
                    });
                }
            }
        }
        Ok(())
    }

    /// The indices of an access; of one to memory that each thread block has, without what is the
    /// same for all of its threads.
    fn within_block(&self, access: &Access, first: usize) -> Vec<Expr> {
        let grid = |v| self.threads[..first].iter().any(|axis| axis.var == v);
        let stands = |d: &Digit, _: i64| d.depends_on(&grid) && !d.depends_on(&|v| !grid(v));
        let moving = |e| Sum::of(e, &self.extents).partition(stands).1.to_expr();
        access.indices.iter().map(moving).collect()
    }

    /// A block reads of what it writes only the element that it writes.
    fn own_reads(&self, block: &Block) -> Result<(), GpuError> {
        for Access { buffer, indices } in block.body.writes() {
            if self.program.buffer(*buffer).scope.is_private() {
                continue;
            }
            let loads = block.exprs().into_iter().flat_map(|e| e.loads());
            if loads.into_iter().any(|(b, at)| b == *buffer && at != indices.as_slice()) {
                let (block, buffer) = (block.name.clone(), self.name(*buffer));
                return Err(GpuError::ReadsOwnWrites { block, buffer });
            }
        }
        Ok(())
    }

    /// Each thread block reads at its own places what the kernel writes to global memory.
    fn across_blocks(&self) -> Result<(), GpuError> {
        let blocks = self.program.blocks();
        let written: Vec<BufId> = blocks
            .iter()
            .flat_map(|b| b.body.writes())
            .map(|a| a.buffer)
            .filter(|b| matches!(self.program.buffer(*b).scope, Scope::Global | Scope::Output))
            .collect();
        for block in blocks {
            for (buffer, indices) in block.exprs().into_iter().flat_map(|e| e.loads()) {
                let apart = |indices: &[Expr]| {
                    let grid = self.threads[..3].iter().filter(|axis| axis.extent > 1);
                    grid.clone().all(|axis| determines(indices, axis.var, &self.extents))
                };
                if written.contains(&buffer) && !apart(indices) {
                    let (kernel, buffer) = (self.program.name.clone(), self.name(buffer));
                    return Err(GpuError::AcrossBlocks { kernel, buffer });
                }
            }
        }
        Ok(())
    }

    fn name(&self, buffer: BufId) -> String {
        self.program.buffer(buffer).name.clone()
    }
}

/// Whether only the first thread along an axis executes the block.
fn is_first(block: &Block, var: ansc_graph::VarId) -> bool {
    let guard = Expr::binary(ansc_graph::BinOp::Eq, Expr::Var(var), Expr::int(0));
    block.predicate.iter().flat_map(Expr::conjuncts).any(|part| *part == guard)
}
