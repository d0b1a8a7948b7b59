//! `Constant`, in all forms of its attribute.

use ansc_runtime::Tensor;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::{Binding, NodeCtx};

pub(crate) const OPS: &[OpEntry] = &[OpEntry::any("Constant", 1, constant)];

fn constant(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    if let Some(constant) = ctx.constant_in("value") {
        return Ok(vec![constant?]);
    }
    if let Some(tensor) = ctx.sparse_tensor("sparse_value") {
        return Ok(vec![Binding::Value(ctx.share_const(tensor)?)]);
    }
    let tensor = value(ctx).ok_or_else(|| {
        ctx.problem("its value is not a tensor, an int, a float, or a list of ints or floats")
    })?;
    Ok(vec![Binding::Value(ctx.add_const(tensor)?)])
}

fn value(ctx: &NodeCtx<'_>) -> Option<Tensor> {
    let number = ctx.int_opt("value_int").map(Tensor::scalar);
    number
        .or_else(|| ctx.float_opt("value_float").map(Tensor::scalar))
        .or_else(|| ctx.ints("value_ints").map(|v| Tensor::from_slice(&[v.len()], &v)))
        .or_else(|| ctx.floats("value_floats").map(|v| Tensor::from_slice(&[v.len()], &v)))
}
