//! Bound loops become indices of threads.
//!
//! Every loop along an axis runs over the same threads: its variable becomes the index of the
//! thread, and where other loops of the axis are longer, a guard keeps the others out.
//!
//! ```text
//! for b in 0..8 block_x { for t in 0..32 thread_x { s[t] = ..; } for u in 0..16 thread_x { .. s[u] .. } }
//! => grid 8, block 32
//! s[tx] = ..;   where tx < 16: .. s[tx] ..
//! ```
//! If two loops along one axis are nested, a thread runs one iteration: the one that is its own in
//! both. So the blocks below may not depend on the outer one. A block that is under no loop of an
//! axis is executed by all threads if it writes local buffers, and by the first one otherwise.

use ansc_graph::{BinOp, Expr, VarId};

use super::{AXES, Axis, GpuError};
use crate::program::{Block, For, ForKind, Program, Scope, Shared, Stmt, ThreadAxis};
use crate::tree;

/// The threads of a kernel: grid x, y, z, then block x, y, z.
pub(super) type Threads = [Axis; 6];

/// The nest `root` as what each thread does.
pub(super) fn collapse(
    program: &mut Program,
    root: Stmt,
) -> Result<(Threads, Vec<Stmt>), GpuError> {
    let threads = threads(program, &root);
    let mut collapse = Collapse { program, threads, open: vec![] };
    let stmts = collapse.stmts(vec![root])?;
    Ok((threads, stmts))
}

fn threads(program: &mut Program, root: &Stmt) -> Threads {
    let mut extents = [1; 6];
    tree::visit_loops(std::slice::from_ref(root), &mut |l| {
        if let Some(place) = place(l.kind) {
            extents[place] = extents[place].max(l.extent);
        }
    });
    let mut place = 0;
    AXES.map(|axis| {
        let var = program.add_var(axis.to_string());
        place += 1;
        Axis { var, extent: extents[place - 1] }
    })
}

fn place(kind: ForKind) -> Option<usize> {
    let ForKind::Bound(axis) = kind else { return None };
    AXES.iter().position(|&a| a == axis)
}

struct Open {
    place: usize,
    var: VarId,
    extent: usize,
}

struct Collapse<'a> {
    program: &'a Program,
    threads: Threads,
    /// Bound loops around the current statement, outermost first.
    open: Vec<Open>,
}

impl Collapse<'_> {
    fn stmts(&mut self, stmts: Vec<Stmt>) -> Result<Vec<Stmt>, GpuError> {
        let mut all = vec![];
        for stmt in stmts {
            match stmt {
                Stmt::Block(b) => all.push(Stmt::Block(Shared::new(self.block(b.into_inner())?))),
                Stmt::For(l) => all.extend(self.for_loop(l.into_inner())?),
            }
        }
        Ok(all)
    }

    fn for_loop(&mut self, mut l: For) -> Result<Vec<Stmt>, GpuError> {
        if l.kind == ForKind::Parallel {
            return Err(GpuError::Parallel);
        }
        let Some(place) = place(l.kind) else {
            l.body = self.stmts(l.body)?;
            return Ok(vec![Stmt::For(Shared::new(l))]);
        };
        self.open.push(Open { place, var: l.var, extent: l.extent });
        let body = self.stmts(l.body);
        self.open.pop();
        body
    }

    fn block(&self, mut block: Block) -> Result<Block, GpuError> {
        let mut guards: Vec<Expr> = block.predicate.take().into_iter().collect();
        for (place, axis) in self.threads.iter().enumerate().filter(|(_, a)| a.extent > 1) {
            let loops: Vec<&Open> = self.open.iter().filter(|o| o.place == place).collect();
            let index = Expr::Var(axis.var);
            match loops.split_last() {
                None if self.is_done_once(&block, place) => {
                    guards.push(Expr::binary(BinOp::Eq, index, Expr::int(0)));
                }
                None => {}
                Some((_, outer)) if outer.iter().any(|o| super::mentions(&block, o.var)) => {
                    let axis = AXES[place];
                    return Err(GpuError::Diagonal { block: block.name, axis });
                }
                Some((inner, _)) if inner.extent < axis.extent => {
                    guards.push(index.lt(Expr::index(inner.extent)));
                }
                Some(_) => {}
            }
        }
        block.predicate = tree::conjunction(guards);
        let index = |v| {
            let open = self.open.iter().find(|o| o.var == v)?;
            Some(Expr::Var(self.threads[open.place].var))
        };
        super::rebind(&mut block, &index);
        Ok(block)
    }

    /// Whether only one thread along the axis may execute a block that is under no loop of it.
    fn is_done_once(&self, block: &Block, place: usize) -> bool {
        let is_thread = place >= 3;
        block.body.writes().iter().any(|a| match self.program.buffer(a.buffer).scope {
            Scope::Local | Scope::Fragment => false,
            Scope::Shared => is_thread,
            _ => true,
        })
    }
}

/// Local buffers whose elements one thread writes and others would look for in their own copy.
pub(super) fn check_local(program: &Program) -> Result<(), GpuError> {
    let common = tree::common_loops(program);
    let mut found = None;
    tree::visit_nests(&program.body, &mut |loops, block| {
        for access in block.body.writes() {
            if !program.buffer(access.buffer).scope.is_private() {
                continue;
            }
            let outside = loops
                .iter()
                .find(|l| place(l.kind).is_some() && !common[&access.buffer].contains(&l.var));
            if let Some(ForKind::Bound(axis)) = outside.map(|l| l.kind) {
                found.get_or_insert((access.buffer, axis));
            }
        }
    });
    let name = |b| program.buffer(b).name.clone();
    found.map_or(Ok(()), |(b, axis): (_, ThreadAxis)| {
        Err(GpuError::Distributed { buffer: name(b), axis })
    })
}
