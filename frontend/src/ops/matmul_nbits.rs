//! `MatMulNBits`: a product with a weight of 2, 4 or 8 bits per element.

use ansc_graph::ValueId;
use ansc_graph::ops::matmul_nbits::{Packed, matmul_nbits};
use ansc_runtime::DType;

use super::OpEntry;
use crate::import::NodeCtx;
use crate::problem::Problem;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::microsoft("MatMulNBits", import)];

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
    let zero_ty = zero.map(|z| ctx.ty(z));
    let op = matmul_nbits(packed, &ctx.ty(a), &ctx.ty(weight), &ctx.ty(scales), zero_ty.as_ref());
    let inputs: Vec<ValueId> = [a, weight, scales].into_iter().chain(zero).collect();
    let y = ctx.emit1(op, &inputs)?;
    Ok(vec![match ctx.optional(5) {
        Some(bias) => ctx.add_values(y, bias)?,
        None => y,
    }])
}
