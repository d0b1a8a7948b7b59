//! Rows of tiles are stored while the next tiles are summed up.
//!
//! A result that is larger than the caches takes its time to get to memory. Between two sums a unit
//! for matrices would wait for it.
//!
//! In: a loop that sums up tiles in an inner loop, brings them to local memory, and goes through
//! their rows to a large result. Out: each iteration goes through the rows of the one before, some
//! in each step of its sum; those of the last iteration follow the loop.
//!
//! ```text
//! for n in 0..8 {
//!   for t in 0..64 { c += a * b };  local = c;  for i in 0..32 { y[n, i] = local[i] }
//! }
//! =>
//! for n in 0..8 {
//!   for t in 0..64 { if 0 < n && t < 32 { y[n - 1, t] = local[t] };  c += a * b };  local = c
//! }
//! for i in 0..32 { y[7, i] = local[i] }
//! ```

use ansc_graph::{BinOp, BufId, Expr, VarId};
use ansc_sketch::program::{Body, For, ForKind, Shared};
use ansc_sketch::{Program, Scope, Stmt};

use crate::affine::Affine;
use crate::emit::function::{Emitter, Frame, Result};
use crate::emit::uses;

/// Smaller results are in the cache as soon as they are stored.
const LEAST_BYTES: usize = 2 << 20;
/// More rows in a step would be a wait as well.
const MOST_ROWS: usize = 2;

/// The rows that the sum of the next iteration goes through.
#[derive(Clone)]
pub(crate) struct Late {
    /// The loop over tiles.
    around: VarId,
    rows: Shared<For>,
    /// The loops of the sum, from the outermost one on, and their extents.
    steps: Vec<(VarId, usize)>,
}

impl Late {
    fn count(&self) -> usize {
        self.steps.iter().map(|(_, extent)| extent).product()
    }

    fn rows_of_step(&self) -> usize {
        self.rows.extent.div_ceil(self.count())
    }

    /// Rows of the present step, and when there are any.
    fn of_step(&self) -> Vec<(Expr, Expr)> {
        let each = self.rows_of_step();
        let next = |so_far: Expr, (var, extent): &(VarId, usize)| {
            so_far * Expr::index(*extent) + Expr::Var(*var)
        };
        let step = self.steps.iter().fold(Expr::int(0), next);
        let is_later = Expr::binary(BinOp::Lt, Expr::int(0), Expr::Var(self.around));
        let row = |n: usize| {
            let row = step.clone() * Expr::index(each) + Expr::index(n);
            let is_row = Expr::binary(BinOp::Lt, row.clone(), Expr::index(self.rows.extent));
            (row, Expr::binary(BinOp::And, is_later.clone(), is_row))
        };
        (0..each).map(row).collect()
    }
}

impl Emitter<'_, '_> {
    /// Writes a loop whose rows of tiles are stored late. False if it has none.
    pub(super) fn with_late_rows(&mut self, l: &For) -> Result<bool> {
        let Some(late) = self.late_of(l) else { return Ok(false) };
        let (rows, tiles) = l.body.split_last().ok_or("a loop without a body")?;
        let (begin, end) = (self.ir.index(0), self.ir.index(l.extent as i64));
        self.late = Some(late);
        self.counted(l.var, l.extent, begin, end, |e| {
            e.fetch_ahead(l)?;
            e.stmts(tiles)
        })?;
        self.late = None;
        self.bindings.insert(l.var, Affine::constant(l.extent as i64 - 1));
        self.stmt(rows)?;
        self.bindings.remove(&l.var);
        Ok(true)
    }

    /// In an iteration of a loop: if that is a step of a sum, goes through rows of the tiles
    /// before.
    pub(super) fn rows_of_step(&mut self, l: &For) -> Result<()> {
        let is_step = |late: &&Late| late.steps.last().is_some_and(|(var, _)| *var == l.var);
        let Some(late) = self.late.as_ref().filter(is_step).cloned() else { return Ok(()) };
        for (row, is_there) in late.of_step() {
            let is_there = self.value(&is_there)?;
            self.when(is_there, |e| e.row_before(&late, &row))?;
        }
        Ok(())
    }

    /// One row of the tiles that the iteration before has left.
    fn row_before(&mut self, late: &Late, row: &Expr) -> Result<()> {
        const POSITIONED: &str = "the builder is positioned";
        let before = Expr::Var(late.around) - Expr::int(1);
        let (iteration, var) = (self.fresh_var(), late.rows.var);
        let range = self.ranges.get(&late.around).copied().unwrap_or_default();
        let before = self.value(&before)?.into_int_value();
        let row = self.value(row)?.into_int_value();
        let [head, inside] =
            ["row", "late"].map(|name| self.ir.context.append_basic_block(self.function, name));
        self.ir.builder.build_unconditional_branch(head).expect(POSITIONED);
        self.ir.builder.position_at_end(head);
        self.ir.builder.build_unconditional_branch(inside).expect(POSITIONED);
        self.ir.builder.position_at_end(inside);
        self.ranges.insert(iteration, range);
        self.ranges.insert(var, (0, late.rows.extent as i64 - 1));
        self.frames.push(Frame::new(Some((iteration, before)), head));
        self.frames.push(Frame::new(Some((var, row)), head));
        self.bindings.insert(late.around, Affine::var(iteration));
        self.with_conditions(&late.rows.body)?;
        self.bindings.remove(&late.around);
        self.frames.truncate(self.frames.len() - 2);
        self.ranges.remove(&var);
        self.ranges.remove(&iteration);
        Ok(())
    }

    fn late_of(&self, l: &For) -> Option<Late> {
        let is_plain = |l: &For| l.kind == ForKind::Serial && self.program.need(l.var).is_none();
        let (Stmt::For(rows), tiles) = l.body.split_last()? else { return None };
        let has_tiles = self.tiles.is_some() && self.late.is_none();
        let is_one = !rows.body.iter().any(|stmt| self.turns(stmt));
        if !has_tiles || !is_plain(l) || !is_plain(rows) || !is_one {
            return None;
        }
        let sum = tiles.iter().rposition(|stmt| self.turns(stmt))?;
        let steps = self.steps_of(&tiles[sum]).filter(|_| is_unconditional(&tiles[sum]))?;
        let late = Late { around: l.var, rows: rows.clone(), steps };
        let is_free = self.is_apart(&l.body, sum) && self.conditions_of_all(&l.body).is_empty();
        (is_free && late.rows_of_step() <= MOST_ROWS).then_some(late)
    }

    /// The loops of a sum, each alone in the one around it.
    fn steps_of(&self, sum: &Stmt) -> Option<Vec<(VarId, usize)>> {
        let (mut steps, mut next) = (vec![], sum);
        loop {
            let Stmt::For(l) = next else { return None };
            if l.kind != ForKind::Serial || l.extent < 2 || self.program.need(l.var).is_some() {
                return None;
            }
            steps.push((l.var, l.extent));
            match &l.body[..] {
                body if !body.iter().any(|stmt| self.turns(stmt)) => return Some(steps),
                [only] => next = only,
                _ => return None,
            }
        }
    }

    /// Whether the last statement gives large results of what those behind the sum leave to it, so
    /// that neither the next sum nor what is before it notices that it comes late.
    fn is_apart(&self, stmts: &[Stmt], sum: usize) -> bool {
        let (tiles, rows) = stmts.split_at(stmts.len() - 1);
        let [before, all, own] = [&tiles[..=sum], tiles, rows].map(uses);
        let scope = |b: &BufId| self.program.buffer(*b).scope;
        let mut is_assigned = true;
        rows.iter().for_each(|row| {
            row.visit_blocks(&mut |block| {
                is_assigned &= matches!(block.body, Body::Assign { .. });
            });
        });
        is_assigned
            && own.keys().all(|b| match scope(b) {
                Scope::Input => true,
                Scope::Output => !all.contains_key(b) && is_large(self.program, *b),
                Scope::Local => !before.contains_key(b),
                _ => false,
            })
    }
}

/// Whether no step can be passed over, for rows would be with it.
fn is_unconditional(sum: &Stmt) -> bool {
    let mut all = true;
    sum.visit_blocks(&mut |block| {
        let chooses = block.body.value().any(&mut |e| matches!(e, Expr::Select(..)));
        all &= block.predicate.is_none() && !chooses;
    });
    all
}

fn is_large(program: &Program, buffer: BufId) -> bool {
    program.buffer(buffer).ty.bytes() >= LEAST_BYTES
}
