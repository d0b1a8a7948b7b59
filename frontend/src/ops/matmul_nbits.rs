//! `MatMulNBits`: a product with a weight of 2, 4 or 8 bits per element.
//!
//! With `accuracy_level` 4 the other operand may have 8 bits, and gets no more: products take up to
//! a third of the time of those that keep 24, as they do by other levels.

use ansc_graph::ValueId;
use ansc_graph::ops::matmul_nbits::{Packed, matmul_nbits, rounded};
use ansc_runtime::DType;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::microsoft("MatMulNBits", import)];

/// The level at which ONNX Runtime, too, multiplies integers of 8 bits.
const BYTES: i64 = 4;

fn import(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    ctx.check(ctx.optional(4).is_none(), || "group indices (g_idx) are not supported".into())?;
    let size = |name: &str, default| ctx.size(ctx.int(name, default), name);
    let packed = Packed {
        n: size("N", 0)?,
        k: size("K", 0)?,
        bits: size("bits", 4)?,
        block: size("block_size", 0)?,
    };
    let shapes = packed.shapes().map_err(|e| ctx.problem(e.to_string()))?;
    let a = ctx.input(0)?;
    let (weight, scales) = (ctx.input(1)?, ctx.input(2)?);
    let weight = ctx.reshape(weight, &shapes[0])?;
    let scales = ctx.reshape(scales, &shapes[1])?;
    let zero = match ctx.optional(3) {
        Some(zero) if ctx.dtype(zero) == DType::U8 => Some(ctx.reshape(zero, &shapes[2])?),
        Some(zero) => Some(ctx.reshape(zero, &shapes[1])?),
        None => None,
    };
    let dtype = ctx.dtype(a);
    let (a, step) = match ctx.int("accuracy_level", 0) {
        BYTES if dtype.is_float() => {
            let made = ctx.emit(rounded(packed, &ctx.ty(a)), &[a])?;
            (made[0], Some(made[1]))
        }
        _ => (a, None),
    };
    let [zero_ty, step_ty] = [zero, step].map(|value| value.map(|value| ctx.ty(value)));
    let [a_ty, weight_ty, scales_ty] = [a, weight, scales].map(|value| ctx.ty(value));
    let types = [zero_ty.as_ref(), step_ty.as_ref()];
    let op = matmul_nbits(packed, &a_ty, &weight_ty, &scales_ty, types[0], types[1]);
    let inputs: Vec<ValueId> = [a, weight, scales].into_iter().chain(zero).chain(step).collect();
    let y = ctx.emit1(op, &inputs)?;
    let y = ctx.cast(y, dtype)?;
    Ok(vec![match ctx.optional(5) {
        Some(bias) => ctx.add_values(y, bias)?,
        None => y,
    }])
}
