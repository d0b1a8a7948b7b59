//! Stages that combine each element with all before it, told by how they double the distance: one
//! pass with a running value.
//!
//! ```text
//! s1[i, j] = x[i, j] + select(1 <= i, x[i - 1, j], 0);  s2[i, j] = s1[i, j] + select(2 <= i, s1[i - 2, j], 0);  ..
//! =>
//! parallel jo { run[0..16] = 0;  for i { run[l] += x[i, jo * 16 + l];  s[i, jo * 16 + l] = run[l] } }
//! ```
//!
//! Vectors lie along the axes inside of the one that is run along; where these are too short,
//! several rows are done side by side. What reads the result at its own place, and nothing else
//! does, is computed in the same pass.

use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Stage, TensorType};

use super::build::{Builder, Path};
use super::stage::{lanes_of, mergeable, plus, spread};
use super::usage::readers;
use crate::program::{Access, Body, For, ForKind, IterKind, Stmt};
use crate::vectors::cover;
use crate::walk::{is_worthwhile, merged};

/// Rows without vectors that are done side by side.
const SIDE_BY_SIDE: usize = 4;
/// Vectors of running values.
const VECTORS: usize = 8;

/// `stage[i] = combine(x[i], stage[i - 1])` along an axis.
struct Scan {
    stages: std::ops::Range<usize>,
    source: BufId,
    combiner: Combiner,
    axis: usize,
    /// From the last element to the first.
    reverse: bool,
    /// The stage that is written in place of the last one.
    result: usize,
}

/// One stage of the chain.
#[derive(Clone, Copy, PartialEq)]
struct Doubling {
    source: BufId,
    op: BinOp,
    axis: usize,
    reverse: bool,
    distance: usize,
}

/// Whether the stage is one of a chain that doubles distances.
pub(crate) fn is_step(stage: &Stage) -> bool {
    Doubling::of(stage).is_some()
}

pub(super) fn schedule(b: &mut Builder<'_>, first: usize) -> Option<Vec<usize>> {
    let scan = Scan::from(b.compute, first)?;
    let (s, lanes) = (&b.compute.stages[first], lanes_of(b, &b.compute.stages[first]));
    let inner = mergeable(b, s, scan.axis + 1);
    let width = inner.last().map_or(1, |group| merged(s, group));
    let stmts = if width >= lanes.min(4) { scan.in_vectors(b, lanes) } else { scan.in_rows(b) };
    b.push(stmts);
    Some(scan.stages.clone().chain([scan.result]).collect())
}

impl Doubling {
    fn of(stage: &Stage) -> Option<Doubling> {
        let Expr::Binary(op @ (BinOp::Add | BinOp::Mul), near, far) = &stage.body else {
            return None;
        };
        let (Expr::Load(source, own), Expr::Select(inside, there, neutral)) = (&**near, &**far)
        else {
            return None;
        };
        let Expr::Load(same, at) = &**there else { return None };
        let identity = combiner(*op).identity(stage.ty.dtype)?;
        let rank = stage.ty.rank();
        if same != source || !(0..rank).map(Expr::var).eq(own.iter().cloned()) {
            return None;
        }
        let mut moved = (0..rank).filter(|&axis| at[axis] != own[axis]);
        let (axis, None) = (moved.next()?, moved.next()) else { return None };
        let (reverse, distance) = shift(&at[axis], axis)?;
        let doubling = Doubling { source: *source, op: *op, axis, reverse, distance };
        let plain = stage.reduce.is_none() && **neutral == Expr::Const(identity);
        (plain && **inside == doubling.inside(stage)).then_some(doubling)
    }

    /// Whether there is an element at the distance.
    fn inside(&self, stage: &Stage) -> Expr {
        let (at, distance) = (Expr::var(self.axis), Expr::index(self.distance));
        match self.reverse {
            false => distance.le(at),
            true => (at + distance).lt(Expr::index(stage.ty.shape[self.axis])),
        }
    }
}

/// Whether the index is the axis plus a distance, and not minus one.
fn shift(index: &Expr, axis: usize) -> Option<(bool, usize)> {
    let Expr::Binary(op @ (BinOp::Add | BinOp::Sub), at, by) = index else { return None };
    let distance = usize::try_from(by.as_const()?.as_i64()).ok()?;
    (**at == Expr::var(axis)).then_some((*op == BinOp::Add, distance))
}

fn combiner(op: BinOp) -> Combiner {
    if op == BinOp::Mul { Combiner::Prod } else { Combiner::Sum }
}

impl Scan {
    /// A chain that begins here and covers the axis.
    fn from(compute: &Compute, first: usize) -> Option<Scan> {
        let start = Doubling::of(&compute.stages[first]).filter(|step| step.distance == 1)?;
        let extent = compute.stages[first].ty.shape[start.axis];
        let (mut last, mut reach) = (first, 2);
        while reach < extent {
            let own = compute.stage_buffer(last);
            let next = Doubling { source: own, distance: reach, ..start };
            let is_next = Doubling::of(compute.stages.get(last + 1)?) == Some(next);
            let alone = readers(compute, own) == [last + 1] && !compute.outputs.contains(&last);
            if !is_next || !alone {
                return None;
            }
            (last, reach) = (last + 1, 2 * reach);
        }
        Some(Scan {
            stages: first..last + 1,
            source: start.source,
            combiner: combiner(start.op),
            axis: start.axis,
            reverse: start.reverse,
            result: result_of(compute, last),
        })
    }

    /// Axes inside of the running one in vectors.
    fn in_vectors(&self, b: &mut Builder<'_>, lanes: usize) -> Vec<Stmt> {
        let s = &b.compute.stages[self.result];
        let axis = self.axis..self.axis + 1;
        let outer: Vec<_> = (0..self.axis).map(|axis| axis..axis + 1).collect();
        let mut inner = mergeable(b, &b.compute.stages[self.stages.start], self.axis + 1);
        let last = inner.pop().expect("a group of axes");
        let around = [outer, inner].concat();
        let mut extents: Vec<usize> = around.iter().map(|group| merged(s, group)).collect();
        let (extent, chunk) = (merged(s, &last), VECTORS * lanes);
        let at = |indices: &[Expr], i: Expr, column: Expr| {
            let groups = [&around[..], &[axis.clone(), last.clone()]].concat();
            let indices = [indices, &[i, column]].concat();
            let mut places: Vec<_> = groups.iter().cloned().zip(indices).collect();
            places.sort_by_key(|(group, _)| group.start);
            let (groups, indices): (Vec<_>, Vec<_>) = places.into_iter().unzip();
            spread(s, &groups, &indices)
        };
        let worthwhile = is_worthwhile(s);
        let mut stmts = vec![];
        extents.push(extent / chunk);
        if extent >= chunk {
            stmts = b.parallel(&extents, worthwhile, |b, path, mut indices| {
                let base = indices.pop().expect("a chunk") * Expr::index(chunk);
                let pieces: Vec<_> = (0..VECTORS).map(|v| (v * lanes, lanes)).collect();
                self.run(b, path, &pieces, &|i, l| at(&indices, i, plus(base.clone(), l)))
            });
        }
        let pieces = cover(extent / chunk * chunk, extent % chunk, lanes);
        if !pieces.is_empty() {
            extents.pop();
            stmts.extend(b.parallel(&extents, worthwhile, |b, path, indices| {
                self.run(b, path, &pieces, &|i, l| at(&indices, i, l))
            }));
        }
        stmts
    }

    /// Several rows side by side, element by element.
    fn in_rows(&self, b: &mut Builder<'_>) -> Vec<Stmt> {
        let s = &b.compute.stages[self.result];
        let mut extents = s.ty.shape.clone();
        extents.remove(self.axis);
        let wide = extents.iter().rposition(|extent| extent.is_multiple_of(SIDE_BY_SIDE));
        let rows = if wide.is_some() { SIDE_BY_SIDE } else { 1 };
        wide.into_iter().for_each(|axis| extents[axis] /= rows);
        b.parallel(&extents, is_worthwhile(s), |b, path, indices| {
            let pieces: Vec<_> = (0..rows).map(|row| (row, 1)).collect();
            self.run(b, path, &pieces, &|i, row| {
                let mut at = indices.clone();
                if let Some(axis) = wide {
                    at[axis] = plus(at[axis].clone() * Expr::index(rows), row);
                }
                at.insert(self.axis, i);
                at
            })
        })
    }

    /// The running values of these pieces, given the place of an element.
    fn run(
        &self,
        b: &mut Builder<'_>,
        path: &Path,
        pieces: &[(usize, usize)],
        at: &dyn Fn(Expr, Expr) -> Vec<Expr>,
    ) -> Vec<Stmt> {
        let s = &b.compute.stages[self.stages.start];
        let (dtype, extent) = (s.ty.dtype, s.ty.shape[self.axis]);
        let identity = self.combiner.identity(dtype).expect("not an arg-combiner");
        let running = |buffer: BufId, l: &Expr| Access { buffer, indices: vec![l.clone()] };
        let buffers: Vec<BufId> = pieces
            .iter()
            .map(|(_, width)| b.local("running", TensorType::new(dtype, [*width])))
            .collect();
        let mut stmts = vec![];
        for (&(_, width), &buffer) in pieces.iter().zip(&buffers) {
            stmts.extend(b.vector(path, width, |b, path, l| {
                let (dst, value) = (running(buffer, &l), Expr::Const(identity));
                b.block(path, "init", Body::Assign { dst, value })
            }));
        }
        let var = b.program.add_var("i");
        let of_kind = |kind| [&path[..], &[Builder::step(var, extent, kind)]].concat();
        let (adding, storing) = (of_kind(IterKind::Reduce), of_kind(IterKind::Spatial));
        let step = match self.reverse {
            false => Expr::Var(var),
            true => Expr::index(extent - 1) - Expr::Var(var),
        };
        let mut body = vec![];
        for (&(first, width), &buffer) in pieces.iter().zip(&buffers) {
            let place = |l: Expr| at(step.clone(), plus(Expr::index(first), l));
            body.extend(b.vector(&adding, width, |b, path, l| {
                let (dst, value) = (running(buffer, &l), b.load(self.source, &place(l)));
                let (combiner, init) = (self.combiner, false);
                b.block(path, "scan", Body::Reduce { combiner, dst, value, init })
            }));
            body.extend(b.vector(&storing, width, |b, path, l| {
                let value = Expr::Load(buffer, vec![l.clone()]);
                self.store(b, path, &place(l), value)
            }));
        }
        stmts.push(Stmt::For(Box::new(For { var, extent, kind: ForKind::Serial, body })));
        stmts
    }

    /// The result at a place, made of the running value.
    fn store(&self, b: &mut Builder<'_>, path: &Path, at: &[Expr], running: Expr) -> Vec<Stmt> {
        let last = self.stages.end - 1;
        let own = b.source(b.compute.stage_buffer(last));
        let value = match self.result == last {
            true => running,
            false => b.body_at(self.result, at).rewrite(&mut |e| match e {
                Expr::Load(buffer, _) if *buffer == own => Some(running.clone()),
                _ => None,
            }),
        };
        let buffer = b.source(b.compute.stage_buffer(self.result));
        let name = b.compute.stages[self.result].name.clone();
        let dst = Access { buffer, indices: at.to_vec() };
        b.block(path, &name, Body::Assign { dst, value })
    }
}

/// The only reader of the stage, if it comes next and reads it at its own place; or the stage
/// itself.
fn result_of(compute: &Compute, last: usize) -> usize {
    let own = compute.stage_buffer(last);
    let next = last + 1;
    let Some(reader) = compute.stages.get(next) else { return last };
    let here: Vec<Expr> = (0..reader.ty.rank()).map(Expr::var).collect();
    let mut of_own = reader.body.loads().into_iter().filter(|(buffer, _)| *buffer == own);
    let at_own_place = of_own.all(|(_, at)| at == here);
    let alone = readers(compute, own) == [next] && !compute.outputs.contains(&last);
    let alike = reader.reduce.is_none() && reader.ty.shape == compute.stages[last].ty.shape;
    if alone && alike && at_own_place { next } else { last }
}

#[cfg(test)]
mod tests {
    use ansc_graph::ops::cumulative::{Cumulative, cumulative};
    use ansc_runtime::DType;

    use super::*;
    use crate::default::{Machine, schedule};
    use crate::testing::compare_scheduled;

    fn scanned(shape: &[usize], attrs: Cumulative) {
        let op = cumulative(attrs, &TensorType::new(DType::F32, shape)).unwrap();
        let machine = Machine::new(32, 16);
        let made = schedule("k", &op.expr, &[false], &machine);
        compare_scheduled(&op.expr, &made).unwrap_or_else(|e| panic!("{e}\n{}", made.program));
        let running = made.program.buffers.iter().filter(|b| b.name.starts_with("running"));
        assert_ne!(running.count(), 0, "{}", made.program);
    }

    /// The distance lies along an axis that the source lacks: nothing is cumulated.
    #[test]
    fn a_source_of_another_rank_is_no_step() {
        let text = "compute(in0: f32[2, 7], in1: f32[7]) -> y {
          y: f32[2, 7] = add(in1[i1], select(le(1, i1), in1[sub(i1, 1)], 0.0_f32))
        }";
        let compute = Compute::parse(text).unwrap();
        assert!(!is_step(&compute.stages[0]));
        let machine = Machine::new(32, 16);
        compare_scheduled(&compute, &schedule("k", &compute, &[false; 2], &machine)).unwrap();
    }

    #[test]
    fn cumulative_sums_are_one_pass() {
        for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
            for op in [BinOp::Add, BinOp::Mul] {
                let attrs = |axis| Cumulative { axis, op, exclusive, reverse };
                scanned(&[3, 5, 2], attrs(1));
                scanned(&[4, 9], attrs(1));
                scanned(&[9, 83], attrs(0));
                scanned(&[2, 7, 3, 19], attrs(1));
            }
        }
    }
}
