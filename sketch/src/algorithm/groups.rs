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
//! elements of the input. Where groups have fewer columns than a vector has lanes, several are
//! made one first: its weights, made when compiling, are zero where an input and a column belong
//! to different groups.
//!
//! ```text
//! w[k, c: 4, r, s]   =>   w'[k, c: 16, r, s] = select(c // 4 == k % 16 // 4, w[k, c % 4, r, s], 0)
//! ```

use ansc_graph::arith::{self, Linear};
use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Reduce, Stage, TensorType, VarId};

use super::{Replacing, Rewritten};
use crate::packed::Packing;
use crate::task::Task;

/// A sum whose last axis consists of groups.
struct Groups {
    stage: usize,
    /// The last axis, and how many elements of it are a group.
    axis: usize,
    columns: usize,
}

/// None where no stage has groups.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    let mut groups =
        (0..task.compute.stages.len()).find_map(|stage| Groups::of(&task.compute, stage))?;
    let stage = &task.compute.stages[groups.stage];
    let lanes = task.machine.vector_bytes / stage.ty.dtype.size();
    let merged = merged(task, &groups, lanes.max(1));
    let (mut compute, mut prepared) = (task.compute.clone(), vec![]);
    if let Some(Merged { compute: fewer, columns, packing }) = merged {
        (compute, groups.columns) = (fewer, columns);
        prepared.push(packing);
    }
    let compute = groups.apart(&compute)?;
    Some(Rewritten { task: Task { compute, ..task.clone() }, prepared })
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
        if groups == 1 {
            return Some(compute.clone());
        }
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

/// A subgraph with fewer groups.
struct Merged {
    compute: Compute,
    /// Columns of a group.
    columns: usize,
    packing: Packing,
}

/// Several groups as one, if a vector has lanes for them, and weights are known.
fn merged(task: &Task, groups: &Groups, lanes: usize) -> Option<Merged> {
    let (compute, s) = (&task.compute, &task.compute.stages[groups.stage]);
    let count = s.ty.shape[groups.axis] / groups.columns;
    let fits = |m: &usize| count.is_multiple_of(*m) && m * groups.columns <= lanes;
    let several = (2..=count).rev().find(fits)?;
    let Expr::Binary(BinOp::Mul, a, b) = &s.body else { return None };
    let weight = [a, b].into_iter().find_map(|factor| Weight::of(compute, s, factor, groups))?;
    let other = if std::ptr::eq(weight.factor, &**a) { b } else { a };
    let Expr::Load(input, at) = &**other else { return None };
    if !*task.constant.get(weight.param)? || is_read_elsewhere(compute, weight.param) {
        return None;
    }
    let channel = input_axis(at, &weight, groups)?;
    let (columns, channels) = (several * groups.columns, several * weight.channels);
    let group = Expr::var(groups.axis).floor_div(columns as i64);
    let mut at = at.clone();
    at[channel] = group * Expr::index(channels) + Expr::Var(weight.channel);
    let mut compute = compute.clone();
    let stage = &mut compute.stages[groups.stage];
    let factor = Expr::Load(*input, at);
    stage.body = match std::ptr::eq(weight.factor, &**a) {
        true => weight.factor.clone() * factor,
        false => factor * weight.factor.clone(),
    };
    let place = weight.channel.index() - s.ty.rank();
    let mut extents = stage.reduce.as_ref()?.extents.clone();
    extents[place] = channels;
    stage.reduce = Some(Reduce { combiner: Combiner::Sum, extents });
    let ty = &mut compute.inputs[weight.param];
    let small = ty.clone();
    let mut shape = ty.shape.to_vec();
    shape[weight.channel_axis] = channels;
    *ty = TensorType::new(ty.dtype, &shape[..]);
    let made = weight.spread(ty.clone(), columns, groups.columns);
    let packing = Packing { param: weight.param, compute: Compute::single(vec![small], made) };
    Some(Merged { compute, columns, packing })
}

/// The factor that has an element for each column.
struct Weight<'a> {
    factor: &'a Expr,
    /// The input of the subgraph.
    param: usize,
    /// Its axes of columns and of channels, the variable of the latter, and how many these are.
    column_axis: usize,
    channel_axis: usize,
    channel: VarId,
    channels: usize,
}

impl<'a> Weight<'a> {
    /// All its indices are variables, one of which is a term that the other factor adds to the
    /// group's first channel.
    fn of(compute: &Compute, s: &Stage, factor: &'a Expr, groups: &Groups) -> Option<Weight<'a>> {
        let Expr::Load(buffer, at) = factor else { return None };
        if compute.stage_of(*buffer).is_some() {
            return None;
        }
        let var = |e: &Expr| if let Expr::Var(v) = e { Some(*v) } else { None };
        let vars: Vec<VarId> = at.iter().map(var).collect::<Option<_>>()?;
        let column_axis = vars.iter().position(|v| v.index() == groups.axis)?;
        let channel = channel_of(s, *buffer, groups)?;
        let mut places = (0..vars.len()).filter(|&i| vars[i] == channel);
        let (channel_axis, None) = (places.next()?, places.next()) else { return None };
        let channels = s.extents()[channel.index()];
        let param = buffer.index();
        Some(Weight { factor, param, column_axis, channel_axis, channel, channels })
    }

    /// The weights of groups of so many columns, of which there were so many before.
    fn spread(&self, ty: TensorType, columns: usize, before: usize) -> Stage {
        let own = |axis: usize| Expr::var(axis);
        let (k, c) = (own(self.column_axis), own(self.channel_axis));
        let channels = self.channels as i64;
        let of_column = k.floor_mod(columns as i64).floor_div(before as i64);
        let of_channel = c.clone().floor_div(channels);
        let mut at: Vec<Expr> = (0..ty.rank()).map(Expr::var).collect();
        at[self.channel_axis] = c.floor_mod(channels);
        let zero = Expr::float(ty.dtype, 0.0);
        let value = Expr::select(of_channel.eq(of_column), Expr::Load(BufId::new(0), at), zero);
        Stage::map("spread", ty, value)
    }
}

/// The term that is added to the first channel of a group: `k // columns * channels + term`.
fn channel_of(s: &Stage, weight: BufId, groups: &Groups) -> Option<VarId> {
    let loads = s.body.loads();
    let (_, at) = loads.iter().find(|(b, _)| *b != weight)?;
    at.iter().find_map(|index| term_of(index, s, groups))
}

fn term_of(index: &Expr, s: &Stage, groups: &Groups) -> Option<VarId> {
    let linear = Linear::from_expr(index);
    let mut terms: Vec<_> = linear.terms().iter().map(|(e, n)| (e, *n)).collect();
    terms.sort_by_key(|(_, n)| *n);
    let [(Expr::Var(term), 1), (group, channels)] = terms[..] else { return None };
    let first = Expr::var(groups.axis).floor_div(groups.columns as i64);
    let extent = *s.extents().get(term.index())? as i64;
    let fits = *group == first && channels == extent && linear.constant() == 0;
    (fits && term.index() >= s.ty.rank()).then_some(*term)
}

/// Which index of the input the group is in; none if there are several, or channels are elsewhere.
fn input_axis(at: &[Expr], weight: &Weight<'_>, groups: &Groups) -> Option<usize> {
    let is_there = |e: &Expr, v: VarId| e.any(&mut |node| *node == Expr::Var(v));
    let mut with = (0..at.len())
        .filter(|&i| is_there(&at[i], weight.channel) || is_there(&at[i], VarId::new(groups.axis)));
    let (axis, None) = (with.next()?, with.next()) else { return None };
    Some(axis)
}

fn is_read_elsewhere(compute: &Compute, param: usize) -> bool {
    let loads = compute.stages.iter().flat_map(|s| s.body.loads());
    loads.filter(|(b, _)| b.index() == param).count() != 1
}
