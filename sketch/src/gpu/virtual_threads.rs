//! Virtual threads: what one thread does for several, interleaved.
//!
//! The loop over virtual threads moves inwards, to the single blocks, where it is written out;
//! local buffers get an element for each virtual thread. What does not depend on it, such as a copy
//! to shared memory, is done once.
//!
//! ```text
//! for v in 0..2 virtual { for k { s[k] = a[k];  t[0] += s[k] * b[v] }  c[v] = t[0] }
//! =>
//! for k { s[k] = a[k];  for v in 0..2 unrolled { t[v, 0] += s[k] * b[v] } }
//! for v in 0..2 unrolled { c[v] = t[v, 0] }
//! ```

use std::collections::BTreeSet;

use ansc_graph::{BufId, Expr, VarId};

use super::GpuError;
use crate::program::{Block, For, ForKind, Program, Scope, Shared, Stmt, ThreadAxis};
use crate::tree;

const VIRTUAL: ForKind = ForKind::Bound(ThreadAxis::Virtual);

/// Removes all loops over virtual threads.
pub(super) fn sink(program: &mut Program) -> Result<(), GpuError> {
    while let Some(path) = tree::find(&program.body, &mut is_virtual) {
        let private = private_buffers(program, &path);
        let (siblings, at) = tree::siblings_mut(&mut program.body, &path);
        let Stmt::For(l) = siblings.remove(at) else { unreachable!("found as a loop") };
        let For { var, extent, mut body, .. } = l.into_inner();
        tree::visit_blocks_mut(&mut body, &mut |b| super::expand(b, &private, &Expr::Var(var)));
        let sunk = Sink { var, extent }.stmts(program, body)?;
        let (siblings, at) = tree::siblings_mut(&mut program.body, &path);
        siblings.splice(at..at, sunk);
        for buffer in private {
            program.buffers[buffer.index()].ty.shape.insert(0, extent);
        }
    }
    Ok(())
}

fn is_virtual(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::For(l) if l.kind == VIRTUAL)
}

/// Local buffers that are used under the loop only.
fn private_buffers(program: &Program, path: &[usize]) -> BTreeSet<BufId> {
    let Some(Stmt::For(l)) = tree::stmt(&program.body, path) else {
        unreachable!("the path of a loop")
    };
    let is_local = |b: &BufId| program.buffer(*b).scope == Scope::Local;
    tree::used_only_under(program, l.var).into_iter().filter(is_local).collect()
}

struct Sink {
    var: VarId,
    extent: usize,
}

impl Sink {
    fn stmts(&self, program: &mut Program, stmts: Vec<Stmt>) -> Result<Vec<Stmt>, GpuError> {
        stmts.into_iter().map(|s| self.stmt(program, s)).collect()
    }

    fn stmt(&self, program: &mut Program, stmt: Stmt) -> Result<Stmt, GpuError> {
        match stmt {
            Stmt::For(mut l) if l.kind != ForKind::Vectorized => {
                l.body = self.stmts(program, std::mem::take(&mut l.body))?;
                Ok(Stmt::For(l))
            }
            leaf => self.leaf(program, leaf),
        }
    }

    fn leaf(&self, program: &mut Program, leaf: Stmt) -> Result<Stmt, GpuError> {
        let mut depends = false;
        let mut shares = None;
        leaf.visit_blocks(&mut |b| {
            if super::mentions(b, self.var) {
                depends = true;
                let shared = |b: BufId| program.buffer(b).scope == Scope::Shared;
                if b.body.writes().iter().any(|a| shared(a.buffer)) {
                    shares = Some(b.name.clone());
                }
            }
        });
        match shares {
            Some(block) => Err(GpuError::VirtualShared { block }),
            None if depends => Ok(self.written_out(program, leaf)),
            None => Ok(leaf),
        }
    }

    /// Under a loop over virtual threads of its own.
    fn written_out(&self, program: &mut Program, leaf: Stmt) -> Stmt {
        let var = tree::twin(program, self.var);
        let mut body = vec![leaf];
        let renamed = |v| (v == self.var).then_some(Expr::Var(var));
        tree::visit_blocks_mut(&mut body, &mut |b: &mut Block| super::rebind(b, &renamed));
        Stmt::For(Shared::new(For { var, extent: self.extent, kind: ForKind::Unrolled, body }))
    }
}
