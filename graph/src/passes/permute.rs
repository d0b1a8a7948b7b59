//! The same operator on tensors whose axes are in another order.
//!
//! ```text
//! pad(transpose([0, 2, 1], x))   ->   transpose([0, 2, 1], pad'(x))
//! ```
//!
//! A permutation `p` of a tensor says how the old tensor is had from the new one: axis `i` of the
//! old one is axis `p[i]` of the new one, as for `Kind::Transpose`.

use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::op::{Channels, ComputeOp, Kind};

/// `op` for permuted operands, and the permutation that gives the old result from the new one. All
/// operands of the rank of `perm` are permuted; `None` where the expression does not allow it.
pub(crate) fn permuted_op(op: &ComputeOp, perm: &[usize]) -> Option<(ComputeOp, Vec<usize>)> {
    let (kind, reduced) = permuted_kind(&op.kind, perm)?;
    let [output] = op.expr.outputs[..] else { return None };
    let of_rank = |rank: usize| match &reduced {
        _ if rank == perm.len() => Some(perm),
        Some(reduced) if rank == reduced.len() => Some(reduced.as_slice()),
        _ => None,
    };
    let stages: Option<Vec<&[usize]>> =
        op.expr.stages.iter().map(|stage| of_rank(stage.ty.rank())).collect();
    let stages = stages?;
    let inputs: Vec<Option<&[usize]>> =
        op.expr.inputs.iter().map(|ty| (ty.rank() == perm.len()).then_some(perm)).collect();
    let expr = permuted(&op.expr, &inputs, &stages);
    Some((ComputeOp::new(kind, expr), stages[output].to_vec()))
}

/// The kind, and the permutation of tensors without the reduced axes.
fn permuted_kind(kind: &Kind, perm: &[usize]) -> Option<(Kind, Option<Vec<usize>>)> {
    let kind = match kind {
        Kind::Map | Kind::Pad | Kind::Slice | Kind::Other(_) => kind.clone(),
        Kind::Concat { axis } => Kind::Concat { axis: perm[*axis] },
        Kind::Softmax { axis } => Kind::Softmax { axis: perm[*axis] },
        Kind::Pool(attrs) => {
            let mut attrs = attrs.clone();
            attrs.channels = match attrs.channels {
                Channels::First => Channels::Last,
                Channels::Last => return None,
            };
            Kind::Pool(attrs)
        }
        Kind::Reduce { axes, keep } => {
            let mut mapped: Vec<usize> = axes.iter().map(|&axis| perm[axis]).collect();
            mapped.sort_unstable();
            let rest = (!keep).then(|| without(perm, axes));
            return Some((Kind::Reduce { axes: mapped, keep: *keep }, rest));
        }
        Kind::Reshape | Kind::Transpose(_) | Kind::Conv(_) | Kind::MatMul => return None,
    };
    Some((kind, None))
}

/// The permutation of the remaining axes when the old axes `axes` are removed.
fn without(perm: &[usize], axes: &[usize]) -> Vec<usize> {
    let kept: Vec<usize> = (0..perm.len()).filter(|a| !axes.contains(a)).map(|a| perm[a]).collect();
    kept.iter().map(|axis| kept.iter().filter(|other| *other < axis).count()).collect()
}

fn permuted(expr: &Compute, inputs: &[Option<&[usize]>], stages: &[&[usize]]) -> Compute {
    let type_of =
        |ty: &TensorType, perm: &[usize]| TensorType::new(ty.dtype, moved(&ty.shape, perm));
    let stage_of = |(stage, perm): (&Stage, &&[usize])| {
        let axes = |v: crate::expr::VarId| perm.get(v.index()).map(|&axis| Expr::var(axis));
        let body = stage.body.substitute(&axes).rewrite(&mut |e| match e {
            Expr::Load(buffer, indices) => {
                let perm = match expr.stage_of(*buffer) {
                    Some(stage) => Some(stages[stage]),
                    None => inputs[buffer.index()],
                };
                perm.map(|perm| Expr::Load(*buffer, moved(indices, perm)))
            }
            _ => None,
        });
        Stage { ty: type_of(&stage.ty, perm), body, ..stage.clone() }
    };
    Compute {
        inputs: expr
            .inputs
            .iter()
            .zip(inputs)
            .map(|(ty, perm)| perm.map_or(ty.clone(), |perm| type_of(ty, perm)))
            .collect(),
        stages: expr.stages.iter().zip(stages).map(stage_of).collect(),
        outputs: expr.outputs.clone(),
    }
}

/// Moves the item of old axis `i` to new axis `perm[i]`.
fn moved<T: Clone>(old: &[T], perm: &[usize]) -> Vec<T> {
    let mut new = old.to_vec();
    for (item, &axis) in old.iter().zip(perm) {
        new[axis] = item.clone();
    }
    new
}
