//! One stage under loops: outer axes already bound, inner axes looped and cut into vectors.
//!
//! ```text
//! y[v0, v1] = exp(x[v0, v1]), f32[64, 100], 8 lanes
//! =>
//! parallel p in 0..64 {
//!   for i in 0..12 { vectorized l in 0..8 { y[p, i * 8 + l] = exp(..) } }
//!   vectorized l in 0..4 { y[p, 96 + l] = exp(..) }
//! }
//! ```
//!
//! A reduction keeps its running values in a local buffer: vectors along the innermost spatial axis where
//! that is long enough, otherwise vectors of partial results along the innermost reduction axis, which are
//! combined at the end.

use std::ops::Range;

use ansc_graph::{BufId, Combiner, Expr, Stage, TensorType};

use super::build::{Builder, Path};
use super::knobs::Knob;
use crate::program::{Access, Body, IterKind, Stmt};
use crate::vectors::{cover, fold_steps, widths_of};
use crate::walk::{self, PARALLEL_ITERATIONS, is_worthwhile, merged};

/// Where a stage's elements go: a buffer, and how many leading axes it does not have.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) buffer: BufId,
    pub(super) skip: usize,
}

impl Target {
    pub(super) fn at(self, indices: &[Expr]) -> Access {
        Access { buffer: self.buffer, indices: indices[self.skip..].to_vec() }
    }
}

/// A nest of its own at the root.
pub(super) fn schedule(b: &mut Builder<'_>, stage: usize) -> Vec<usize> {
    let target = Target { buffer: b.source(b.compute.stage_buffer(stage)), skip: 0 };
    let s = &b.compute.stages[stage];
    let groups = mergeable(b, s, 0);
    let outer = outer_groups(s, &groups);
    let extents: Vec<usize> = groups[..outer].iter().map(|g| merged(s, g)).collect();
    let worthwhile = is_worthwhile(s);
    let split = (outer + 1 == groups.len()).then(|| chunks(b, s, &groups, &extents)).flatten();
    let stmts = match split {
        Some(split) if s.reduce.is_none() => {
            chunked(b, stage, &groups, &extents, split, worthwhile, target)
        }
        _ => b.parallel(&extents, worthwhile, |b, path, indices| {
            let bound = spread(&b.compute.stages[stage], &groups[..outer], &indices);
            emit(b, path, stage, &bound, &groups[outer..], target)
        }),
    };
    b.push(stmts);
    vec![stage]
}

/// Groups that go into the parallel loop: all but the last, which is for vectors; none more than needed.
fn outer_groups(s: &Stage, groups: &[Range<usize>]) -> usize {
    let mut total = 1;
    for (i, group) in groups.iter().enumerate() {
        if i + 1 == groups.len() || total >= 4 * PARALLEL_ITERATIONS {
            return i;
        }
        total *= merged(s, group);
    }
    0
}

/// How to cut the last axis so that there are enough parallel iterations: their number and size.
struct Chunks {
    count: usize,
    vectors: usize,
}

fn chunks(b: &Builder<'_>, s: &Stage, groups: &[Range<usize>], outer: &[usize]) -> Option<Chunks> {
    let total: usize = outer.iter().product();
    let lanes = lanes_of(b, s);
    let vectors = merged(s, groups.last()?) / lanes;
    if total >= PARALLEL_ITERATIONS || vectors < 2 * PARALLEL_ITERATIONS {
        return None;
    }
    let count = (2..=2 * PARALLEL_ITERATIONS).rev().find(|c| vectors.is_multiple_of(*c))?;
    Some(Chunks { count, vectors: vectors / count })
}

fn chunked(
    b: &mut Builder<'_>,
    stage: usize,
    groups: &[Range<usize>],
    outer: &[usize],
    split: Chunks,
    worthwhile: bool,
    target: Target,
) -> Vec<Stmt> {
    let s = &b.compute.stages[stage];
    let lanes = lanes_of(b, s);
    let (last, whole) =
        (groups.last().expect("a group is cut").clone(), split.count * split.vectors * lanes);
    let rest = merged(s, &last) - whole;
    let extents = [outer, &[split.count]].concat();
    let mut stmts = b.parallel(&extents, worthwhile, |b, path, mut indices| {
        let chunk = indices.pop().expect("the chunk's index");
        let bound = spread(&b.compute.stages[stage], &groups[..outer.len()], &indices);
        b.serial(path, split.vectors, IterKind::Spatial, |b, path, i| {
            let base = (chunk * Expr::index(split.vectors) + i) * Expr::index(lanes);
            b.vector(path, lanes, |b, path, l| {
                assign(b, path, stage, &bound, &last, base + l, target)
            })
        })
    });
    if rest > 0 {
        stmts.extend(b.parallel(outer, false, |b, path, indices| {
            let bound = spread(&b.compute.stages[stage], &groups[..outer.len()], &indices);
            pieces(b, path, whole, rest, lanes, &mut |b, path, at| {
                assign(b, path, stage, &bound, &last, at, target)
            })
        }));
    }
    stmts
}

fn assign(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    bound: &[Expr],
    group: &Range<usize>,
    at: Expr,
    target: Target,
) -> Vec<Stmt> {
    let s = &b.compute.stages[stage];
    let indices = [bound, &spread(s, std::slice::from_ref(group), &[at])].concat();
    assign_at(b, path, stage, &indices, target)
}

/// One element, or a vector of them, of a stage without a reduction.
pub(super) fn assign_at(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    indices: &[Expr],
    target: Target,
) -> Vec<Stmt> {
    let value = b.body_at(stage, indices);
    let name = b.compute.stages[stage].name.clone();
    b.block(path, &name, Body::Assign { dst: target.at(indices), value })
}

/// The stage's inner axes, given expressions for the outer ones; `groups` covers the inner axes.
pub(super) fn emit(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    bound: &[Expr],
    groups: &[Range<usize>],
    target: Target,
) -> Vec<Stmt> {
    let s = &b.compute.stages[stage];
    let Some((last, outer)) = groups.split_last() else {
        return point(b, path, stage, bound, target);
    };
    let extents: Vec<usize> = outer.iter().map(|g| merged(s, g)).collect();
    let lanes = lanes_of(b, s);
    let extent = merged(s, last);
    b.serial_all(path, &extents, IterKind::Spatial, &mut |b, path, indices| {
        let bound = [bound, &spread(&b.compute.stages[stage], outer, &indices)].concat();
        match &b.compute.stages[stage].reduce {
            None => vectors(b, path, extent, lanes, &mut |b, path, at| {
                assign(b, path, stage, &bound, last, at, target)
            }),
            Some(r) if is_arg(r.combiner) || extent < lanes.min(4) => {
                b.serial(path, extent, IterKind::Spatial, |b, path, at| {
                    let s = &b.compute.stages[stage];
                    let indices =
                        [&bound[..], &spread(s, std::slice::from_ref(last), &[at])].concat();
                    point(b, path, stage, &indices, target)
                })
            }
            Some(_) => columns(b, path, stage, &bound, last, target),
        }
    })
}

/// One point of a stage.
fn point(b: &mut Builder<'_>, path: &Path, stage: usize, at: &[Expr], target: Target) -> Vec<Stmt> {
    let s = &b.compute.stages[stage];
    match &s.reduce {
        None => {
            let value = b.body_at(stage, at);
            b.block(path, &s.name, Body::Assign { dst: target.at(at), value })
        }
        Some(r) if is_arg(r.combiner) => extreme(b, path, stage, at, target),
        Some(_) => lanes_reduction(b, path, stage, at, target),
    }
}

fn is_arg(combiner: Combiner) -> bool {
    matches!(combiner, Combiner::ArgMax { .. } | Combiner::ArgMin { .. })
}

/// The position of an extreme, one term after another.
fn extreme(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    at: &[Expr],
    target: Target,
) -> Vec<Stmt> {
    let s = &b.compute.stages[stage];
    let r = s.reduce.as_ref().expect("a reduction").clone();
    let value_type = s.body.dtype(&|buffer| b.compute.buffer_type(buffer).dtype);
    let best = b.local("best", TensorType::new(value_type, []));
    let position = b.local("position", TensorType::new(s.ty.dtype, []));
    let scalar = |buffer| Access { buffer, indices: vec![] };
    let mut stmts = b.serial_all(path, &r.extents, IterKind::Reduce, &mut |b, path, terms| {
        let term = terms
            .iter()
            .zip(&r.extents)
            .fold(Expr::int(0), |sum, (t, &e)| sum * Expr::index(e) + t.clone());
        let value = b.body_at(stage, &[at, &terms].concat());
        let (best, position) = (scalar(best), scalar(position));
        b.block(
            path,
            &s.name,
            Body::ArgReduce { combiner: r.combiner, best, position, value, term, init: true },
        )
    });
    let value = Expr::Load(position, vec![]);
    stmts.extend(b.block(path, "position", Body::Assign { dst: target.at(at), value }));
    stmts
}

/// Vectors along the innermost spatial group: several at a time, each with its own running values.
fn columns(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    bound: &[Expr],
    last: &Range<usize>,
    target: Target,
) -> Vec<Stmt> {
    let s = &b.compute.stages[stage];
    let (lanes, extent) = (lanes_of(b, s), merged(s, last));
    let width = lanes * b.knobs.get(Knob::Partials).min(extent / lanes).max(1);
    let main = extent / width;
    let mut stmts = b.serial(path, main, IterKind::Spatial, |b, path, i| {
        if main == 0 {
            return vec![];
        }
        let widths = vec![lanes; width / lanes];
        column(b, path, stage, bound, last, i * Expr::index(width), &widths, target)
    });
    if main == 0 {
        stmts.clear();
    }
    let widths = widths_of(extent % width, lanes);
    if !widths.is_empty() {
        stmts.extend(column(
            b,
            path,
            stage,
            bound,
            last,
            Expr::index(main * width),
            &widths,
            target,
        ));
    }
    stmts
}

#[expect(
    clippy::too_many_arguments,
    reason = "one place in a nest; a struct would be taken apart at once"
)]
fn column(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    bound: &[Expr],
    last: &Range<usize>,
    base: Expr,
    widths: &[usize],
    target: Target,
) -> Vec<Stmt> {
    let s = &b.compute.stages[stage];
    let r = s.reduce.as_ref().expect("a reduction");
    let dtype = s.ty.dtype;
    let acc = b.local("acc", TensorType::new(dtype, [widths.iter().sum::<usize>()]));
    let identity = r.combiner.identity(dtype).expect("not an arg-combiner");
    let here = |l: &Expr| Access { buffer: acc, indices: vec![l.clone()] };
    let mut stmts = each_width(b, path, widths, &mut |b, path, l| {
        b.block(path, "init", Body::Assign { dst: here(&l), value: Expr::Const(identity) })
    });
    let at =
        |l: Expr| [bound, &spread(s, std::slice::from_ref(last), &[base.clone() + l])].concat();
    let groups = reduced_groups(b, s);
    let extents: Vec<usize> = groups.iter().map(|g| merged(s, g)).collect();
    stmts.extend(b.serial_all(path, &extents, IterKind::Reduce, &mut |b, path, terms| {
        let terms = spread(s, &groups, &terms);
        each_width(b, path, widths, &mut |b, path, l| {
            let value = b.body_at(stage, &[&at(l.clone())[..], &terms].concat());
            b.block(
                path,
                &s.name,
                Body::Reduce { combiner: r.combiner, dst: here(&l), value, init: false },
            )
        })
    }));
    stmts.extend(each_width(b, path, widths, &mut |b, path, l| {
        let value = Expr::Load(acc, vec![l.clone()]);
        b.block(path, "store", Body::Assign { dst: target.at(&at(l)), value })
    }));
    stmts
}

/// One result: vectors of partial results along the innermost reduction axis, combined at the end.
fn lanes_reduction(
    b: &mut Builder<'_>,
    path: &Path,
    stage: usize,
    at: &[Expr],
    target: Target,
) -> Vec<Stmt> {
    let s = &b.compute.stages[stage];
    let r = s.reduce.as_ref().expect("a reduction");
    let groups = reduced_groups(b, s);
    let extents: Vec<usize> = groups.iter().map(|g| merged(s, g)).collect();
    // The innermost group that has several terms; those of one term are left to it.
    let inner = extents.iter().rposition(|&extent| extent > 1).unwrap_or(0);
    let extent = extents.get(inner).copied().unwrap_or(1);
    let (outer, ones) = (extents[..inner].to_vec(), extents.len().saturating_sub(inner + 1));
    let lanes = narrowed(lanes_of(b, s), extent);
    let partials = b.knobs.get(Knob::Partials).min(extent / lanes).max(1);
    let width = if extent >= lanes { partials * lanes } else { 1 };
    let acc = b.local("acc", TensorType::new(s.ty.dtype, [width]));
    let here = |l: &Expr| Access { buffer: acc, indices: vec![l.clone()] };
    let identity = r.combiner.identity(s.ty.dtype).expect("not an arg-combiner");
    let widths = if width == 1 { vec![1] } else { vec![lanes; partials] };
    let mut stmts = each_width(b, path, &widths, &mut |b, path, l| {
        b.block(path, "init", Body::Assign { dst: here(&l), value: Expr::Const(identity) })
    });
    let term = |b: &mut Builder<'_>, path: &Path, terms: &[Expr], last: Expr, l: &Expr| {
        let terms = match r.extents.is_empty() {
            true => vec![],
            false => spread(s, &groups, &[terms, &[last], &vec![Expr::int(0); ones][..]].concat()),
        };
        let value = b.body_at(stage, &[at, &terms].concat());
        b.block(
            path,
            &s.name,
            Body::Reduce { combiner: r.combiner, dst: here(l), value, init: false },
        )
    };
    stmts.extend(b.serial_all(path, &outer, IterKind::Reduce, &mut |b, path, terms| {
        let main = extent / width;
        let mut stmts = b.serial(path, main, IterKind::Reduce, |b, path, i| {
            let base = i * Expr::index(width);
            each_width(b, path, &widths, &mut |b, path, l| {
                term(b, path, &terms, base.clone() + l.clone(), &l)
            })
        });
        let rest = widths_of(extent % width, lanes);
        stmts.extend(each_width(b, path, &rest, &mut |b, path, l| {
            term(b, path, &terms, Expr::index(main * width) + l.clone(), &l)
        }));
        stmts
    }));
    stmts.extend(fold(b, path, acc, partials, lanes.min(width), r.combiner));
    let value = Expr::Load(acc, vec![Expr::int(0)]);
    stmts.extend(b.block(path, "store", Body::Assign { dst: target.at(at), value }));
    stmts
}

/// Vectors that are no longer than the axis, as long as they are worth their sum at the end.
fn narrowed(lanes: usize, extent: usize) -> usize {
    let fits = |n: &usize| *n <= extent;
    [lanes, lanes / 2, lanes / 4].into_iter().filter(|&n| n >= 4).find(fits).unwrap_or(lanes)
}

/// Combines `partials` vectors of `lanes` in `acc` into its first element.
fn fold(
    b: &mut Builder<'_>,
    path: &Path,
    acc: BufId,
    partials: usize,
    lanes: usize,
    combiner: Combiner,
) -> Vec<Stmt> {
    let reduce = |b: &mut Builder<'_>, path: &Path, to: Expr, from: Expr| {
        let dst = Access { buffer: acc, indices: vec![to] };
        let value = Expr::Load(acc, vec![from]);
        b.block(path, "fold", Body::Reduce { combiner, dst, value, init: false })
    };
    let mut stmts = Vec::new();
    for (from, width) in fold_steps(partials, lanes) {
        let offset = Expr::index(from);
        stmts.extend(b.vector(path, width, |b, path, l| reduce(b, path, l.clone(), offset + l)));
    }
    stmts
}

/// `f` in vectors of the given widths, one after another.
pub(super) fn each_width(
    b: &mut Builder<'_>,
    path: &Path,
    widths: &[usize],
    f: &mut dyn FnMut(&mut Builder<'_>, &Path, Expr) -> Vec<Stmt>,
) -> Vec<Stmt> {
    let mut stmts = Vec::new();
    let mut at = 0;
    for &width in widths {
        let base = Expr::index(at);
        stmts.extend(b.vector(path, width, |b, path, l| f(b, path, plus(base, l))));
        at += width;
    }
    stmts
}

/// `a + b` where a zero is left out, so that the text of programs stays readable.
pub(super) fn plus(a: Expr, b: Expr) -> Expr {
    match (&a, &b) {
        (Expr::Const(c), _) if c.is_zero() => b,
        (_, Expr::Const(c)) if c.is_zero() => a,
        _ => a + b,
    }
}

/// Whole vectors in a loop, perhaps several in a row, then the pieces that are left.
pub(super) fn vectors(
    b: &mut Builder<'_>,
    path: &Path,
    extent: usize,
    lanes: usize,
    f: &mut dyn FnMut(&mut Builder<'_>, &Path, Expr) -> Vec<Stmt>,
) -> Vec<Stmt> {
    let wanted = b.knobs.get(Knob::Vectors).max(1);
    let in_row = if extent / lanes >= wanted { wanted } else { 1 };
    rows_of_vectors(b, path, extent, (lanes, in_row), f)
}

/// Whole vectors in a loop, so many in a row, then the pieces that are left.
pub(super) fn rows_of_vectors(
    b: &mut Builder<'_>,
    path: &Path,
    extent: usize,
    (lanes, in_row): (usize, usize),
    f: &mut dyn FnMut(&mut Builder<'_>, &Path, Expr) -> Vec<Stmt>,
) -> Vec<Stmt> {
    let width = in_row * lanes;
    let main = extent / width;
    let mut stmts = Vec::new();
    if main > 0 {
        stmts = b.serial(path, main, IterKind::Spatial, |b, path, i| {
            let base = if main == 1 { Expr::int(0) } else { i * Expr::index(width) };
            b.unrolled(path, in_row, IterKind::Spatial, |b, path, u| {
                let base = if in_row == 1 { base } else { plus(base, u * Expr::index(lanes)) };
                b.vector(path, lanes, |b, path, l| f(b, path, plus(base, l)))
            })
        });
    }
    stmts.extend(pieces(b, path, main * width, extent % width, lanes, f));
    stmts
}

/// `rest` elements from `start` on, the last ones of an axis, in vectors of powers of two, each of which is a statement: there
/// are fewer than a few vectors of them. None of them depends on another, so the last vector may compute a few once more.
pub(super) fn pieces(
    b: &mut Builder<'_>,
    path: &Path,
    start: usize,
    rest: usize,
    lanes: usize,
    f: &mut dyn FnMut(&mut Builder<'_>, &Path, Expr) -> Vec<Stmt>,
) -> Vec<Stmt> {
    let mut stmts = Vec::new();
    for (at, width) in cover(start, rest, lanes) {
        let base = Expr::index(at);
        stmts.extend(b.vector(path, width, |b, path, l| f(b, path, plus(base, l))));
    }
    stmts
}

/// Lanes by the widest type that the stage touches.
pub(super) fn lanes_of(b: &Builder<'_>, s: &Stage) -> usize {
    walk::lanes(b.compute, b.machine, s)
}

/// The spatial axes from `first` on as groups of neighbours that every operand walks as one.
pub(super) fn mergeable(b: &Builder<'_>, s: &Stage, first: usize) -> Vec<Range<usize>> {
    walk::groups(b.compute, s, first..s.ty.rank())
}

/// The same of the axes of its reduction.
fn reduced_groups(b: &Builder<'_>, s: &Stage) -> Vec<Range<usize>> {
    walk::groups(b.compute, s, s.ty.rank()..s.extents().len())
}

/// An index for each axis of `groups` from one index for each group.
pub(super) fn spread(s: &Stage, groups: &[Range<usize>], indices: &[Expr]) -> Vec<Expr> {
    groups
        .iter()
        .zip(indices)
        .flat_map(|(group, index)| spread_one(&s.extents()[group.clone()], index))
        .collect()
}

fn spread_one(extents: &[usize], index: &Expr) -> Vec<Expr> {
    let mut inner: usize = extents.iter().product();
    let mut seen_wider = false;
    let mut indices = Vec::new();
    for &extent in extents {
        inner /= extent.max(1);
        let divided =
            if inner == 1 { index.clone() } else { index.clone().floor_div(inner as i64) };
        indices.push(match extent {
            1 => Expr::int(0),
            _ if seen_wider => divided.floor_mod(extent as i64),
            _ => divided,
        });
        seen_wider |= extent > 1;
    }
    indices
}
