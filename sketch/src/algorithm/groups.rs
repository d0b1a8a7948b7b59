//! A sum of products of groups: each group gets columns of its own.
//!
//! ```text
//! conv[y, x, k]      = sum{r, s, c: 42} in[y + r, x + s, k // 53 * 42 + c] * w[k, c, r, s]
//! =>
//! groups[y, x, g, j] = sum{r, s, c: 42} in[y + r, x + s, g * 42 + c] * w[g * 53 + j, c, r, s]
//! conv[y, x, k]      = groups[y, x, k // 53, k % 53]
//! ```
//!
//! Vectors along `k` would cross from one group to the next, and their lanes would read different
//! elements of the input. A constant gets the two axes as well: `w[g, j, c, r, s]`, the same bytes,
//! since panels of it begin anew with each group. Groups of few columns stay as they are: a vector
//! of each would be mostly empty.

use ansc_graph::{BinOp, BufId, Compute, Expr, Stage, TensorType, VarId, arith};

use super::{Replacing, Rewritten};
use crate::packed::Packing;
use crate::task::Task;
use crate::usage::factors;

/// A sum whose last axis consists of groups.
struct Groups {
    stage: usize,
    /// The last axis, and how many elements of it are a group.
    axis: usize,
    columns: usize,
}

/// A group has columns for more than this share of a vector.
const LEAST: f64 = 0.5;
/// A group may fill half of a wider vector: processors multiply twice as many halves a cycle.
const DOUBLE_BYTES: usize = 32;

/// None where no stage has groups of many columns.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    let mut stages = 0..task.compute.stages.len();
    let groups = stages.find_map(|stage| Groups::of(&task.compute, stage))?;
    let dtype = task.compute.stages[groups.stage].ty.dtype;
    let lanes = task.machine.vector_bytes / dtype.size();
    let (columns, least) = (groups.columns as f64, LEAST * lanes as f64);
    if columns < least || (columns == least && task.machine.vector_bytes <= DOUBLE_BYTES) {
        return None;
    }
    let (compute, prepared) = groups.apart(task)?;
    Some(Rewritten { task: Task { compute, ..task.clone() }, prepared })
}

impl Groups {
    fn of(compute: &Compute, stage: usize) -> Option<Groups> {
        let s = &compute.stages[stage];
        let axis = s.ty.rank().checked_sub(1)?;
        factors(s)?;
        let (k, mut found) = (Expr::var(axis), vec![]);
        for (_, at) in s.body.loads() {
            at.iter().for_each(|index| divisors(index, &k, &mut found));
        }
        found.dedup();
        let [(BinOp::FloorDiv, columns)] = found[..] else { return None };
        let columns = usize::try_from(columns).ok()?;
        let extent = s.ty.shape[axis];
        let are_groups = columns < extent && extent.is_multiple_of(columns);
        are_groups.then_some(Groups { stage, axis, columns })
    }

    /// The subgraph with an axis for the groups. None where a group is more than that axis.
    fn apart(&self, task: &Task) -> Option<(Compute, Vec<Packing>)> {
        let compute = &task.compute;
        let s = &compute.stages[self.stage];
        let extent = s.ty.shape[self.axis];
        let groups = extent / self.columns;
        let mut shape = s.ty.shape.to_vec();
        shape.splice(self.axis.., [groups, self.columns]);
        let mut parts = s.clone();
        parts.name = "groups".into();
        parts.ty = TensorType::new(s.ty.dtype, &shape[..]);
        let (group, column) = (Expr::var(self.axis), Expr::var(self.axis + 1));
        let whole = group * Expr::index(self.columns) + column;
        let moved = |v: VarId| match v.index().cmp(&self.axis) {
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Equal => Some(whole.clone()),
            std::cmp::Ordering::Greater => Some(Expr::var(v.index() + 1)),
        };
        let extents = parts.extents();
        let ranges = |v: VarId| Some((0, *extents.get(v.index())? as i64 - 1));
        let simple = |index: &Expr| arith::simplify(index, &ranges);
        parts.body = parts.body.substitute(&moved).rewrite(&mut |e| match e {
            Expr::Load(b, at) => Some(Expr::Load(*b, at.iter().map(simple).collect())),
            _ => None,
        });
        let mut left = vec![];
        for axis in [self.axis, self.axis + 1] {
            let var = Expr::var(axis);
            parts.body.loads().iter().flat_map(|l| l.1).for_each(|i| divisors(i, &var, &mut left));
        }
        if !left.is_empty() {
            return None;
        }
        let mut result = Replacing::new(compute, self.stage);
        let prepared = self.divide_constants(task, &mut result.compute, &mut parts);
        let parts = result.push(parts);
        let k = Expr::var(self.axis);
        let (columns, mut at) =
            (self.columns as i64, (0..self.axis).map(Expr::var).collect::<Vec<_>>());
        at.extend([k.clone().floor_div(columns), k.floor_mod(columns)]);
        result.push(Stage::map(&s.name, s.ty.clone(), Expr::Load(parts, at)));
        Some((result.done(), prepared))
    }

    /// Lets constants that only the sum reads have an axis for the groups where it reads them at
    /// `g * columns + j`.
    fn divide_constants(
        &self,
        task: &Task,
        compute: &mut Compute,
        parts: &mut Stage,
    ) -> Vec<Packing> {
        let both = [Expr::var(self.axis), Expr::var(self.axis + 1)];
        let whole = both[0].clone() * Expr::index(self.columns) + both[1].clone();
        let mut prepared = vec![];
        for buffer in (0..task.constant.len()).map(BufId::new) {
            let Some(param) = task.sole_constant(buffer) else { continue };
            let loads = parts.body.loads();
            let mut own = loads.iter().filter(|(b, _)| *b == buffer).map(|(_, at)| *at);
            let Some(axis) = own.next().and_then(|at| at.iter().position(|i| *i == whole)) else {
                continue;
            };
            let original = compute.inputs[param].clone();
            let mut ty = original.clone();
            ty.shape.splice(axis..=axis, [original.shape[axis] / self.columns, self.columns]);
            let mut at: Vec<Expr> = (0..ty.shape.len()).map(Expr::var).collect();
            let second = at.remove(axis + 1);
            at[axis] = at[axis].clone() * Expr::index(self.columns) + second;
            let same = Stage::map("divided", ty.clone(), Expr::Load(BufId::new(0), at));
            prepared.push(Packing { param, compute: Compute::single(vec![original], same) });
            compute.inputs[param] = ty;
            parts.body = parts.body.rewrite(&mut |e| match e {
                Expr::Load(b, at) if *b == buffer => {
                    let mut at = at.to_vec();
                    at.splice(axis..=axis, both.clone());
                    Some(Expr::Load(*b, at))
                }
                _ => None,
            });
        }
        prepared
    }
}

/// How an expression divides something that the variable is in, and by what.
fn divisors(e: &Expr, var: &Expr, found: &mut Vec<(BinOp, i64)>) {
    e.visit(&mut |node| {
        if let Expr::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), x, n) = node
            && x.any(&mut |inner| *inner == *var)
            && let Some(n) = n.as_const()
        {
            found.push((*op, n.as_i64()));
        }
    });
}
