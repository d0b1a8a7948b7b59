//! Where the threads of a block wait for one another.
//!
//! A statement that reads what another thread may have written since the last barrier, or writes
//! what another one may have read or written, comes after a barrier: before the outermost loop
//! around it that does not contain both. A loop is passed twice, since its end comes before its
//! beginning. Accesses of one thread to elements of its own need no barrier.
//!
//! ```text
//! for k { s[tx] = a[k, tx];  c += s[0] }   =>   for k { barrier; s[tx] = a[k, tx];  barrier; c += s[0] }
//! ```

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BufId, Expr, VarId};

use super::threads::Threads;
use super::{Loop, Step};
use crate::affine::Extents;
use crate::disjoint::determines;
use crate::program::{Block, For, ForKind, Program, Scope, Shared, Stmt};

/// The steps of each thread, with barriers where they are needed.
pub(super) fn place(program: &Program, threads: &Threads, stmts: Vec<Stmt>) -> Vec<Step> {
    if threads[3..].iter().all(|axis| axis.extent == 1) {
        return stmts.into_iter().map(Step::Run).collect();
    }
    let mut extents = Extents::of(program);
    threads.iter().for_each(|axis| extents.set(axis.var, axis.extent));
    let placer = Placer { program, threads, extents };
    placer.stmts(stmts, &mut Pending::default())
}

/// The places of a thread that an access is at: axes whose index is over threads alone and tells
/// them all apart. `None` if there are no such axes.
type Owner = Option<Vec<(usize, Expr)>>;

#[derive(Clone, PartialEq)]
struct Touch {
    owner: Owner,
    /// The block that writes, if its element tells the thread and the iterations of all loops.
    writer: Option<String>,
    written: bool,
}

/// Accesses to memory that threads share, since the last barrier.
#[derive(Clone, Default)]
struct Pending(BTreeMap<BufId, Vec<Touch>>);

impl Pending {
    fn add(&mut self, buffer: BufId, touch: Touch) {
        let touches = self.0.entry(buffer).or_default();
        if !touches.contains(&touch) {
            touches.push(touch);
        }
    }

    fn merge(&mut self, other: &Pending) {
        for (&buffer, touches) in &other.0 {
            touches.iter().for_each(|t| self.add(buffer, t.clone()));
        }
    }

    fn conflicts(&self, other: &Pending) -> bool {
        other.0.iter().any(|(buffer, later)| {
            let earlier = self.0.get(buffer).into_iter().flatten();
            earlier.clone().any(|a| later.iter().any(|b| a.conflicts(b)))
        })
    }
}

impl Touch {
    fn conflicts(&self, other: &Touch) -> bool {
        let same_owner = self.owner.is_some() && self.owner == other.owner;
        let same_thread = same_owner || (self.writer.is_some() && self.writer == other.writer);
        (self.written || other.written) && !same_thread
    }
}

struct Placer<'a> {
    program: &'a Program,
    threads: &'a Threads,
    extents: Extents,
}

impl Placer<'_> {
    fn stmts(&self, stmts: Vec<Stmt>, pending: &mut Pending) -> Vec<Step> {
        let mut steps = vec![];
        for stmt in stmts {
            let touches = self.touches(&stmt);
            if pending.conflicts(&touches) {
                steps.push(Step::Barrier);
                *pending = Pending::default();
            }
            match stmt {
                Stmt::For(l) if l.kind != ForKind::Vectorized => {
                    steps.push(self.for_loop(l.into_inner(), pending));
                }
                leaf => {
                    pending.merge(&touches);
                    steps.push(Step::Run(leaf));
                }
            }
        }
        steps
    }

    fn for_loop(&self, l: For, pending: &mut Pending) -> Step {
        let mut once = pending.clone();
        self.stmts(l.body.clone(), &mut once);
        pending.merge(&once);
        let body = self.stmts(l.body.clone(), pending);
        if body.iter().all(|s| matches!(s, Step::Run(_))) {
            return Step::Run(Stmt::For(Shared::new(l)));
        }
        Step::Loop(Box::new(Loop { var: l.var, extent: l.extent, kind: l.kind, body }))
    }

    /// Everything that the statement does to memory that threads share.
    fn touches(&self, stmt: &Stmt) -> Pending {
        let mut touches = Pending::default();
        stmt.visit_blocks(&mut |block| self.collect(block, &mut touches));
        touches
    }

    fn collect(&self, block: &Block, touches: &mut Pending) {
        let loads = block.exprs().into_iter().flat_map(|e| e.loads());
        let reads = loads.map(|(buffer, indices)| (buffer, indices, false));
        let writes = block.body.writes().into_iter().map(|a| (a.buffer, &a.indices[..], true));
        for (buffer, indices, written) in reads.chain(writes) {
            let scope = self.program.buffer(buffer).scope;
            if !scope.is_private() && scope != Scope::Input {
                let writer = (written && self.is_injective(indices)).then(|| block.name.clone());
                touches.add(buffer, Touch { owner: self.owner(indices), writer, written });
            }
        }
    }

    /// Whether the element tells the values of all variables in its indices, and the thread.
    fn is_injective(&self, indices: &[Expr]) -> bool {
        let mut vars: BTreeSet<VarId> = indices.iter().flat_map(Expr::vars).collect();
        vars.extend(self.threads[3..].iter().filter(|a| a.extent > 1).map(|a| a.var));
        vars.into_iter().all(|v| determines(indices, v, &self.extents))
    }

    fn owner(&self, indices: &[Expr]) -> Owner {
        let threads = || self.threads[3..].iter().filter(|axis| axis.extent > 1);
        let of_threads = |e: &Expr| {
            let vars = e.vars();
            !vars.is_empty() && vars.iter().all(|v| threads().any(|axis| axis.var == *v))
        };
        let own: Vec<(usize, Expr)> =
            indices.iter().cloned().enumerate().filter(|(_, e)| of_threads(e)).collect();
        let exprs: Vec<Expr> = own.iter().map(|(_, e)| e.clone()).collect();
        threads().all(|axis| determines(&exprs, axis.var, &self.extents)).then_some(own)
    }
}
