//! Conditions that all blocks under a loop share are asked once, at the loop that decides them:
//! those of guards, and those without which a sum adds zero, as where a window lies in padding.
//!
//! ```text
//! for r { for x unrolled {
//!   s[x] sum= select(1 <= y + r && 1 <= x, a[y + r - 1, x - 1], 0) * w[r]
//! } }
//! =>
//! for r { if 1 <= y + r { for x unrolled {
//!   s[x] sum= select(1 <= x, a[y + r - 1, x - 1], 0) * w[r]
//! } } }
//! ```
//!
//! Conditions without which nobody needs what an iteration does end a loop, if they hold for its
//! first iterations alone:
//!
//! ```text
//! for r in 0..100 while 4 * r + y < s   =>   for r in 0..min(100, (s - y + 3) / 4)
//! for p in 0..600 while p % 100 < s
//! =>   for q in 0..6 { for p in 100 * q..100 * q + min(100, s) }
//! ```

use std::collections::BTreeSet;

use ansc_graph::arith::Linear;
use ansc_graph::demand::extent_of;
use ansc_graph::{BinOp, BufId, Combiner, Expr, VarId};
use ansc_runtime::Extent;
use ansc_runtime::manifest::Needed;
use ansc_sketch::{Block, Body, For, Program, Stmt};

use inkwell::IntPredicate;
use inkwell::values::{InstructionOpcode, IntValue};

use crate::emit::function::{Emitter, Result};
use crate::ir::Reg;

impl<'c> Emitter<'c, '_> {
    /// The body of a loop, in the iteration that is being written.
    pub(crate) fn iteration(&mut self, l: &For) -> Result<()> {
        let need = self.need(l);
        self.if_needed(&need, |e| e.with_conditions(&l.body))
    }

    /// The conditions without which nobody needs an iteration of a loop.
    fn need(&self, l: &For) -> Vec<Expr> {
        let is_asked = !self.is_gpu() && self.lanes.is_none();
        let need = self.program.need(l.var).filter(|_| is_asked);
        need.map_or(vec![], |need| need.conjuncts().into_iter().cloned().collect())
    }

    /// Writes what an iteration does, under conditions.
    fn if_needed(
        &mut self,
        conditions: &[Expr],
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let mut all = None;
        for condition in conditions {
            let holds = self.value(condition)?;
            all = Some(all.map_or(holds, |so_far| self.ir.and(so_far, holds)));
        }
        match all {
            Some(all) => self.when(all, body),
            None => body(self),
        }
    }

    /// A loop over those of `begin..end` that somebody needs. The body is under the conditions that
    /// are left.
    pub(crate) fn counted_while_needed(
        &mut self,
        l: &For,
        (begin, end): (IntValue<'c>, IntValue<'c>),
        ahead: impl FnOnce(&mut Self) -> Result<()>,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let (mut ends, mut open, mut in_rows) = (vec![], vec![], None);
        for condition in self.need(l) {
            match first_without(&condition, l.var) {
                Some(first) => ends.push(first),
                None if in_rows.is_none() && Rows::of(&condition, l).is_some() => {
                    in_rows = Rows::of(&condition, l);
                }
                None => open.push(condition),
            }
        }
        let inside = |e: &mut Self| {
            ahead(e)?;
            e.if_needed(&open, body)
        };
        let mut last = end;
        for first in &ends {
            let first = self.value(first)?.into_int_value();
            last = self.smaller(last, first);
        }
        match in_rows {
            Some(rows) => self.counted_in_rows(l, (begin, last), &rows, inside),
            None if ends.is_empty() => self.counted(l.var, l.extent, begin, end, inside),
            None => self.counted_if_any((l.var, l.extent), (begin, last), inside),
        }
    }

    /// The loop in a loop over rows of its iterations.
    fn counted_in_rows(
        &mut self,
        l: &For,
        (begin, end): (IntValue<'c>, IntValue<'c>),
        Rows { length, below }: &Rows,
        inside: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let below = self.value(below)?.into_int_value();
        let (row, rows) = (self.fresh_var(), l.extent.div_ceil(*length));
        let [length, most] = [*length, *length - 1].map(|n| self.ir.index(n as i64));
        let row_of = |e: &Self, at: Reg<'c>| {
            e.ir.binop(InstructionOpcode::SDiv, at, length.into()).into_int_value()
        };
        let behind = self.ir.add(end.into(), most.into());
        let (first, last) = (row_of(self, begin.into()), row_of(self, behind));
        self.counted_if_any((row, rows), (first, last), |e| {
            let at = e.value(&Expr::Var(row))?;
            let at = e.ir.mul(at, length.into());
            let stop = e.ir.add(at, below.into()).into_int_value();
            let next = e.ir.add(at, length.into()).into_int_value();
            let start = e.larger(begin, at.into_int_value());
            let stop = e.smaller(e.smaller(stop, next), end);
            e.counted_if_any((l.var, l.extent), (start, stop), inside)
        })
    }

    /// The loop over a range that may be empty.
    fn counted_if_any(
        &mut self,
        (var, extent): (VarId, usize),
        (begin, end): (IntValue<'c>, IntValue<'c>),
        inside: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let any = self.ir.icmp(IntPredicate::SLT, begin.into(), end.into());
        self.when(any, |e| e.counted(var, extent, begin, end, inside))
    }

    fn smaller(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let is_less = self.ir.icmp(IntPredicate::SLT, a.into(), b.into());
        self.ir.select(is_less, a.into(), b.into()).into_int_value()
    }

    fn larger(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let is_less = self.ir.icmp(IntPredicate::SLT, a.into(), b.into());
        self.ir.select(is_less, b.into(), a.into()).into_int_value()
    }

    pub(crate) fn with_conditions(&mut self, body: &[Stmt]) -> Result<()> {
        let mut open = vec![];
        for condition in self.conditions_of_all(body) {
            match self.decide(&condition) {
                Some(true) => {}
                Some(false) => return Ok(()),
                None => open.push(condition),
            }
        }
        let mut all = None;
        for condition in &open {
            let holds = self.value(condition)?;
            all = Some(all.map_or(holds, |so_far| self.ir.and(so_far, holds)));
        }
        let Some(all) = all else { return self.stmts(body) };
        self.when(all, |e| {
            let known = e.held.len();
            let facts: Vec<_> = open.iter().filter_map(|condition| e.fact(condition)).collect();
            e.held.extend(facts);
            let result = e.stmts(body);
            e.held.truncate(known);
            result
        })
    }

    /// Conditions over open loops without which no block does anything. Lanes may differ in what
    /// holds, and threads of a GPU meet at barriers whatever holds.
    pub(super) fn conditions_of_all(&self, body: &[Stmt]) -> BTreeSet<Expr> {
        let is_alone = matches!(body, [Stmt::Block(_)]);
        if is_alone || self.is_gpu() || self.lanes.is_some() {
            return BTreeSet::new();
        }
        let mut all: Option<BTreeSet<Expr>> = None;
        each(body, &mut |block| {
            if all.as_ref().is_none_or(|all| !all.is_empty()) {
                let own = self.conditions(block);
                all = Some(all.take().map_or_else(|| own.clone(), |all| &all & &own));
            }
        });
        all.unwrap_or_default()
    }

    fn conditions(&self, block: &Block) -> BTreeSet<Expr> {
        let is_open = |e: &Expr| {
            let is_known = |v| self.ranges.contains_key(v) || self.bindings.contains_key(v);
            e.loads().is_empty() && e.vars().iter().all(is_known)
        };
        let over_loops = |e: &Expr| {
            e.substitute(&|v| block.iters.iter().find(|i| i.var == v).map(|i| i.binding.clone()))
        };
        let mut all: Vec<&Expr> = block.predicate.iter().flat_map(Expr::conjuncts).collect();
        if let Body::Reduce { combiner: Combiner::Sum, value, init: false, .. } = &block.body {
            adds(value, &mut all);
        }
        all.into_iter().map(over_loops).filter(is_open).collect()
    }
}

/// How many iterations of an outermost loop a run needs, if conditions that fail fail for all later
/// ones as well.
pub(crate) fn needed(program: &Program, l: &For) -> Option<Needed> {
    let conditions = program.need(l.var)?.conjuncts();
    let ends = conditions.into_iter().filter_map(|condition| first_without(condition, l.var));
    let argument = |buffer: &BufId| program.params.iter().position(|param| param == buffer);
    let ends: Vec<Expr> = ends.filter(|end| end.vars().is_empty()).collect();
    let held = ends.iter().flat_map(|end| end.loads()).map(|(buffer, _)| buffer);
    let held: Vec<BufId> = held.collect::<BTreeSet<BufId>>().into_iter().collect();
    let sizes = held.iter().map(argument).collect::<Option<Vec<usize>>>()?;
    let number = |buffer| Some(held.iter().position(|b| *b == buffer)? as u32);
    let ends = ends.iter().filter_map(|end| extent_of(end, &number));
    let extent = ends.reduce(|a, b| Extent::Min(vec![a, b]))?;
    Some(Needed { sizes, extent })
}

/// A condition on the place of an iteration in its row, of so many iterations: it is below this.
struct Rows {
    length: usize,
    below: Expr,
}

impl Rows {
    fn of(condition: &Expr, l: &For) -> Option<Rows> {
        let Expr::Binary(BinOp::Lt, index, below) = condition else { return None };
        let Expr::Binary(BinOp::FloorMod, place, length) = &**index else { return None };
        let length = usize::try_from(length.as_const()?.as_i64()).ok().filter(|n| *n > 1)?;
        let is_of_loop = **place == Expr::Var(l.var) && !below.vars().contains(&l.var);
        is_of_loop.then(|| Rows { length, below: Expr::clone(below) })
    }
}

/// The first value of a variable for which a condition does not hold, if it holds for none after
/// that. It may be below zero.
///
/// `4 * v < s`: `(s + 3) / 4`. `4 * (v / 16) < s`: 16 times as many.
fn first_without(condition: &Expr, var: VarId) -> Option<Expr> {
    let Expr::Binary(BinOp::Lt, index, below) = condition else { return None };
    let mut rest = Linear::from_expr(index);
    let (counted, times) = counted(index, var)?;
    let by = rest.coefficient(&counted);
    rest.add_scaled(&counted, -by);
    let left = (**below).clone() - rest.to_expr();
    if by <= 0 || left.vars().contains(&var) {
        return None;
    }
    // `by * v < left` up to `left / by`, rounded up.
    let first = match by {
        1 => left,
        _ => Expr::binary(BinOp::FloorDiv, left + Expr::int(by - 1), Expr::int(by)),
    };
    Some(if times == 1 { first } else { first * Expr::int(times) })
}

/// The variable, or its quotient by a number, in an index; and the number.
fn counted(index: &Expr, var: VarId) -> Option<(Expr, i64)> {
    let own = Expr::Var(var);
    match index {
        Expr::Var(v) => (*v == var).then_some((own, 1)),
        Expr::Binary(BinOp::FloorDiv, of, by) if **of == own => {
            let by = by.as_const()?.as_i64();
            (by > 0).then(|| (index.clone(), by))
        }
        Expr::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul, a, b) => {
            counted(a, var).or_else(|| counted(b, var))
        }
        _ => None,
    }
}

/// Conditions without which the term is zero. Zero times a weight is taken for zero.
fn adds<'e>(term: &'e Expr, conditions: &mut Vec<&'e Expr>) {
    match term {
        Expr::Binary(BinOp::Mul, a, b) => {
            adds(a, conditions);
            adds(b, conditions);
        }
        Expr::Cast(_, x) => adds(x, conditions),
        Expr::Select(condition, _, nothing)
            if nothing.as_const().is_some_and(|scalar| scalar.is_zero()) =>
        {
            conditions.extend(condition.conjuncts());
        }
        _ => {}
    }
}

fn each<'b>(body: &'b [Stmt], visit: &mut impl FnMut(&'b Block)) {
    for stmt in body {
        match stmt {
            Stmt::Block(block) => visit(block),
            Stmt::For(l) => each(&l.body, visit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 16 iterations a run with the size `s` needs under a condition.
    fn count(condition: &str, s: i64) -> Option<i64> {
        let text = format!(
            "program k\ny: f32[16] output\nsize0: i64[] input\nparams size0, y\n\
             for i in 0..16 parallel while {condition} {{\n  block b (a: spatial 16 = i) {{\n    \
             y[i] = 1.0_f32\n  }}\n}}\n"
        );
        let program = Program::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let Stmt::For(l) = &program.body[0] else { panic!("a loop") };
        let Needed { sizes, extent } = needed(&program, l)?;
        assert_eq!(sizes, [0]);
        extent.at(&[s])
    }

    #[test]
    fn the_first_iterations_are_needed() {
        assert_eq!(count("lt(mul(i, 4), size0[])", 9), Some(3));
        assert_eq!(count("lt(mul(i, 4), size0[])", 8), Some(2));
        assert_eq!(count("lt(sub(i, 3), size0[])", 9), Some(12));
        assert_eq!(count("and(lt(i, size0[]), lt(mul(i, 2), size0[]))", 9), Some(5));
        assert_eq!(count("and(lt(0, size0[]), lt(i, mul(size0[], 2)))", 3), Some(6));
        assert_eq!(count("lt(mul(floor_div(i, 2), 4), size0[])", 9), Some(6));
        assert_eq!(count("lt(floor_mod(i, 4), size0[])", 9), None);
        assert_eq!(count("lt(0, size0[])", 9), None);
    }
}
