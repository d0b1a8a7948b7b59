//! Pairs of stages that transform small squares of elements, as Winograd's convolution does before and after its
//! products: each square is transformed along one axis into registers, and from there along the other.
//!
//! ```text
//! half[t, i, b, c]   = select(i == 0, x[t, 0, b, c] - x[t, 2, b, c], ..)
//! points[i, j, t, c] = select(j == 0, half[t, i, 0, c] - half[t, i, 2, c], ..)
//! =>
//! parallel t { vectorized c {
//!   unrolled i, b { square[i, b] = .. }
//!   unrolled i, j { points[i, j, t, c] = .. square .. }
//! } }
//! ```
//!
//! A stage that is a row of choices by a small axis, or by the remainder of one, is written out along that axis, so that
//! every choice is made when compiling. An elementwise reader of the second stage is computed with it.

use ansc_graph::{Expr, TensorType};

use super::build::{Builder, Path};
use super::stage::{lanes_of, rows_of_vectors};
use super::tile::Epilogue;
use crate::program::{Access, Body, IterKind, Scope, Stmt};
use crate::switch::{Squares, Walk, joined};
use crate::tree;
use crate::walk::is_worthwhile;

struct Plan {
    squares: Squares,
    epilogue: Option<Epilogue>,
}

/// Nests at the root for the stage and its readers, if they are of this kind.
pub(super) fn schedule(b: &mut Builder<'_>, first: usize, done: &[bool]) -> Option<Vec<usize>> {
    let squares = Squares::of(b.compute, first, done)?;
    let second = squares.second;
    let epilogue = Epilogue::of(b.compute, second, done).filter(Epilogue::is_in_place);
    let plan = Plan { squares, epilogue };
    let s = &b.compute.stages[second];
    let (&columns, shape) = s.ty.shape.split_last()?;
    let neighbours = plan.squares.neighbours.iter();
    let extents: Vec<usize> =
        shape.iter().zip(neighbours).map(|(e, n)| e.div_ceil(n.extent)).collect();
    let (lanes, worthwhile) = (lanes_of(b, s), is_worthwhile(s));
    let stmts = b.parallel(&extents, worthwhile, |b, path, at| {
        // A square is work enough between two turns of a loop.
        rows_of_vectors(b, path, columns, (lanes, 1), &mut |b, path, column| {
            square(b, path, &plan, &at, column)
        })
    });
    b.push(stmts);
    let epilogue = plan.epilogue.map(|e| e.stage);
    Some([Some(first), Some(second), epilogue].into_iter().flatten().collect())
}

/// One square in one column: `at` has its number along each axis of the second stage but the last.
fn square(b: &mut Builder<'_>, path: &Path, plan: &Plan, at: &[Expr], column: Expr) -> Vec<Stmt> {
    let squares = &plan.squares;
    let p = &b.compute.stages[squares.first];
    let extents: Vec<usize> = squares.square.iter().map(|walk| walk.extent).collect();
    let ty = TensorType::new(p.ty.dtype, &extents[..]);
    let local = b.local("square", ty);
    // Innermost the axis by which the stage chooses: what its elements have in common stays in registers until then.
    let mut walks = squares.square.clone();
    walks[squares.own..].rotate_left(1);
    let mut stmts = walked(b, path, &walks, vec![], &mut |b, path, within| {
        let mut within = within.to_vec();
        within[squares.own..].rotate_right(1);
        let mut indices = squares.at(at, &within);
        indices.push(column.clone());
        let value = b.body_at(squares.first, &indices);
        let dst = Access { buffer: local, indices: within };
        b.block(path, &b.compute.stages[squares.first].name, Body::Assign { dst, value })
    });
    stmts.extend(walked(b, path, &squares.neighbours, vec![], &mut |b, path, within| {
        let parts = at.iter().zip(within).zip(&squares.neighbours);
        let mut indices: Vec<Expr> =
            parts.map(|((o, u), n)| joined(o.clone(), u.clone(), n.extent)).collect();
        indices.push(column.clone());
        results(b, path, plan, local, &indices)
    }));
    stmts
}

/// One element of the second stage, or of its reader.
fn results(
    b: &mut Builder<'_>,
    path: &Path,
    plan: &Plan,
    local: ansc_graph::BufId,
    at: &[Expr],
) -> Vec<Stmt> {
    let squares = &plan.squares;
    let s = &b.compute.stages[squares.second];
    let (name, buffer) = (&s.name, b.compute.stage_buffer(squares.first));
    let of_square =
        |indices: &[Expr]| Expr::Load(local, squares.within(indices).cloned().collect());
    let value = s.body.rewrite(&mut |e| match e {
        Expr::Load(b2, indices) if *b2 == buffer => Some(of_square(indices)),
        Expr::Load(b2, indices) => Some(b.load(*b2, indices)),
        _ => None,
    });
    let value = value.substitute(&|v| at.get(v.index()).cloned());
    let axes = squares.neighbours.iter().zip(&s.ty.shape).zip(at);
    let beyond = axes.filter(|((n, extent), _)| !extent.is_multiple_of(n.extent));
    let inside = beyond.map(|((_, &extent), at)| at.clone().lt(Expr::index(extent)));
    let inside = tree::conjunction(inside);
    let Some(epilogue) = &plan.epilogue else {
        let buffer = b.source(b.compute.stage_buffer(squares.second));
        let dst = Access { buffer, indices: at.to_vec() };
        return b.guarded_block(path, name, inside, Body::Assign { dst, value });
    };
    let result = b.program.add_buffer(
        format!("result{}", b.program.buffers.len()),
        TensorType::new(s.ty.dtype, []),
        Scope::Local,
    );
    let dst = Access { buffer: result, indices: vec![] };
    let mut stmts = b.guarded_block(path, name, inside.clone(), Body::Assign { dst, value });
    let value = epilogue.value(b, squares.second, at, Expr::Load(result, vec![]));
    let buffer = b.source(b.compute.stage_buffer(epilogue.stage));
    let dst = Access { buffer, indices: at.to_vec() };
    let name = &b.compute.stages[epilogue.stage].name;
    stmts.extend(b.guarded_block(path, name, inside, Body::Assign { dst, value }));
    stmts
}

/// What stands inside of loops within a square, given their indices.
type Inside<'a, 'f> = dyn FnMut(&mut Builder<'a>, &Path, &[Expr]) -> Vec<Stmt> + 'f;

fn walked<'a>(
    b: &mut Builder<'a>,
    path: &Path,
    walks: &[Walk],
    within: Vec<Expr>,
    body: &mut Inside<'a, '_>,
) -> Vec<Stmt> {
    let Some((&Walk { extent, written_out, .. }, rest)) = walks.split_first() else {
        return body(b, path, &within);
    };
    let inside = |b: &mut Builder<'a>, path: &Path, at: Expr| {
        let within = [&within[..], &[at]].concat();
        walked(b, path, rest, within, body)
    };
    match written_out {
        true => b.unrolled(path, extent, IterKind::Spatial, inside),
        false => b.serial(path, extent, IterKind::Spatial, inside),
    }
}
