//! Which stage reads what, and how.

use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Stage, UnOp, VarId};

/// Stages that load `buffer`, each once, in order.
pub(crate) fn readers(compute: &Compute, buffer: BufId) -> Vec<usize> {
    let reads = |s: &Stage| s.body.loads().iter().any(|(b, _)| *b == buffer);
    (0..compute.stages.len()).filter(|&i| reads(&compute.stages[i])).collect()
}

pub(crate) fn mentions(indices: &[Expr], var: usize) -> bool {
    indices.iter().any(|e| e.vars().contains(&VarId::new(var)))
}

/// A reduction some of whose operands lack a spatial axis: their elements are used again along it.
/// A number, such as a size, is no operand in that sense.
pub(crate) fn has_reuse(stage: &Stage) -> bool {
    let (extents, all) = (&stage.ty.shape, stage.extents().len());
    let reused = |indices: &[Expr]| {
        (0..all).any(|axis| mentions(indices, axis))
            && (0..extents.len()).any(|axis| extents[axis] > 1 && !mentions(indices, axis))
    };
    stage.reduce.is_some() && stage.body.loads().iter().any(|(_, indices)| reused(indices))
}

/// The factors of a stage whose results are sums of products. None if it is another one, or if
/// there is nothing to sum up.
pub(crate) fn factors(stage: &Stage) -> Option<[&Expr; 2]> {
    let is_sum = stage.reduce.as_ref()?.combiner == Combiner::Sum;
    match &stage.body {
        Expr::Binary(BinOp::Mul, a, b) if is_sum && !stage.extents().contains(&0) => Some([a, b]),
        _ => None,
    }
}

/// Number of nodes of an expression.
pub(crate) fn size(e: &Expr) -> usize {
    let mut n = 0;
    e.visit(&mut |_| n += 1);
    n
}

/// Contains operations that cost more than loading the result again.
pub(crate) fn is_expensive(e: &Expr) -> bool {
    let mut expensive = false;
    e.visit(&mut |e| {
        expensive |= match e {
            Expr::Unary(op, _) => !matches!(
                op,
                UnOp::Neg
                    | UnOp::Abs
                    | UnOp::Not
                    | UnOp::Floor
                    | UnOp::Ceil
                    | UnOp::Round
                    | UnOp::Trunc
            ),
            Expr::Binary(op, _, _) => matches!(op, BinOp::Pow | BinOp::Div | BinOp::Rem),
            _ => false,
        };
    });
    expensive
}

/// Only moves elements: a load, perhaps converted.
pub(crate) fn is_movement(e: &Expr) -> bool {
    match e {
        Expr::Load(..) => true,
        Expr::Cast(_, x) => is_movement(x),
        _ => false,
    }
}

/// An element where a condition on the place holds, a constant elsewhere.
pub(crate) fn is_padding(e: &Expr) -> bool {
    matches!(e, Expr::Select(condition, inside, outside)
        if condition.loads().is_empty() && is_movement(inside) && matches!(**outside, Expr::Const(_)))
}
