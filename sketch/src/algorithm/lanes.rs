//! A sum of products with few columns: terms lie in the lanes of vectors, where columns would leave
//! most lanes empty.
//!
//! ```text
//! y[p, k]     = sum{r, c: 64} a[p, r, c] * w[r, c, k]                         k: 3
//! =>
//! lanes[p, j] = sum{r, c: 4} a[p, r, c * 16 + j % 16] * beside[r, c, j]       j: 48
//! y[p, k]     = sum{l: 16} lanes[p, k * 16 + l]
//! ```
//!
//! The terms that lie side by side in the one factor become lanes, and each column is a vector of
//! partial sums. `beside` are the weights in this order: a constant, made when compiling. The last
//! layer of a network that makes pictures or masks is such a sum.

use ansc_graph::{BufId, Combiner, Compute, Expr, Stage, TensorType, VarId};
use ansc_runtime::DType;

use super::{Replacing, Rewritten};
use crate::packed::Packing;
use crate::task::Task;
use crate::usage::{factors, mentions};

/// None where no stage is such a sum.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    if task.gpu.is_some() {
        return None;
    }
    let sum = (0..task.compute.stages.len()).find_map(|stage| Sum::of(task, stage))?;
    Some(sum.rewrite(task))
}

/// A sum of products of something, whose terms are side by side there, and a constant.
struct Sum<'a> {
    stage: usize,
    lanes: usize,
    /// The variable of the terms that are side by side.
    term: VarId,
    read: (BufId, &'a [Expr]),
    weight: Weight<'a>,
}

struct Weight<'a> {
    buffer: BufId,
    param: usize,
    at: &'a [Expr],
    /// Its axis of those terms, and that of columns, if there are several.
    terms: usize,
    columns: Option<usize>,
}

impl<'a> Sum<'a> {
    fn of(task: &'a Task, stage: usize) -> Option<Sum<'a>> {
        let s = &task.compute.stages[stage];
        let reduce = s.reduce.as_ref()?;
        let last = s.ty.rank().checked_sub(1)?;
        let (columns, lanes) = (s.ty.shape[last], task.machine.vector_bytes / 4);
        // Vectors of half the width may be as fast.
        let few = 2 * columns < lanes;
        if s.ty.dtype != DType::F32 || !few {
            return None;
        }
        let [Expr::Load(a, at), Expr::Load(b, weight_at)] = factors(s)? else { return None };
        let param = task.sole_constant(*b)?;
        let term = *at.last()?.vars().iter().next()?;
        let extent = *reduce.extents.get(term.index().checked_sub(s.ty.rank())?)?;
        let is_plain =
            *at.last()? == Expr::Var(term) && !mentions(&at[..at.len() - 1], term.index());
        let wanted = is_plain && extent.is_multiple_of(lanes) && !mentions(at, last);
        let axis = |var: VarId| weight_at.iter().position(|i| *i == Expr::Var(var));
        let only = |var: VarId| weight_at.iter().filter(|i| i.vars().contains(&var)).count() == 1;
        let column = VarId::new(last);
        let has_columns = mentions(weight_at, last);
        if !wanted || !only(term) || has_columns && !only(column) || columns > 1 && !has_columns {
            return None;
        }
        let columns = match has_columns {
            true => Some(axis(column)?),
            false => None,
        };
        let weight = Weight { buffer: *b, param, at: weight_at, terms: axis(term)?, columns };
        Some(Sum { stage, lanes, term, read: (*a, at), weight })
    }

    fn rewrite(&self, task: &Task) -> Rewritten {
        let s = &task.compute.stages[self.stage];
        let (rank, lanes) = (s.ty.rank(), self.lanes);
        let mut result = Replacing::new(&task.compute, self.stage);
        let prepared = vec![self.beside(&mut result.compute, s.ty.shape[rank - 1])];

        let (vector, term) = (Expr::var(rank - 1), Expr::Var(self.term));
        let (read, at) = self.read;
        let mut at = at.to_vec();
        let lane = vector.clone().floor_mod(lanes as i64);
        *at.last_mut().expect("a term") = term.clone() * Expr::index(lanes) + lane;
        let own = (0..self.weight.at.len()).filter(|axis| !self.weight.is_moved(*axis));
        let mut weight_at: Vec<Expr> = own.map(|axis| self.weight.at[axis].clone()).collect();
        weight_at.extend([term, vector]);
        let mut sums = s.clone();
        sums.name = "lanes".into();
        let mut shape = s.ty.shape.to_vec();
        shape[rank - 1] *= lanes;
        sums.ty = TensorType::new(DType::F32, &shape[..]);
        sums.reduce.as_mut().expect("a sum").extents[self.term.index() - rank] /= lanes;
        sums.body = Expr::Load(read, at) * Expr::Load(self.weight.buffer, weight_at);
        let sums = result.push(sums);

        let mut at: Vec<Expr> = (0..rank).map(Expr::var).collect();
        at[rank - 1] = at[rank - 1].clone() * Expr::index(lanes) + Expr::var(rank);
        let body = Expr::Load(sums, at);
        result.push(Stage::reduction(&s.name, s.ty.clone(), Combiner::Sum, vec![lanes], body));
        Rewritten { task: Task { compute: result.done(), ..task.clone() }, prepared }
    }

    /// The weights as lanes read them: axes of their own, then terms, then columns and lanes.
    fn beside(&self, compute: &mut Compute, columns: usize) -> Packing {
        let weight = &self.weight;
        let original = compute.inputs[weight.param].clone();
        let own: Vec<usize> = (0..original.rank()).filter(|axis| !weight.is_moved(*axis)).collect();
        let mut shape: Vec<usize> = own.iter().map(|&axis| original.shape[axis]).collect();
        shape.extend([original.shape[weight.terms] / self.lanes, columns * self.lanes]);
        let (term, vector) = (Expr::var(own.len()), Expr::var(own.len() + 1));
        let mut at = vec![Expr::int(0); original.rank()];
        own.iter().enumerate().for_each(|(var, &axis)| at[axis] = Expr::var(var));
        let (lanes, lane) = (self.lanes as i64, vector.clone().floor_mod(self.lanes as i64));
        at[weight.terms] = term * Expr::index(self.lanes) + lane;
        if let Some(axis) = weight.columns {
            at[axis] = vector.floor_div(lanes);
        }
        let ty = TensorType::new(original.dtype, shape);
        compute.inputs[weight.param] = ty.clone();
        let same = Stage::map("beside", ty, Expr::Load(BufId::new(0), at));
        Packing { param: weight.param, compute: Compute::single(vec![original], same) }
    }
}

impl Weight<'_> {
    /// Whether the axis is one of those that are cut into lanes.
    fn is_moved(&self, axis: usize) -> bool {
        axis == self.terms || Some(axis) == self.columns
    }
}
