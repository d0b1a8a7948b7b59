//! Maps and rows between two reshapes that undo each other keep the axes of the tensors around.
//!
//! ```text
//! reshape([2, 4, m, k], softmax(max(reshape([8, m, k], x), y)))
//! ->  softmax(max(x, reshape([2, 4, m, k], y)))
//! ```
//!
//! Attention is written so where heads share keys: both of its products have an axis for the heads
//! of a group, and what is between them has one for all heads. Without the reshapes, a product and
//! what follows it have the same shape and can be one kernel.

use std::ops::Range;

use super::reshapes::regrouped;
use super::rewrite::{add, built, close_types, open, reshaped, supersede};
use super::{Options, PassError};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::{BufId, Expr, VarId};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind};
use crate::ops::shape::reshape_groups;
use crate::ops::softmax::softmax;

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        changed |= rewrite(graph, node)?;
    }
    Ok(changed)
}

fn rewrite(graph: &mut Graph, node: NodeId) -> Result<bool, PassError> {
    let Some((links, end)) = chain(graph, node) else { return Ok(false) };
    let source = graph.operands(node)[0];
    let [merged, apart] =
        [ValueId { node, out: 0 }, source].map(|value| graph.ty(value).shape.clone());
    let Some(groups) = Groups::of(&merged, &apart) else { return Ok(false) };
    let made: Option<Vec<Made>> = links.iter().map(|link| groups.link(graph, link)).collect();
    let Some(made) = made else { return Ok(false) };
    let mut value = source;
    for (link, Made { op, shapes }) in links.iter().zip(made) {
        let (name, operands) = (graph.node(link.node).name.clone(), graph.operands(link.node));
        let mut inputs = Vec::with_capacity(operands.len());
        for (slot, (operand, shape)) in operands.into_iter().zip(shapes).enumerate() {
            inputs.push(match shape {
                _ if slot == link.slot => value,
                Some(shape) => reshaped(graph, &name, operand, &shape)?,
                None => operand,
            });
        }
        let op = match &op.kind {
            Kind::Softmax { axis } => {
                built(&name, softmax(&[groups.of[*axis].start], graph.ty(value)))?
            }
            _ => op,
        };
        value = add(graph, &name, op, &inputs);
    }
    supersede(graph, ValueId { node: end, out: 0 }, value);
    Ok(true)
}

/// A node between both reshapes, and its operand that comes from the first one.
struct Link {
    node: NodeId,
    slot: usize,
}

/// The nodes between a reshape and one that undoes it, each the only reader of the one before.
fn chain(graph: &Graph, node: NodeId) -> Option<(Vec<Link>, NodeId)> {
    let is_reshape =
        |node: NodeId| graph.compute_of(node).is_some_and(|op| op.kind == Kind::Reshape);
    if !is_reshape(node) {
        return None;
    }
    let (source, mut at, mut links) = (graph.operands(node)[0], node, vec![]);
    loop {
        let value = ValueId { node: at, out: 0 };
        let [(reader, slot)] = graph.users(value)[..] else { return None };
        if graph.is_output(value) || graph.node(at).outputs.len() != 1 {
            return None;
        }
        if is_reshape(reader) {
            let undone = graph.ty(ValueId { node: reader, out: 0 }).shape == graph.ty(source).shape;
            return (undone && !links.is_empty()).then_some((links, reader));
        }
        graph.compute_of(reader)?;
        links.push(Link { node: reader, slot: slot as usize });
        at = reader;
    }
}

/// An operator for more axes, and the shapes that its operands need for that.
struct Made {
    op: ComputeOp,
    shapes: Vec<Option<Vec<usize>>>,
}

/// Axes of one shape, each of which is one or several in a row of another shape.
struct Groups<'a> {
    merged: &'a [usize],
    apart: &'a [usize],
    /// For each axis of `merged`, its axes of `apart`.
    of: Vec<Range<usize>>,
}

impl<'a> Groups<'a> {
    fn of(merged: &'a [usize], apart: &'a [usize]) -> Option<Groups<'a>> {
        let groups = reshape_groups(merged, apart);
        let each = groups.iter().enumerate().all(|(axis, (left, _))| *left == (axis..axis + 1));
        let covers = groups.len() == merged.len() && groups.last()?.1.end == apart.len();
        let of = groups.into_iter().map(|(_, right)| right).collect();
        (each && covers).then_some(Groups { merged, apart, of })
    }

    fn is_split(&self, axis: usize) -> bool {
        self.of[axis].len() > 1
    }

    /// The indices of the axes that an axis becomes.
    fn vars(&self, axis: usize) -> impl Iterator<Item = Expr> {
        let index = |a: usize| if self.apart[a] == 1 { Expr::int(0) } else { Expr::var(a) };
        self.of[axis].clone().map(index)
    }

    /// The index of a variable of the merged shape, or of a reduction over it.
    fn index(&self, v: VarId) -> Expr {
        let Some(axes) = self.of.get(v.index()) else {
            return Expr::var(v.index() - self.merged.len() + self.apart.len());
        };
        if axes.len() == 1 {
            return Expr::var(axes.start);
        }
        let along = axes.clone().filter(|a| self.apart[*a] != 1);
        let flat = along.fold(None, |outer: Option<Expr>, a| match outer {
            Some(outer) => Some(outer * Expr::index(self.apart[a]) + Expr::var(a)),
            None => Some(Expr::var(a)),
        });
        flat.unwrap_or_else(|| Expr::int(0))
    }

    fn moved(&self, e: &Expr) -> Expr {
        e.substitute(&|v| Some(self.index(v)))
    }

    /// The operator, if it treats each element along the split axes alike, and apart from others.
    fn link(&self, graph: &Graph, link: &Link) -> Option<Made> {
        let op = graph.compute_of(link.node)?;
        match op.kind {
            Kind::Map => self.map(op),
            Kind::Softmax { axis } if self.is_split(axis) => None,
            Kind::Softmax { .. } | Kind::Other(_) => self.rows(op),
            _ => None,
        }
    }

    fn map(&self, op: &ComputeOp) -> Option<Made> {
        let body = open(op)?;
        let shape = |ty: &TensorType| regrouped(&ty.shape, self.merged, self.apart);
        let shapes: Vec<Vec<usize>> = op.expr.inputs.iter().map(shape).collect::<Option<_>>()?;
        let types = op.expr.inputs.iter().zip(&shapes);
        let types: Vec<_> = types.map(|(ty, to)| TensorType::new(ty.dtype, &to[..])).collect();
        let ty = TensorType::new(op.expr.stages[0].ty.dtype, self.apart);
        let op = close_types(&types, ty, &body);
        Some(Made { op, shapes: shapes.into_iter().map(Some).collect() })
    }

    fn rows(&self, op: &ComputeOp) -> Option<Made> {
        let expr = &op.expr;
        let slots = 0..expr.inputs.len();
        let shapes: Vec<_> = slots.map(|slot| self.operand(expr, slot)).collect::<Option<_>>()?;
        let inputs = expr.inputs.iter().zip(&shapes).map(|(ty, shape)| match shape {
            Some(shape) => TensorType::new(ty.dtype, &shape[..]),
            None => ty.clone(),
        });
        let is_regrouped = |b: BufId| shapes.get(b.index()).is_none_or(|shape| shape.is_some());
        let stages = expr.stages.iter().map(|s| self.stage(s, &is_regrouped));
        let made = Compute {
            inputs: inputs.collect(),
            stages: stages.collect::<Option<_>>()?,
            outputs: expr.outputs.clone(),
        };
        Some(Made { op: ComputeOp::new(op.kind.clone(), made), shapes })
    }

    /// The shape that an operand needs. It stays as it is if no index depends on a split axis.
    fn operand(&self, expr: &Compute, slot: usize) -> Option<Option<Vec<usize>>> {
        let loads = expr.stages.iter().flat_map(|s| s.body.loads());
        let mut loads = loads.filter(|(b, _)| b.index() == slot).map(|(_, at)| at);
        let depends = |at: &[Expr]| {
            let vars = at.iter().flat_map(|index| index.vars());
            vars.into_iter().any(|v| v.index() < self.of.len() && self.is_split(v.index()))
        };
        if !loads.clone().any(depends) {
            return Some(None);
        }
        let shape = &expr.inputs[slot].shape;
        let is_own = shape.len() == self.merged.len() && loads.all(|at| self.indices(at).is_some());
        if is_own { Some(Some(self.shape(shape)?)) } else { None }
    }

    /// The shape with split axes apart.
    fn shape(&self, shape: &[usize]) -> Option<Vec<usize>> {
        let mut apart = vec![];
        for (axis, &extent) in shape.iter().enumerate() {
            match self.is_split(axis) {
                false => apart.push(extent),
                true if extent == self.merged[axis] => {
                    apart.extend(&self.apart[self.of[axis].clone()]);
                }
                true => return None,
            }
        }
        Some(apart)
    }

    /// The place of an element, if along split axes that is the element's own.
    fn indices(&self, at: &[Expr]) -> Option<Vec<Expr>> {
        let mut apart = vec![];
        for (axis, index) in at.iter().enumerate() {
            match self.is_split(axis) {
                false => apart.push(self.moved(index)),
                true if *index == Expr::var(axis) => apart.extend(self.vars(axis)),
                true => return None,
            }
        }
        Some(apart)
    }

    fn stage(&self, s: &Stage, is_regrouped: &impl Fn(BufId) -> bool) -> Option<Stage> {
        if s.ty.rank() != self.merged.len() {
            return None;
        }
        let regrouped = |(b, _): &(BufId, &[Expr])| is_regrouped(*b);
        let mut loads = s.body.loads().into_iter().filter(regrouped);
        if !loads.all(|(_, at)| self.indices(at).is_some()) {
            return None;
        }
        let body = self.body(&s.body, is_regrouped);
        let ty = TensorType::new(s.ty.dtype, self.shape(&s.ty.shape)?);
        Some(Stage { name: s.name.clone(), ty, reduce: s.reduce.clone(), body })
    }

    fn body(&self, body: &Expr, is_regrouped: &impl Fn(BufId) -> bool) -> Expr {
        // Variables of the new shape, which the second step leaves alone.
        const NEW: usize = 1 << 20;
        let shifted = |e: &Expr| e.substitute(&|v| Some(Expr::var(v.index() + NEW)));
        let loaded = body.rewrite(&mut |e| match e {
            Expr::Load(b, at) if is_regrouped(*b) => {
                let at = self.indices(at)?.iter().map(shifted).collect();
                Some(Expr::Load(*b, at))
            }
            _ => None,
        });
        loaded.substitute(&|v| {
            Some(v.index().checked_sub(NEW).map_or_else(|| self.index(v), Expr::var))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::BinOp;
    use crate::ops::attention::masked_softmax;
    use crate::passes::testing::{Builder, check_swept, count};

    fn reshapes(graph: &Graph) -> usize {
        count(graph, |kind| *kind == Kind::Reshape)
    }

    /// Whether a reshape is of so many elements or more.
    fn reshapes_many(graph: &Graph, elements: usize) -> bool {
        let is_large = |node: &NodeId| {
            let is_reshape = graph.compute_of(*node).is_some_and(|op| op.kind == Kind::Reshape);
            is_reshape && graph.ty(ValueId { node: *node, out: 0 }).len() >= elements
        };
        graph.node_ids().iter().any(is_large)
    }

    /// Softmaxes of rows of heads, with a mask for all heads, and a number for each.
    #[test]
    fn heads_of_a_group_stay_apart() {
        for (groups, shared) in [(2, 4), (1, 3), (3, 1)] {
            let mut b = Builder::new(7);
            let x = b.input(&[2, groups, shared, 5, 6]);
            let (mask, slope) = (b.input(&[1, 1, 5, 6]), b.input(&[1, groups * shared, 1, 1]));
            let y = b.reshape(x, &[2, groups * shared, 5, 6]);
            let y = b.binary(BinOp::Mul, y, slope);
            let y = b.binary(BinOp::Add, mask, y);
            let op = masked_softmax(b.graph.ty(y));
            let y = b.emit(op.unwrap(), &[y]);
            let y = b.softmax(y);
            let y = b.reshape(y, &[2, groups, shared, 5, 6]);
            let y = b.relu(y);
            let after = check_swept(b.finish(&[y]), run);
            // Those of the mask and of the numbers are left.
            assert!((1..=2).contains(&reshapes(&after)) && !reshapes_many(&after, 5 * 6 * 2));
        }
    }

    /// Another reader in between, sums over heads, neighbours, and a reshape of another shape.
    #[test]
    fn others_stay_as_they_are() {
        let mut b = Builder::new(8);
        let x = b.input(&[2, 4, 5]);
        let y = b.reshape(x, &[8, 5]);
        let y = b.relu(y);
        let z = b.reshape(y, &[2, 4, 5]);
        let graph = b.finish(&[z, y]);
        assert_eq!(reshapes(&check_swept(graph, run)), 2);

        let mut b = Builder::new(9);
        let x = b.input(&[2, 4, 5]);
        let y = b.reshape(x, &[8, 5]);
        let op = softmax(&[0], b.graph.ty(y)).unwrap();
        let y = b.emit(op, &[y]);
        let y = b.reshape(y, &[2, 4, 5]);
        assert_eq!(reshapes(&check_swept(b.finish(&[y]), run)), 2);

        let mut b = Builder::new(10);
        let (x, of_heads) = (b.input(&[2, 4, 5]), b.input(&[8, 1]));
        let y = b.reshape(x, &[8, 5]);
        let y = b.binary(BinOp::Add, y, of_heads);
        let y = b.reshape(y, &[4, 2, 5]);
        assert_eq!(reshapes(&check_swept(b.finish(&[y]), run)), 2);
    }
}
