//! Statements of several rows side by side, under the same loops where they are alike.
//!
//! ```text
//! for i in 0..48 { y[p, i] = x[p, i] * g[i] };  for j in 0..48 { y[p + 1, j] = x[p + 1, j] * g[j] }
//! =>
//! for i in 0..48 { y[p, i] = x[p, i] * g[i];  y[p + 1, i] = x[p + 1, i] * g[i] }
//! ```
//!
//! What the rows share, `g` here, is loaded once for all of them. The rows must not depend on one another: their
//! statements are interleaved, each row's own in their order.

use ansc_graph::{Expr, VarId};

use crate::program::{For, ForKind, Stmt};
use crate::tree::visit_blocks_mut;

pub(super) fn jam(rows: Vec<Vec<Stmt>>) -> Vec<Stmt> {
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
        (Stmt::For(a), Stmt::For(b)) if alike(&a, &b) => vec![Stmt::For(Box::new(under(*a, *b)))],
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
}
