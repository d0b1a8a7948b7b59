//! `Dropout` at inference: the operand, and a mask that keeps everything.

use ansc_graph::ops::fill;
use ansc_graph::{Scalar, ValueId};
use ansc_runtime::DType;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("Dropout", 1, dropout)];

fn dropout(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    if drops(ctx)? {
        return Err(ctx
            .problem("dropping elements at random, as in training, is not supported")
            .remedy("export the model for inference"));
    }
    let x = ctx.input(0)?;
    if !ctx.wants_output(1) {
        return Ok(vec![x]);
    }
    let ty = ctx.ty(x);
    let dtype = if ctx.opset() < 10 { ty.dtype } else { DType::Bool };
    let mask = ctx.emit1(fill::constant(Scalar::one(dtype), &ty.shape), &[])?;
    Ok(vec![x, mask])
}

/// Since opset 12 an input says whether this is training; a ratio of zero drops nothing even then.
fn drops(ctx: &NodeCtx<'_>) -> Result<bool, Problem> {
    if ctx.opset() < 12 || ctx.optional(2).is_none() {
        return Ok(false);
    }
    let training = ctx.known(2, "training mode")?;
    if training.to_f64_vec().iter().all(|&flag| flag == 0.0) {
        return Ok(false);
    }
    let ratio = match ctx.optional(1) {
        Some(_) => ctx.known(1, "ratio")?.to_f64_vec(),
        None => vec![0.5],
    };
    Ok(ratio.iter().any(|&r| r != 0.0))
}
