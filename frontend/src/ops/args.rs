//! Turning attributes and constant inputs, which are `i64`, into what constructors take.

use ansc_graph::{Scalar, ValueId};
use ansc_runtime::DType;

use crate::problem::Problem;
use crate::tensor_type;
use crate::walk::NodeCtx;

/// A list of extents (or other counts), none of them negative.
pub(super) fn extents(
    ctx: &NodeCtx<'_>,
    values: &[i64],
    what: &str,
) -> Result<Vec<usize>, Problem> {
    let all: Option<Vec<usize>> = values.iter().map(|&v| usize::try_from(v).ok()).collect();
    all.ok_or_else(|| ctx.problem(format!("its {what} {values:?} has a negative element")))
}

pub(super) fn extent(ctx: &NodeCtx<'_>, value: i64, what: &str) -> Result<usize, Problem> {
    usize::try_from(value).map_err(|_| ctx.problem(format!("its {what} {value} is negative")))
}

/// A tensor of one element, whatever its rank.
pub(super) fn only_element(ctx: &NodeCtx<'_>, input: usize, what: &str) -> Result<Scalar, Problem> {
    let tensor = ctx.known(input, what)?;
    match tensor.len() {
        1 => Ok(Scalar::at(&tensor, 0)),
        n => Err(ctx.problem(format!("its {what} must be one element, not {n}"))),
    }
}

/// As [`only_element`], for an integer.
pub(super) fn only_int(ctx: &NodeCtx<'_>, input: usize, what: &str) -> Result<i64, Problem> {
    let scalar = only_element(ctx, input, what)?;
    if scalar.dtype().is_int() {
        Ok(scalar.as_i64())
    } else {
        Err(ctx.problem(format!("its {what} must be an integer, not {}", scalar.dtype())))
    }
}

/// The element type that an attribute tells.
pub(super) fn onnx_type(ctx: &NodeCtx<'_>, code: i64) -> Result<DType, Problem> {
    let code = i32::try_from(code).map_err(|_| ctx.problem("its dtype is not known"))?;
    tensor_type::dtype(code).map_err(|e| ctx.problem(e))
}

/// Refuses a value whose size only the data decides, for operators that read nothing but the size.
pub(super) fn check_static(ctx: &NodeCtx<'_>, value: ValueId) -> Result<(), Problem> {
    if ctx.is_dynamic(value) {
        return Err(ctx.problem("only the data decides the size of its input"));
    }
    Ok(())
}
