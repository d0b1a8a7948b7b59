//! A product whose factors lie as a unit for matrices takes them.
//!
//! ```text
//! y[i, j] = sum{k: 40} f32(a[i, k]) * f32(b[k, j])            a: bf16[64, 40], b: bf16[40, 24]
//! =>
//! panels[p, t, g, l, q] = b[t * 20 + g * 2 + q, p * 16 + l]   bf16[2, 2, 10, 16, 2], zero beyond b
//! tiles[p, i, l] = sum{t: 2, g: 10, q: 2} f32(a[i, t * 20 + g * 2 + q]) * f32(panels[p, t, g, l, q])
//! y[i, j] = tiles[j // 16, i, j % 16]
//! ```
//!
//! Terms come in steps `t`, each of which is one instruction, and in groups `g` of as many as fit
//! four bytes. The first factor stays as it is: its terms lie side by side. Panels are made when
//! compiling if the second factor is a constant, in each run otherwise. Convolutions of few
//! channels become ones of [`lines`] before.

mod lines;

use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Reduce, Scalar, Stage, TensorType, VarId};
use ansc_runtime::DType;

use super::{Replacing, Rewritten};
use crate::affine::{Digit, Extents, Source, Sum};
use crate::intrinsic::amx::{self, COLUMNS, ROWS};
use crate::packed;
use crate::task::Task;
use crate::usage;

/// Steps must not be more than so many times as many as the terms take at least.
const FEWEST: usize = 2;

/// A stage that is such a product.
struct Product {
    stage: usize,
    factors: [DType; 2],
    a: Factor,
    b: Factor,
    /// The innermost axis of the result, along which only the second factor moves.
    columns: usize,
    /// The last axis along which only the first factor moves. Panels come just before it.
    row: usize,
    /// The terms that lie side by side in the first factor, and their number.
    terms: (VarId, usize),
    /// Terms of a step.
    step: usize,
}

struct Factor {
    buffer: BufId,
    at: Vec<Expr>,
}

/// None where no stage is such a product.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    let Some(lines) = lines::rewrite(task) else {
        return Some(Product::find(&task.compute)?.rewrite(task));
    };
    let tiles = Product::find(&lines.task.compute)?.rewrite(&lines.task);
    Some(Rewritten { task: tiles.task, prepared: packed::in_turn(lines.prepared, tiles.prepared) })
}

/// Types of the factors of the product that the algorithm would rewrite.
pub(crate) fn factors(task: &Task) -> Option<[DType; 2]> {
    let lines = lines::rewrite(task);
    Some(Product::find(&lines.as_ref().map_or(task, |lines| &lines.task).compute)?.factors)
}

impl Product {
    /// The first stage that is one.
    fn find(compute: &Compute) -> Option<Product> {
        (0..compute.stages.len()).find_map(|stage| Product::of(compute, stage))
    }

    fn of(compute: &Compute, stage: usize) -> Option<Product> {
        let s = &compute.stages[stage];
        let [x, y] = usage::factors(s)?;
        let [x, y] = [factor(compute, x)?, factor(compute, y)?];
        Product::with(compute, stage, [&x, &y]).or_else(|| Product::with(compute, stage, [&y, &x]))
    }

    fn with(
        compute: &Compute,
        stage: usize,
        [(x, a), (y, b)]: [&(DType, Factor); 2],
    ) -> Option<Product> {
        let (s, factors) = (&compute.stages[stage], [*x, *y]);
        if amx::sum_of(factors) != Some(s.ty.dtype) {
            return None;
        }
        let (rank, extents) = (s.ty.rank(), s.extents());
        let columns = rank.checked_sub(1)?;
        let alone = |factor: &Factor, v: usize| factor.axis(v).is_some();
        let moves =
            |factor: &Factor, v: usize| factor.at.iter().any(|e| e.vars().contains(&VarId::new(v)));
        if !alone(b, columns) || moves(a, columns) {
            return None;
        }
        let terms = a.side_by_side(rank, &extents)?;
        let count = extents[terms.index()];
        if !alone(b, terms.index()) {
            return None;
        }
        let is_row = |v: &usize| moves(a, *v) && !moves(b, *v) && extents[*v] > 1;
        let row = (0..columns).rev().find(is_row)?;
        let step = step(count, amx::group(*x))?;
        let [a, b] = [a, b].map(|f| Factor { buffer: f.buffer, at: f.at.clone() });
        let terms = (terms, count);
        Some(Product { stage, factors, a, b, columns, row, terms, step })
    }

    fn rewrite(&self, task: &Task) -> Rewritten {
        let mut compute = Replacing::new(&task.compute, self.stage);
        let original = &task.compute.stages[self.stage];
        let (rank, mut prepared) = (original.ty.rank(), vec![]);
        let panels = compute
            .laid_out(task, self.b.buffer, &mut prepared, |from| self.panels(&task.compute, from));
        let tiles = compute.push(self.tiles(original, panels));
        let mut at: Vec<Expr> = (0..rank - 1).map(Expr::var).collect();
        let column = Expr::var(self.columns);
        at.insert(self.row, column.clone().floor_div(COLUMNS as i64));
        at.push(Expr::binary(BinOp::FloorMod, column, Expr::index(COLUMNS)));
        let body = Expr::Load(tiles, at);
        compute.push(Stage::map(&original.name, original.ty.clone(), body));
        Rewritten { task: Task { compute: compute.done(), ..task.clone() }, prepared }
    }

    /// Axes of the result that the second factor walks along, other than columns; then reduced axes
    /// other than the terms.
    fn outer(&self, s: &Stage) -> (Vec<usize>, Vec<usize>) {
        let (rank, all) = (s.ty.rank(), s.extents().len());
        let used = |v: &usize| self.b.at.iter().any(|e| e.vars().contains(&VarId::new(*v)));
        let spatial = (0..rank).filter(|&v| v != self.columns).filter(used).collect();
        let reduced = (rank..all).filter(|&v| v != self.terms.0.index()).collect();
        (spatial, reduced)
    }

    /// `panels[batch.., p, window.., t, g, l, q]`
    fn panels(&self, compute: &Compute, from: BufId) -> Stage {
        let s = &compute.stages[self.stage];
        let (extents, q) = (s.extents(), amx::group(self.factors[1]));
        let (spatial, reduced) = self.outer(s);
        let columns = extents[self.columns];
        let count = columns.div_ceil(COLUMNS);
        let mut shape: Vec<usize> = spatial.iter().map(|&v| extents[v]).collect();
        shape.push(count);
        shape.extend(reduced.iter().map(|&v| extents[v]));
        shape.extend([self.terms.1 / self.step, self.step / q, COLUMNS, q]);
        let n = shape.len();
        let (p, l) = (Expr::var(spatial.len()), Expr::var(n - 2));
        let column = p * Expr::index(COLUMNS) + l;
        let term = self.term(Expr::var(n - 4), Expr::var(n - 3), Expr::var(n - 1), q);
        let place = |v: VarId| match v.index() {
            v if v == self.columns => Some(column.clone()),
            v if v == self.terms.0.index() => Some(term.clone()),
            v => {
                let first = spatial.iter().position(|&own| own == v);
                let behind = || Some(spatial.len() + 1 + reduced.iter().position(|&own| own == v)?);
                first.or_else(behind).map(Expr::var)
            }
        };
        let load = Expr::Load(from, self.b.at.iter().map(|e| e.substitute(&place)).collect());
        let body = match columns % COLUMNS {
            0 => load,
            _ => {
                let inside = Expr::binary(BinOp::Lt, column.clone(), Expr::index(columns));
                Expr::select(inside, load, Expr::Const(Scalar::zero(self.factors[1])))
            }
        };
        Stage::map("panels", TensorType::new(self.factors[1], shape), body)
    }

    /// `tiles[.., p, row, l] = sum{window.., t, g, q}`
    fn tiles(&self, original: &Stage, panels: BufId) -> Stage {
        let (extents, q) = (original.extents(), amx::group(self.factors[0]));
        let rank = original.ty.rank();
        let (spatial, reduced) = self.outer(original);
        let mut shape: Vec<usize> = original.ty.shape[..self.columns].to_vec();
        shape.insert(self.row, extents[self.columns].div_ceil(COLUMNS));
        shape.push(COLUMNS);
        let mut terms: Vec<usize> = reduced.iter().map(|&v| extents[v]).collect();
        terms.extend([self.terms.1 / self.step, self.step / q, q]);
        let (p, l) = (Expr::var(self.row), Expr::var(rank));
        let spatial_place = |v: usize| Expr::var(if v < self.row { v } else { v + 1 });
        let first = rank + 1 + reduced.len();
        let [t, g, byte] = [0, 1, 2].map(|i| Expr::var(first + i));
        let term = self.term(t.clone(), g.clone(), byte.clone(), q);
        let place = |v: VarId| match v.index() {
            v if v == self.terms.0.index() => Some(term.clone()),
            v if v < rank => Some(spatial_place(v)),
            v => reduced.iter().position(|&own| own == v).map(|i| Expr::var(rank + 1 + i)),
        };
        let a = self.a.at.iter().map(|e| e.substitute(&place)).collect();
        let mut b: Vec<Expr> = spatial.iter().map(|&v| spatial_place(v)).collect();
        b.push(p);
        b.extend((0..reduced.len()).map(|i| Expr::var(rank + 1 + i)));
        b.extend([t, g, l, byte]);
        let sum = original.ty.dtype;
        let wide = |dtype, buffer, at| Expr::cast(dtype, sum, Expr::Load(buffer, at));
        let [x, y] = self.factors;
        Stage {
            name: "tiles".into(),
            ty: TensorType::new(sum, shape),
            reduce: Some(Reduce { combiner: Combiner::Sum, extents: terms }),
            body: wide(x, self.a.buffer, a) * wide(y, panels, b),
        }
    }

    fn term(&self, t: Expr, g: Expr, byte: Expr, q: usize) -> Expr {
        t * Expr::index(self.step) + g * Expr::index(q) + byte
    }
}

impl Factor {
    /// The terms that lie side by side, maybe behind a place that depends on an axis of the result.
    fn side_by_side(&self, rank: usize, extents: &[usize]) -> Option<VarId> {
        let (last, outer) = self.at.split_last()?;
        let sum = Sum::of(last, &Extents::of_axes(extents));
        let is_whole = |d: &Digit| d.divisor == 1 && d.modulus.is_none();
        let (terms, place) = sum.partition(|digit, c| {
            let is_term = matches!(digit.source, Source::Var(v) if v.index() >= rank);
            is_term && is_whole(digit) && c == 1
        });
        let mut own = terms.terms.keys();
        let (Some(Digit { source: Source::Var(v), .. }), None) = (own.next(), own.next()) else {
            return None;
        };
        let is_place = |d: &Digit| matches!(d.source, Source::Var(v) if v.index() < rank);
        let in_others = outer.iter().any(|e| e.vars().contains(v));
        let begins_at = place.constant == 0 && place.terms.len() <= 1;
        (begins_at && !in_others && place.terms.keys().all(is_place)).then_some(*v)
    }

    /// The index that is the variable and nothing else, if no other one mentions it.
    fn axis(&self, v: usize) -> Option<usize> {
        let var = VarId::new(v);
        let mut mentioning = (0..self.at.len()).filter(|&i| self.at[i].vars().contains(&var));
        let axis = mentioning.next()?;
        (mentioning.next().is_none() && self.at[axis] == Expr::Var(var)).then_some(axis)
    }
}

/// An element that is converted to the type of sums.
fn factor(compute: &Compute, e: &Expr) -> Option<(DType, Factor)> {
    let Expr::Cast(_, x) = e else { return None };
    let Expr::Load(buffer, at) = &**x else { return None };
    let factor = Factor { buffer: *buffer, at: at.clone() };
    Some((compute.buffer_type(*buffer).dtype, factor))
}

/// As many terms as a tile holds, or fewer, so that all steps have as many, in whole groups.
fn step(terms: usize, group: usize) -> Option<usize> {
    let most = ROWS * group;
    let fits = |n: &usize| n.is_multiple_of(group) && terms.is_multiple_of(*n);
    let step = (group..=most.min(terms)).rev().find(fits)?;
    (terms / step <= FEWEST * terms.div_ceil(most)).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_alike_and_few() {
        let steps = [32, 64, 40, 72, 144, 24, 2, 3, 197, 1024].map(|n| step(n, 2));
        let expected = [
            Some(32),
            Some(32),
            Some(20),
            Some(24),
            Some(24),
            Some(24),
            Some(2),
            None,
            None,
            Some(32),
        ];
        assert_eq!(steps, expected);
        assert_eq!([64, 96, 20, 30].map(|n| step(n, 4)), [Some(64), Some(48), Some(20), None]);
    }
}
