//! Operands that are read after a sum are fetched before it.
//!
//! A tile is summed up over thousands of cycles. Then its rows meet those of another operand, such
//! as a residual. These lie apart and come from far away, and the processor by itself looks for
//! them too late.
//!
//! In: a loop and the statements behind it. Out: in front of the loop, prefetches of the large
//! inputs that these statements read. Prefetches change nothing but time.
//!
//! ```text
//! for r { tile[0..6, 0..16] += .. }  y[i, 0..16] = tile[i, 0..16] + x[i, 0..16], i in 0..6
//! =>
//! prefetch x[0], .., x[5];  for r { .. }  ..
//! ```

use std::collections::BTreeSet;

use ansc_graph::{BufId, Expr, VarId};
use ansc_sketch::program::{Access, ForKind};
use ansc_sketch::{Block, Scope, Stmt};

use crate::affine::{Affine, Term, affine};
use crate::emit::ahead::{LEAST_BYTES, LINE, part};
use crate::emit::function::{Emitter, Result};
use crate::ir::{Fetch, Near};

/// More would keep what is needed first from coming.
const MOST_LINES: usize = 48;

/// Whether [`Lines`] are those of large inputs that are read, or of large outputs that are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Read,
    Write,
}

/// Elements, each in another line.
pub(super) struct Lines {
    side: Side,
    /// A loop that is not open, and yet to stay in the form of elements.
    along: Option<VarId>,
    known: BTreeSet<(BufId, Affine)>,
    pub(super) first: Vec<(BufId, Affine)>,
}

impl Lines {
    pub(super) fn of(side: Side, along: Option<VarId>) -> Lines {
        Lines { side, along, known: BTreeSet::new(), first: Vec::new() }
    }
}

impl Emitter<'_, '_> {
    /// Before `stmts[at]`: if that is their first loop, fetches what those without loops read
    /// behind it.
    pub(crate) fn fetch_for_later(&mut self, stmts: &[Stmt], at: usize) -> Result<()> {
        let (before, behind) = stmts.split_at(at);
        let starts = self.turns(&behind[0]) && !before.iter().any(|stmt| self.turns(stmt));
        if !starts || self.is_gpu() || self.lanes.is_some() {
            return Ok(());
        }
        let mut lines = Lines::of(Side::Read, None);
        // Rows of tiles are stored in a loop.
        let most = if self.tiles.is_some() { MOST_LINES } else { 1 };
        let rest = behind[1..].iter().filter(|stmt| turns(stmt) <= most);
        rest.for_each(|stmt| self.lines_of(stmt, &mut lines));
        for (buffer, flat) in lines.first.into_iter().take(MOST_LINES) {
            let (at, _) = self.pointer(buffer, &flat)?;
            self.ir.prefetch(at, Fetch::Read, Near::Second);
        }
        Ok(())
    }

    pub(super) fn lines_of(&mut self, stmt: &Stmt, lines: &mut Lines) {
        match stmt {
            Stmt::Block(block) => self.lines_of_block(block, lines),
            Stmt::For(l) if l.kind == ForKind::Vectorized => {
                self.ranges.insert(l.var, (0, l.extent as i64 - 1));
                l.body.iter().for_each(|stmt| self.lines_of(stmt, lines));
                self.ranges.remove(&l.var);
            }
            Stmt::For(l) => {
                for i in 0..l.extent {
                    self.bindings.insert(l.var, Affine::constant(i as i64));
                    l.body.iter().for_each(|stmt| self.lines_of(stmt, lines));
                }
                self.bindings.remove(&l.var);
            }
        }
    }

    fn lines_of_block(&mut self, block: &Block, lines: &mut Lines) {
        let iters: Vec<_> = block.iters.iter().map(|i| (i.var, affine(&i.binding, self))).collect();
        self.bindings.extend(iters);
        let (scope, accesses) = match lines.side {
            Side::Read => (Scope::Input, block.body.value().loads()),
            Side::Write => (Scope::Output, block.body.writes().into_iter().map(element).collect()),
        };
        for (buffer, indices) in accesses {
            let info = self.program.buffer(buffer);
            if info.scope != scope || info.ty.bytes() < LEAST_BYTES {
                continue;
            }
            let flat = self.flatten(buffer, indices);
            let per_line = LINE / info.ty.dtype.size() as i64;
            if let Some(first) = self.first_lane(&flat, lines.along) {
                let line = Affine { constant: first.constant / per_line, ..first.clone() };
                if lines.known.insert((buffer, line)) {
                    lines.first.push((buffer, first));
                }
            }
        }
        block.iters.iter().for_each(|i| _ = self.bindings.remove(&i.var));
    }

    /// Where a vector begins whose lanes lie side by side.
    fn first_lane(&self, flat: &Affine, along: Option<VarId>) -> Option<Affine> {
        let open = |v: &VarId| self.var_depth(*v).is_some() || along == Some(*v);
        let beside = |(term, c): (&Term, i64)| !matches!(term, Term::Var(v) if !open(v) && c != 1);
        if flat.terms.iter().all(beside) { part(flat, open) } else { None }
    }
}

/// How often loops that stay loops go through the body of the innermost ones, at most.
fn turns(stmt: &Stmt) -> usize {
    match stmt {
        Stmt::Block(_) => 1,
        Stmt::For(l) => {
            let inner = l.body.iter().map(turns).max().unwrap_or(1);
            let is_written_out = matches!(l.kind, ForKind::Unrolled | ForKind::Vectorized);
            if is_written_out { inner } else { l.extent.max(1) * inner }
        }
    }
}

fn element(access: &Access) -> (BufId, &[Expr]) {
    (access.buffer, &access.indices)
}
