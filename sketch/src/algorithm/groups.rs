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
//! elements of the input. Groups of few columns stay as they are: a vector of each would be mostly
//! empty.

use ansc_graph::{BinOp, Combiner, Compute, Expr, Stage, TensorType, VarId, arith};

use super::{Replacing, Rewritten};
use crate::task::Task;

/// A sum whose last axis consists of groups.
struct Groups {
    stage: usize,
    /// The last axis, and how many elements of it are a group.
    axis: usize,
    columns: usize,
}

/// A group has columns for more than this share of a vector.
const LEAST: f64 = 0.5;

/// None where no stage has groups of many columns.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    let mut stages = 0..task.compute.stages.len();
    let groups = stages.find_map(|stage| Groups::of(&task.compute, stage))?;
    let dtype = task.compute.stages[groups.stage].ty.dtype;
    let lanes = task.machine.vector_bytes / dtype.size();
    if groups.columns as f64 <= LEAST * lanes as f64 {
        return None;
    }
    let compute = groups.apart(&task.compute)?;
    Some(Rewritten { task: Task { compute, ..task.clone() }, prepared: vec![] })
}

impl Groups {
    fn of(compute: &Compute, stage: usize) -> Option<Groups> {
        let s = &compute.stages[stage];
        let axis = s.ty.rank().checked_sub(1)?;
        let is_sum = s.reduce.as_ref()?.combiner == Combiner::Sum;
        if !is_sum || s.extents().contains(&0) || !matches!(s.body, Expr::Binary(BinOp::Mul, ..)) {
            return None;
        }
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
    fn apart(&self, compute: &Compute) -> Option<Compute> {
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
        let parts = result.push(parts);
        let k = Expr::var(self.axis);
        let (columns, mut at) =
            (self.columns as i64, (0..self.axis).map(Expr::var).collect::<Vec<_>>());
        at.extend([k.clone().floor_div(columns), k.floor_mod(columns)]);
        result.push(Stage::map(&s.name, s.ty.clone(), Expr::Load(parts, at)));
        Some(result.done())
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
