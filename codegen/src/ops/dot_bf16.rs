//! Sums of two products of `bf16`, and what such a sum is added to; and the pairs that they are of.
//!
//! ```text
//! acc + dot_bf16(a, b), 16 lanes, avx512bf16   ->   vdpbf16ps
//! .., 4 lanes, ARM's bf16                       ->   bfdot
//! .., otherwise                                ->   two multiply-adds of the halves as f32
//! ```

use super::dot4::call;
use super::half;
use crate::ir::{Ir, Kind, Reg, lanes};
use crate::target::{Arch, Target};
use ansc_runtime::DType;

/// `acc + dot_bf16(a, b)`; each may be a scalar where another is a vector.
pub(crate) fn dot_bf16<'c>(
    ir: &Ir<'c>,
    target: &Target,
    acc: Reg<'c>,
    [a, b]: [Reg<'c>; 2],
) -> Reg<'c> {
    let all = lanes(acc).or(lanes(a)).or(lanes(b));
    let [acc, a, b] = [acc, a, b].map(|v| ir.splat(v, all));
    if let Some(name) = all.and_then(|n| instruction(target, n)) {
        return call(ir, name, &[acc, a, b]);
    }
    if target.arch == Arch::Aarch64 && target.has("bf16") && all == Some(4) {
        let pairs = ir.context.bf16_type().vec_type(8).into();
        let [a, b] = [a, b].map(|v| ir.reinterpret(v, pairs));
        let sum =
            ir.intrinsic_on("llvm.aarch64.neon.bfdot", &[acc.get_type(), pairs], &[acc, a, b]);
        return sum.expect("the intrinsic returns a value");
    }
    let upper = ir.fma(upper(ir, a), upper(ir, b), acc);
    ir.fma(lower(ir, a), lower(ir, b), upper)
}

/// The pair of two floats, of which `are_bf16` says whether they are such numbers already.
pub(crate) fn pair_bf16<'c>(
    ir: &Ir<'c>,
    target: &Target,
    [a, b]: [Reg<'c>; 2],
    are_bf16: bool,
) -> Reg<'c> {
    let sixteen = ir.int(32, 16, lanes(a));
    if are_bf16 {
        let [a, b] = [a, b].map(|v| ir.bitcast(v, Kind::Int(32)));
        return ir.or(ir.lshr(a, sixteen), b);
    }
    let bits = |v| ir.resize(half::to_bits(ir, target, DType::BF16, v), 32, false);
    ir.or(bits(a), ir.shl(bits(b), sixteen))
}

fn lower<'c>(ir: &Ir<'c>, pair: Reg<'c>) -> Reg<'c> {
    ir.bitcast(ir.shl(pair, ir.int(32, 16, lanes(pair))), Kind::F32)
}

fn upper<'c>(ir: &Ir<'c>, pair: Reg<'c>) -> Reg<'c> {
    ir.bitcast(ir.and(pair, ir.int(32, 0xffff_0000, lanes(pair))), Kind::F32)
}

fn instruction(target: &Target, lanes: u32) -> Option<&'static str> {
    let narrow = target.has("avx512vl");
    match lanes {
        _ if !target.has("avx512bf16") => None,
        16 => Some("llvm.x86.avx512bf16.dpbf16ps.512"),
        8 if narrow => Some("llvm.x86.avx512bf16.dpbf16ps.256"),
        4 if narrow => Some("llvm.x86.avx512bf16.dpbf16ps.128"),
        _ => None,
    }
}
