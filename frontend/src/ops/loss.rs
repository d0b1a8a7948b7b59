//! `NegativeLogLikelihoodLoss` and `SoftmaxCrossEntropyLoss`.

use ansc_graph::ValueId;
use ansc_graph::ops::loss::{Loss, LossReduction, negative_log_likelihood, softmax_cross_entropy};

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("NegativeLogLikelihoodLoss", 12, |ctx| import(ctx, false)),
    OpEntry::onnx("SoftmaxCrossEntropyLoss", 12, |ctx| import(ctx, true)),
];

fn import(ctx: &mut NodeCtx<'_>, of_scores: bool) -> Result<Vec<ValueId>, Problem> {
    let (x, targets, weights) = (ctx.input(0)?, ctx.input(1)?, ctx.optional(2));
    let reduction = match ctx.string("reduction", "mean").as_str() {
        "none" => LossReduction::None,
        "sum" => LossReduction::Sum,
        "mean" => LossReduction::Mean,
        other => return Err(ctx.problem(format!("its reduction is `{other}`"))),
    };
    let loss = Loss { reduction, ignore: ctx.int_opt("ignore_index") };
    let (x_ty, target_ty, weight_ty) = (ctx.ty(x), ctx.ty(targets), weights.map(|w| ctx.ty(w)));
    let constructor = if of_scores { softmax_cross_entropy } else { negative_log_likelihood };
    let inputs: Vec<ValueId> = [x, targets].into_iter().chain(weights).collect();
    ctx.emit(constructor(loss, &x_ty, &target_ty, weight_ty.as_ref()), &inputs)
}
