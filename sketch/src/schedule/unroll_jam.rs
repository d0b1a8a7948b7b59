//! unroll_jam: the iterations of a loop side by side, under the same loops where they are alike.
//!
//! ```text
//! for u in 0..2 { for i in 0..48 { y[p + u, i] = x[p + u, i] * g[i] } }
//! => unroll_jam(u)
//! for i in 0..48 { y[p, i] = x[p, i] * g[i];  y[p + 1, i] = x[p + 1, i] * g[i] }
//! ```
//!
//! Elements that the iterations share, of `g` here, are loaded once for all of them, and one
//! iteration goes on while another waits.

use ansc_graph::{Expr, VarId};

use super::copies;
use super::error::{Cause, Failure};
use super::kinds::check_apart;
use super::query::{blocks_under, bound_to, loop_at, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::affine::{self, Extents};
use crate::program::{For, ForKind, IterKind, Program, Shared, Stmt};
use crate::tree::{self, visit_blocks_mut};

type Checked<T> = std::result::Result<T, Failure>;

/// Iterations that may be written out side by side.
const MOST: usize = 16;

impl Schedule {
    /// Replaces the serial or unrolled loop `l` of at most 16 iterations by these, which are
    /// independent. Statements of each iteration stay in order; those of different iterations
    /// alternate, and serial loops that are the same number of iterations become one. Blocks of all
    /// iterations but the first are copies with the same annotations, whose names are returned;
    /// local buffers that one iteration has for itself are copied too.
    pub fn unroll_jam(&mut self, l: LoopRef) -> Result<Vec<String>> {
        let twins = self.apply("unroll_jam", |program| unroll_jam(program, l))?;
        self.copy_all_notes(&twins);
        Ok(twins.blocks.into_iter().map(|(_, copy)| copy).collect())
    }
}

fn unroll_jam(program: &mut Program, l: LoopRef) -> Checked<copies::Twins> {
    let path = loop_path(program, l)?;
    let target = loop_at(program, &path).clone();
    check(program, &target)?;
    let private = copies::private_buffers(program, l.0);
    let extents = Extents::of(program);
    let mut rows = vec![];
    for iteration in 0..target.extent {
        let mut row = target.body.clone();
        at_iteration(&mut row, l.0, iteration, &extents);
        if iteration > 0 {
            copies::own_buffers(program, &mut row, &private);
        }
        rows.push(tree::alive(row));
    }
    tree::splice(&mut program.body, &path, jam(rows));
    Ok(copies::own_names(program))
}

fn check(program: &Program, l: &For) -> Checked<()> {
    let at = LoopRef(l.var);
    match l.kind {
        ForKind::Serial | ForKind::Unrolled => {}
        kind => return Err(Cause::Kind(kind).at_loop(at)),
    }
    if l.extent == 0 || l.extent > MOST {
        return Err(Cause::TooManyIterations { extent: l.extent, most: MOST }.at_loop(at));
    }
    check_independent(program, l)
}

/// No block reduces over the loop, and no two of its iterations touch the same element, if one of
/// them writes it.
fn check_independent(program: &Program, l: &For) -> Checked<()> {
    let at = LoopRef(l.var);
    for block in blocks_under(l) {
        if bound_to(block, IterKind::Reduce).contains(&l.var) {
            return Err(Cause::ReductionLoop(block.name.clone()).at_loop(at));
        }
    }
    check_apart(program, l)
}

fn at_iteration(stmts: &mut [Stmt], l: VarId, iteration: usize, extents: &Extents) {
    let depends = |e: &Expr| e.vars().contains(&l);
    let place = |e: &Expr| {
        let e = e.substitute(&|v| (v == l).then(|| Expr::index(iteration)));
        affine::simplify(&e, extents)
    };
    visit_blocks_mut(stmts, &mut |block| {
        for iter in block.iters.iter_mut().filter(|i| depends(&i.binding)) {
            iter.binding = place(&iter.binding);
        }
        if let Some(predicate) = block.predicate.take() {
            let here = if depends(&predicate) { place(&predicate) } else { predicate };
            block.predicate = Some(here).filter(|p| *p != Expr::bool(true));
        }
    });
}

/// Statements of several rows side by side, under the same loops where they are alike. The rows
/// must not depend on one another: their statements are interleaved, each row's own in their order.
pub(crate) fn jam(rows: Vec<Vec<Stmt>>) -> Vec<Stmt> {
    rows.into_iter().reduce(side_by_side).unwrap_or_default()
}

fn side_by_side(mut a: Vec<Stmt>, mut b: Vec<Stmt>) -> Vec<Stmt> {
    if a.len() != b.len() {
        a.append(&mut b);
        return a;
    }
    a.into_iter().zip(b).flat_map(|(a, b)| join(a, b)).collect()
}

fn join(a: Stmt, b: Stmt) -> Vec<Stmt> {
    match (a, b) {
        (Stmt::For(a), Stmt::For(b)) if alike(&a, &b) => {
            vec![Stmt::For(Shared::new(under(a.into_inner(), b.into_inner())))]
        }
        (a, b) => vec![a, b],
    }
}

fn alike(a: &For, b: &For) -> bool {
    a.kind == ForKind::Serial && b.kind == ForKind::Serial && a.extent == b.extent
}

fn under(mut a: For, mut b: For) -> For {
    rename(&mut b.body, b.var, a.var);
    a.body = side_by_side(a.body, b.body);
    a
}

fn rename(stmts: &mut [Stmt], from: VarId, to: VarId) {
    let renamed = |var: VarId| (var == from).then_some(Expr::Var(to));
    visit_blocks_mut(stmts, &mut |block| block.substitute_loops(&renamed));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;

    /// Each statement of the text is a row.
    fn jammed(rows: &str) -> String {
        let text = format!("program k\nx: f32[8] input\ny: f32[8] output\nparams x, y\n{rows}");
        let mut program = Program::parse(&text).unwrap();
        let rows = std::mem::take(&mut program.body);
        program.body = jam(rows.into_iter().map(|row| vec![row]).collect());
        let text = program.to_string();
        text.split_once("params x, y\n").unwrap().1.to_owned()
    }

    #[test]
    fn loops_that_are_alike_become_one() {
        let rows = "\
for i in 0..2 {
  for j in 0..2 {
    block a (v: spatial 4 = add(mul(i, 2), j)) {
      y[v] = x[v]
    }
  }
}
for k in 0..2 {
  for l in 0..2 {
    block b (w: spatial 4 = add(mul(k, 2), l)) {
      where lt(l, 1)
      y[add(w, 4)] = x[w]
    }
  }
}
";
        let expected = "\
for i in 0..2 {
  for j in 0..2 {
    block a (v: spatial 4 = add(mul(i, 2), j)) {
      y[v] = x[v]
    }
    block b (w: spatial 4 = add(mul(i, 2), j)) {
      where lt(j, 1)
      y[add(w, 4)] = x[w]
    }
  }
}
";
        assert_eq!(jammed(rows), expected);
    }

    #[test]
    fn others_stay_one_after_the_other() {
        let rows = "\
for i in 0..4 {
  block a (v: spatial 4 = i) {
    y[v] = x[v]
  }
}
for k in 0..3 {
  block b (w: spatial 3 = k) {
    y[add(w, 4)] = x[w]
  }
}
for l in 0..3 vectorized {
  block c (u: spatial 3 = l) {
    y[add(u, 4)] = x[u]
  }
}
";
        assert_eq!(jammed(rows), rows);
    }

    /// Copies get names of their own, for which no other nest changes.
    #[test]
    fn other_nests_stay_shared_with_the_program_before() {
        let text = "\
program k
x: f32[8] input
y: f32[8] output
params x, y
for i in 0..2 {
  block a (v: spatial 2 = i) {
    y[v] = x[v]
  }
}
for j in 0..6 {
  block b (w: spatial 6 = j) {
    y[add(w, 2)] = x[w]
  }
}
";
        let mut schedule = Schedule::new(Program::parse(text).unwrap());
        let before = schedule.program().clone();
        let Stmt::For(first) = &before.body[0] else { panic!("{before}") };
        assert_eq!(schedule.unroll_jam(LoopRef(first.var)).unwrap(), ["a_1"]);
        let place = |program: &Program| match program.body.last() {
            Some(Stmt::For(l)) => std::ptr::from_ref::<For>(l),
            _ => panic!("{program}"),
        };
        assert_eq!(place(&before), place(schedule.program()));
    }
}
