//! Products of several rows of a batch with the same matrix find it once.
//!
//! ```text
//! a: f32[8, m, k] * (b: f32[2, k, n], each repeated 4 times)
//! ->  (a as f32[2, 4, m, k]) * (b as f32[2, 1, k, n]), as f32[8, m, n]
//! ```
//!
//! Exporters of decoders write this where several heads share keys and values: they unsqueeze,
//! expand and reshape them. It takes longer to make the repeated matrices than to multiply with
//! them.

use super::rewrite::{add, supersede};
use super::{Options, PassError};
use crate::arith::Context;
use crate::compute::{Compute, TensorType};
use crate::expr::{BinOp, BufId, Expr, VarId};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Kind;
use crate::ops::{matmul, shape};

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        changed |= rewrite(graph, node)?;
    }
    Ok(changed)
}

fn rewrite(graph: &mut Graph, node: NodeId) -> Result<bool, PassError> {
    let Some(op) = graph.compute_of(node).filter(|op| op.kind == Kind::MatMul) else {
        return Ok(false);
    };
    let (name, result) = (graph.node(node).name.clone(), ValueId { node, out: 0 });
    let [a, b] = graph.operands(node)[..] else { return Ok(false) };
    let [left, right] = [a, b].map(|value| graph.ty(value).clone());
    let failed = |source| PassError::Op { node: name.clone(), source };
    if matmul::matmul(&left, &right).map_err(failed)?.expr != op.expr || graph.const_of(b).is_some()
    {
        return Ok(false);
    }
    let Some((source, indices)) = source(graph, b) else { return Ok(false) };
    let Some(shared) = Shared::of(graph.ty(source), &indices, &right, &left) else {
        return Ok(false);
    };
    let ty = graph.ty(source).clone();
    let once = shape::reshape(&ty, &shared.right).map_err(failed)?;
    let once = add(graph, &name, once, &[source]);
    // The product may read it as it was before it is turned.
    let turned = shape::transpose(graph.ty(once), &shared.perm).map_err(failed)?;
    let turned = add(graph, &name, turned, &[once]);
    let rows = shape::reshape(&left, &shared.left).map_err(failed)?;
    let rows = add(graph, &name, rows, &[a]);
    let product = matmul::matmul(graph.ty(rows), graph.ty(turned)).map_err(failed)?;
    let product = add(graph, &name, product, &[rows, turned]);
    let back = shape::reshape(graph.ty(product), &graph.ty(result).shape).map_err(failed)?;
    let back = add(graph, &name, back, &[product]);
    supersede(graph, result, back);
    Ok(true)
}

/// The tensor whose elements make up a value, and where each of them is in it.
pub(crate) fn source(graph: &Graph, value: ValueId) -> Option<(ValueId, Vec<Expr>)> {
    let mut value = value;
    let rank = graph.ty(value).rank();
    let shape = graph.ty(value).shape.clone();
    let mut indices: Vec<Expr> = (0..rank).map(Expr::var).collect();
    let mut found = None;
    while let Some((from, at)) = moved(graph, value) {
        let ranges = |v: VarId| shape.get(v.index()).map(|&e| (0, e as i64 - 1));
        let place = |v: VarId| indices.get(v.index()).cloned();
        let simple = |index: &Expr| Context::new(&ranges).simplify(&index.substitute(&place));
        indices = at.iter().map(simple).collect();
        value = from;
        found = Some((value, indices.clone()));
    }
    found
}

/// The operand whose elements a node only moves, and where the node finds them.
fn moved(graph: &Graph, value: ValueId) -> Option<(ValueId, Vec<Expr>)> {
    let op = graph.compute_of(value.node)?;
    let Compute { inputs, stages, .. } = &*op.expr;
    let ([_], [stage]) = (&inputs[..], &stages[..]) else { return None };
    match (&stage.body, &stage.reduce) {
        (Expr::Load(buffer, indices), None) if *buffer == BufId::new(0) => {
            Some((graph.operands(value.node)[0], indices.clone()))
        }
        _ => None,
    }
}

/// An axis of the right operand.
enum Axis {
    /// That of the source.
    Own(usize),
    /// The same for so many elements in a row.
    Grouped(usize, usize),
    /// The same for all.
    Repeated,
}

/// Shapes in which the source is multiplied as it is.
struct Shared {
    /// The source's, with an axis of one element where a matrix is repeated.
    right: Vec<usize>,
    /// The order of these axes in the product.
    perm: Vec<usize>,
    left: Vec<usize>,
}

impl Shared {
    fn of(
        source: &TensorType,
        indices: &[Expr],
        right: &TensorType,
        left: &TensorType,
    ) -> Option<Shared> {
        let rank = right.rank();
        if left.rank() != rank {
            return None;
        }
        let axes: Vec<Axis> = (0..rank).map(|axis| Axis::of(axis, indices)).collect();
        let is_used = |s: usize| axes.iter().any(|axis| axis.source() == Some(s));
        // Nothing counts along an axis of one element.
        let used: Vec<usize> = (0..source.rank()).filter(|s| is_used(*s)).collect();
        if (0..source.rank()).any(|s| !is_used(s) && source.shape[s] != 1) {
            return None;
        }
        let mut shared = Shared {
            right: used.iter().map(|s| source.shape[*s]).collect(),
            perm: vec![],
            left: vec![],
        };
        let mut repeats = false;
        for (at, axis) in axes.iter().enumerate() {
            let (e, rows) = (right.shape[at], left.shape[at]);
            let is_batch = at + 2 < rank;
            let place = axis.source().and_then(|s| used.iter().position(|other| *other == s));
            shared.perm.extend(place);
            match axis {
                Axis::Own(s) if source.shape[*s] == e => shared.left.push(rows),
                Axis::Grouped(s, by) if is_batch && rows == e && source.shape[*s] * by == e => {
                    shared.left.extend([e / by, *by]);
                    shared.repeat();
                    repeats = true;
                }
                Axis::Repeated if e == 1 || is_batch && rows == e => {
                    shared.left.push(rows);
                    shared.repeat();
                    repeats |= e > 1;
                }
                _ => return None,
            }
        }
        repeats.then_some(shared)
    }

    /// An axis of one element, next in the product.
    fn repeat(&mut self) {
        self.perm.push(self.right.len());
        self.right.push(1);
    }
}

impl Axis {
    /// The axis of the source that it counts along.
    fn source(&self) -> Option<usize> {
        match self {
            Axis::Own(s) | Axis::Grouped(s, _) => Some(*s),
            Axis::Repeated => None,
        }
    }

    /// How indices depend on a variable: as none, one or its quotient; else it is `Repeated` in
    /// none, so that not all elements of the source are counted.
    fn of(axis: usize, indices: &[Expr]) -> Axis {
        let var = Expr::var(axis);
        let found = indices.iter().enumerate().find_map(|(s, index)| match index {
            index if *index == var => Some(Axis::Own(s)),
            Expr::Binary(BinOp::FloorDiv, x, by) if **x == var => {
                Some(Axis::Grouped(s, usize::try_from(by.as_const()?.as_i64()).ok()?))
            }
            _ => None,
        });
        found.unwrap_or(Axis::Repeated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::map;
    use crate::passes::testing::{Builder, check_all, check_swept, count};

    /// `k` with each index of the second axis `times` times, as exporters write it.
    fn repeated(b: &mut Builder, k: ValueId, times: usize) -> ValueId {
        let [n, heads, rows, each] = b.graph.ty(k).shape[..] else { panic!("four axes") };
        let k = b.reshape(k, &[n, heads, 1, rows, each]);
        let to = [n, heads, times, rows, each];
        let ty = b.graph.ty(k).clone();
        let op =
            map::map_to(std::slice::from_ref(&ty), TensorType::new(ty.dtype, to), |v| v[0].clone());
        let op = op.unwrap();
        let k = b.emit(op, &[k]);
        b.reshape(k, &[n, heads * times, rows, each])
    }

    /// Whether a node makes matrices for all eight heads of two samples.
    fn repeats(graph: &Graph) -> bool {
        let is_large = |node: &NodeId| {
            let value = ValueId { node: *node, out: 0 };
            graph.compute_of(*node).is_some() && graph.ty(value).len() >= 2 * 8 * 7 * 3
        };
        graph.node_ids().iter().any(is_large)
    }

    #[test]
    fn heads_share_keys_and_values() {
        let mut b = Builder::new(5);
        let (q, k) = (b.input(&[2, 8, 1, 3]), b.input(&[2, 2, 7, 3]));
        let v = b.input(&[2, 1, 7, 3]);
        let (k, v) = (repeated(&mut b, k, 4), repeated(&mut b, v, 8));
        let k = b.transpose(k, &[0, 1, 3, 2]);
        let scores = b.matmul(q, k);
        let shares = b.softmax(scores);
        let y = b.matmul(shares, v);
        let graph = b.finish(&[y]);
        assert!(repeats(&graph));
        let after = check_swept(graph, run);
        assert!(!repeats(&after));
        assert_eq!(count(&after, |kind| *kind == Kind::MatMul), 2);
    }

    /// A matrix of its own for each row of the batch, and rows that are fewer than what is
    /// repeated.
    #[test]
    fn other_matrices_stay_as_they_are() {
        for rows in [1, 4] {
            let mut b = Builder::new(6);
            let (q, k) = (b.input(&[1, rows, 2, 3]), b.input(&[1, 4 / rows, 5, 3]));
            let k = repeated(&mut b, k, rows);
            let k = b.transpose(k, &[0, 1, 3, 2]);
            let q = if rows == 4 { b.reshape(q, &[1, 4, 2, 3]) } else { q };
            let y = b.matmul(q, k);
            let graph = b.finish(&[y]);
            let nodes = graph.len();
            let after = check_all(graph, |graph| run(graph, &Options::default()).map(drop));
            assert_eq!(after.len() == nodes, rows == 1);
        }
    }
}
