//! Floats to integers of 8 or 16 bits.
//!
//! ```text
//! u8(x)                     ->   limit x to 0..255; convert; take the lowest bytes
//! u8(round(x) + 3), x86     ->   limit x to -3..252; convert, which rounds; add 3; ..
//! .., 8 lanes, avx2         ->   limit x to ..252; ..; pack, which limits the rest
//! ```
//!
//! A float that is not a number becomes zero.

use ansc_graph::Scalar;
use ansc_runtime::DType;
use inkwell::FloatPredicate;
use inkwell::values::InstructionOpcode;

use super::dot4::call;
use crate::ir::{Ir, Kind, Reg, lanes};
use crate::target::{Arch, Target};

/// Limits a float to the range of the type, less `plus`, which is added later. NaN becomes the
/// number that gives zero then.
pub(crate) fn limited<'c>(ir: &Ir<'c>, to: DType, x: Reg<'c>, plus: f64) -> Reg<'c> {
    let [low, high] = limits(to, plus).map(|limit| ir.same(x, limit));
    // A value that is not above `low` is below it, equal to it, or NaN.
    let raised = ir.select(ir.fcmp(FloatPredicate::OGT, x, low), x, low);
    let raised = match to.is_signed_int() {
        true => ir.select(ir.fcmp(FloatPredicate::UNO, x, x), ir.same(x, -plus), raised),
        false => raised,
    };
    ir.select(ir.fcmp(FloatPredicate::OLT, raised, high), raised, high)
}

fn limits(to: DType, plus: f64) -> [f64; 2] {
    [Scalar::lowest(to), Scalar::highest(to)].map(|limit| limit.as_f64() - plus)
}

/// Converts by way of 32 bits: LLVM would convert lane by lane where it has no instruction.
pub(super) fn from_float<'c>(ir: &Ir<'c>, target: &Target, to: DType, x: Reg<'c>) -> Reg<'c> {
    let wide = ir.cast(InstructionOpcode::FPToSI, limited(ir, to, x, 0.0), Kind::Int(32));
    lowest(ir, target, to, wide)
}

/// `round(x) + plus`, converted. None where no instruction rounds what it converts.
pub(crate) fn rounded<'c>(
    ir: &Ir<'c>,
    target: &Target,
    to: DType,
    x: Reg<'c>,
    plus: f64,
) -> Option<Reg<'c>> {
    let all = lanes(x)?;
    let convert = rounding(target, all)?;
    let within = match to == DType::U8 && plus >= 0.0 && packs(target, to, all) {
        // NaN and all that is too low become the lowest integer, and stay far below zero.
        true => {
            let high = ir.same(x, limits(to, plus)[1]);
            ir.select(ir.fcmp(FloatPredicate::OLT, high, x), high, x)
        }
        false => limited(ir, to, x, plus),
    };
    let whole = match all {
        // All lanes, rounded as usual.
        16 => {
            let [none, lanes, mode] =
                [ir.int(32, 0, Some(16)), ir.int(16, -1, None), ir.int(32, 4, None)];
            call(ir, convert, &[within, none, lanes, mode])
        }
        _ => call(ir, convert, &[within]),
    };
    let whole = ir.reinterpret(whole, ir.ty(Kind::Int(32), Some(all)));
    let sum = if plus == 0.0 { whole } else { ir.add(whole, ir.same(whole, plus)) };
    Some(lowest(ir, target, to, sum))
}

/// Converts floats to the nearest integers of 32 bits, of two the even one.
fn rounding(target: &Target, lanes: u32) -> Option<&'static str> {
    match lanes {
        _ if target.arch != Arch::X86_64 => None,
        16 if target.has("avx512f") => Some("llvm.x86.avx512.mask.cvtps2dq.512"),
        8 if target.has("avx") => Some("llvm.x86.avx.cvt.ps2dq.256"),
        4 => Some("llvm.x86.sse2.cvtps2dq"),
        _ => None,
    }
}

/// Whether bytes are packed from words: processors with more have one instruction.
fn packs(target: &Target, to: DType, lanes: u32) -> bool {
    lanes == 8 && to.size() == 1 && target.has("avx2") && !target.has("avx512vl")
}

/// The lowest bits of integers of 32 bits, which are in the range of the type; of bytes without a
/// sign that are packed, not above it.
fn lowest<'c>(ir: &Ir<'c>, target: &Target, to: DType, wide: Reg<'c>) -> Reg<'c> {
    if !lanes(wide).is_some_and(|lanes| packs(target, to, lanes)) {
        return ir.resize(wide, 8 * to.size() as u32, true);
    }
    let [low, high] = [[0, 1, 2, 3], [4, 5, 6, 7]].map(|half| ir.shuffle(wide, wide, &half));
    let words = call(ir, "llvm.x86.sse2.packssdw.128", &[low, high]);
    let pack = match to.is_signed_int() {
        true => "llvm.x86.sse2.packsswb.128",
        false => "llvm.x86.sse2.packuswb.128",
    };
    let bytes = call(ir, pack, &[words, words]);
    ir.shuffle(bytes, bytes, &[0, 1, 2, 3, 4, 5, 6, 7])
}
