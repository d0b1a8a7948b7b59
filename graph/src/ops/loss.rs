//! Losses of class scores against target classes.
//!
//! ```text
//! negative_log_likelihood(none, f32[4, 10], targets i64[4])
//! ->  loss: f32[4] = select(0 <= t < 10, neg(b0[v0, t]), 0), t = b1[v0]
//! ```
//!
//! A target outside of the classes counts nothing, like one equal to `ignore`: the model is at
//! fault there, but must not read past its operands.

use ansc_runtime::DType;

use super::OpError;
use super::stages::{Source, Stages, real};
use crate::compute::{Combiner, TensorType};
use crate::expr::{Expr, UnOp};
use crate::op::{ComputeOp, Kind};

/// How the losses of all targets become the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossReduction {
    /// Each is a result of its own.
    None,
    /// They are added up.
    Sum,
    /// Weighted by the classes' weights.
    Mean,
}

/// Attributes of both losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// How losses are combined.
    pub reduction: LossReduction,
    /// The class whose targets have no loss.
    pub ignore: Option<i64>,
}

/// Log probabilities `x[n, c, ..]`, targets `[n, ..]`, weights `[c]` -> loss.
pub fn negative_log_likelihood(
    loss: Loss,
    x: &TensorType,
    targets: &TensorType,
    weights: Option<&TensorType>,
) -> Result<ComputeOp, OpError> {
    check(x, targets, weights)?;
    let (mut s, [x, targets], weights) = sources(x, targets, weights);
    let y = push_loss(&mut s, loss, &x, &targets, weights.as_ref());
    let y = s.cast(y, x.dtype());
    Ok(s.finish(Kind::Other("NegativeLogLikelihoodLoss".into()), &[&y]))
}

/// Scores `x[n, c, ..]`, targets `[n, ..]`, weights `[c]` -> loss, log probabilities.
pub fn softmax_cross_entropy(
    loss: Loss,
    x: &TensorType,
    targets: &TensorType,
    weights: Option<&TensorType>,
) -> Result<ComputeOp, OpError> {
    check(x, targets, weights)?;
    let (mut s, [x, targets], weights) = sources(x, targets, weights);
    let log_probability = push_log_softmax(&mut s, &x);
    let y = push_loss(&mut s, loss, &log_probability, &targets, weights.as_ref());
    let y = s.cast(y, x.dtype());
    let log_probability = s.cast(log_probability, x.dtype());
    Ok(s.finish(Kind::Other("SoftmaxCrossEntropyLoss".into()), &[&y, &log_probability]))
}

fn check(
    x: &TensorType,
    targets: &TensorType,
    weights: Option<&TensorType>,
) -> Result<(), OpError> {
    let [n, classes, rest @ ..] = x.shape.as_slice() else {
        let (what, expected) = ("the scores of a loss", "2 or more".into());
        return Err(OpError::Rank { what, expected, found: x.shape.clone() });
    };
    let fits = targets.shape.split_first() == Some((n, rest))
        && weights.is_none_or(|w| w.shape == [*classes]);
    if fits {
        return Ok(());
    }
    Err(OpError::Invalid(format!(
        "targets of shape {:?} and weights of shape {:?} do not fit scores of shape {:?}",
        targets.shape,
        weights.map(|w| &w.shape),
        x.shape
    )))
}

fn sources(
    x: &TensorType,
    targets: &TensorType,
    weights: Option<&TensorType>,
) -> (Stages, [Source; 2], Option<Source>) {
    let inputs: Vec<&TensorType> = [x, targets].into_iter().chain(weights).collect();
    let s = Stages::of(&inputs);
    let (required, weights) = ([s.source(0), s.source(1)], weights.map(|_| s.source(2)));
    (s, required, weights)
}

fn with_class(i: &[Expr], class: Expr) -> Vec<Expr> {
    [&[i[0].clone(), class], &i[1..]].concat()
}

/// `x - max - log(sum(exp(x - max)))` over axis 1.
fn push_log_softmax(s: &mut Stages, x: &Source) -> Source {
    let acc = x.dtype().accumulator();
    let mut shape = x.ty().shape.clone();
    let classes = [shape.remove(1)];
    let per_target = TensorType::new(acc, shape);
    let max = s.reduce("max", Combiner::Max, per_target.clone(), &classes, |i, r| {
        x.at_as(acc, &with_class(i, r[0].clone()))
    });
    let sum = s.sum("sum", per_target, &classes, |i, r| {
        let shifted = x.at_as(acc, &with_class(i, r[0].clone())) - max.at(i);
        Expr::unary(UnOp::Exp, shifted)
    });
    s.map("log_softmax", TensorType::new(acc, x.ty().shape.clone()), |i| {
        let target = [&i[..1], &i[2..]].concat();
        x.at_as(acc, i) - max.at(&target) - Expr::unary(UnOp::Log, sum.at(&target))
    })
}

fn push_loss(
    s: &mut Stages,
    loss: Loss,
    log_probability: &Source,
    targets: &Source,
    weights: Option<&Source>,
) -> Source {
    let acc = log_probability.dtype().accumulator();
    let classes = log_probability.ty().shape[1];
    let weight = |i: &[Expr]| {
        let class = targets.at_as(DType::I64, i);
        let weight = match weights {
            Some(weights) => weights.at_as(acc, std::slice::from_ref(&class)),
            None => real(acc, 1.0),
        };
        Expr::select(counts(loss, classes, class), weight, real(acc, 0.0))
    };
    let single = |i: &[Expr]| {
        let class = targets.at_as(DType::I64, i);
        let term = log_probability.at_as(acc, &with_class(i, class.clone()));
        let weighted = match weights {
            Some(weights) => term * weights.at_as(acc, std::slice::from_ref(&class)),
            None => term,
        };
        let negative = Expr::unary(UnOp::Neg, weighted);
        Expr::select(counts(loss, classes, class), negative, real(acc, 0.0))
    };
    let extents = targets.ty().shape.clone();
    let scalar = TensorType::new(acc, []);
    if loss.reduction == LossReduction::None {
        return s.map("loss", TensorType::new(acc, extents), single);
    }
    let sum = s.sum("sum", scalar.clone(), &extents, |_, r| single(r));
    if loss.reduction == LossReduction::Sum {
        return sum;
    }
    let total = s.sum("weight", scalar.clone(), &extents, |_, r| weight(r));
    s.map("mean", scalar, |_| sum.at(&[]) / total.at(&[]))
}

/// The condition that target `class` is one of the classes and not ignored.
fn counts(loss: Loss, classes: usize, class: Expr) -> Expr {
    let valid = Expr::int(0).le(class.clone()).and(class.clone().lt(Expr::index(classes)));
    match loss.ignore {
        Some(ignore) => valid.and(Expr::binary(crate::BinOp::Ne, class, Expr::int(ignore))),
        None => valid,
    }
}
