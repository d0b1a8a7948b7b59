//! Conversions between `f32` and the 16-bit floats, rounding to nearest even.
//!
//! By instructions where the target has them, else by integer operations: never by a call, for no
//! library that has such functions is linked.

use ansc_runtime::DType;
use inkwell::IntPredicate;
use inkwell::values::{BasicValue, InstructionOpcode};

use super::dot4::call;
use crate::ir::{Ir, Kind, Reg, lanes};
use crate::target::Target;

/// `x` (`f32`) rounded to the half type, still as `f32`. Other types are left alone.
pub(crate) fn round<'c>(ir: &Ir<'c>, target: &Target, dtype: DType, x: Reg<'c>) -> Reg<'c> {
    match dtype {
        DType::F16 if target.converts_f16() => {
            let narrow = ir.cast(InstructionOpcode::FPTrunc, x, Kind::F16);
            ir.cast(InstructionOpcode::FPExt, narrow, Kind::F32)
        }
        DType::F16 => from_bits(ir, target, dtype, to_bits(ir, target, dtype, x)),
        DType::BF16 => {
            let rounded = bf16_rounded(ir, x);
            let mask = i32s(ir, x, 0xffff_0000);
            ir.bitcast(ir.and(rounded, mask), Kind::F32)
        }
        _ => x,
    }
}

/// The 16 bits of `x` (`f32`) rounded to the half type.
pub(crate) fn to_bits<'c>(ir: &Ir<'c>, target: &Target, dtype: DType, x: Reg<'c>) -> Reg<'c> {
    match dtype {
        DType::F16 if target.converts_f16() => {
            ir.bitcast(ir.cast(InstructionOpcode::FPTrunc, x, Kind::F16), Kind::Int(16))
        }
        DType::F16 => f16_bits(ir, x),
        _ => match (bf16_bits(ir, x), lanes(x).and_then(|n| bf16_instruction(target, n))) {
            (Some(bits), _) => bits,
            (_, Some(name)) => ir.reinterpret(call(ir, name, &[x]), ir.ty(Kind::Int(16), lanes(x))),
            _ => {
                let high = ir.lshr(bf16_rounded(ir, x), i32s(ir, x, 16));
                ir.resize(high, 16, false)
            }
        },
    }
}

/// The bits that [`from_bits`] made the number of: what is only moved stays as it is.
fn bf16_bits<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Option<Reg<'c>> {
    let made_by = |x: Reg<'c>, opcode| {
        let made = x.as_instruction_value().filter(|i| i.get_opcode() == opcode)?;
        made.get_operand(0)?.value()
    };
    let shifted = made_by(x, InstructionOpcode::BitCast)?;
    let bits = made_by(made_by(shifted, InstructionOpcode::Shl)?, InstructionOpcode::ZExt)?;
    (ir.kind(bits) == Kind::Int(16)).then_some(bits)
}

/// Rounds a vector to `bf16`. It takes subnormal numbers for zeros.
fn bf16_instruction(target: &Target, lanes: u32) -> Option<&'static str> {
    match lanes {
        16 if target.has("avx512bf16") => Some("llvm.x86.avx512bf16.cvtneps2bf16.512"),
        8 if target.has("avx512bf16") && target.has("avx512vl") => {
            Some("llvm.x86.avx512bf16.cvtneps2bf16.256")
        }
        _ => None,
    }
}

/// The `f32` with the value of the half float's 16 bits.
pub(crate) fn from_bits<'c>(ir: &Ir<'c>, target: &Target, dtype: DType, bits: Reg<'c>) -> Reg<'c> {
    match dtype {
        DType::F16 if target.converts_f16() => {
            ir.cast(InstructionOpcode::FPExt, ir.bitcast(bits, Kind::F16), Kind::F32)
        }
        DType::F16 => f16_value(ir, bits),
        _ => {
            let wide = ir.resize(bits, 32, false);
            ir.bitcast(ir.shl(wide, ir.int(32, 16, lanes(bits))), Kind::F32)
        }
    }
}

/// An `f64` rounded to `f32` so that rounding the result to a half type is as if done at once:
/// towards zero, with the last bit set where anything was lost (round to odd).
pub(crate) fn narrow_to_odd<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let near = ir.cast(InstructionOpcode::FPTrunc, x, Kind::F32);
    let back = ir.cast(InstructionOpcode::FPExt, near, Kind::F64);
    let inexact = ir.fcmp(inkwell::FloatPredicate::ONE, back, x);
    let (size, exact_size) = (ir.intrinsic("llvm.fabs", &[back]), ir.intrinsic("llvm.fabs", &[x]));
    let away = ir.fcmp(inkwell::FloatPredicate::OGT, size, exact_size);
    let bits = ir.bitcast(near, Kind::Int(32));
    let towards_zero = ir.sub(bits, ir.resize(away, 32, false));
    let odd = ir.or(towards_zero, ir.resize(inexact, 32, false));
    ir.bitcast(odd, Kind::F32)
}

fn i32s<'c>(ir: &Ir<'c>, like: Reg<'c>, value: u32) -> Reg<'c> {
    ir.int(32, i64::from(value), lanes(like))
}

/// Bits of `x` with the upper half rounded; NaN is made quiet instead, lest it become infinite.
fn bf16_rounded<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let c = |value| i32s(ir, x, value);
    let bits = ir.bitcast(x, Kind::Int(32));
    let last = ir.and(ir.lshr(bits, c(16)), c(1));
    let rounded = ir.add(bits, ir.add(last, c(0x7fff)));
    let nan = ir.fcmp(inkwell::FloatPredicate::UNO, x, x);
    ir.select(nan, ir.or(bits, c(0x0040_0000)), rounded)
}

fn f16_bits<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let c = |value| i32s(ir, x, value);
    let all = ir.bitcast(x, Kind::Int(32));
    let sign = ir.and(all, c(0x8000_0000));
    let bits = ir.xor(all, sign);
    // Adding 0.5 shifts a subnormal result into the low bits, rounding on the way.
    let shifted = ir.add(ir.bitcast(bits, Kind::F32), ir.float(Kind::F32, 0.5, lanes(x)));
    let subnormal = ir.sub(ir.bitcast(shifted, Kind::Int(32)), c(0x3f00_0000));
    let odd = ir.and(ir.lshr(bits, c(13)), c(1));
    let rebiased = ir.add(ir.add(bits, c(0xc800_0fff)), odd);
    let normal = ir.lshr(rebiased, c(13));
    let nan = ir.icmp(IntPredicate::UGT, bits, c(0x7f80_0000));
    let special = ir.select(nan, c(0x7e00), c(0x7c00));
    let is_subnormal = ir.icmp(IntPredicate::ULT, bits, c(0x3880_0000));
    let is_special = ir.icmp(IntPredicate::UGE, bits, c(0x4780_0000));
    let finite = ir.select(is_subnormal, subnormal, normal);
    let size = ir.select(is_special, special, finite);
    ir.resize(ir.or(size, ir.lshr(sign, c(16))), 16, false)
}

fn f16_value<'c>(ir: &Ir<'c>, half: Reg<'c>) -> Reg<'c> {
    let wide = ir.resize(half, 32, false);
    let c = |value| i32s(ir, wide, value);
    let sign = ir.shl(ir.and(wide, c(0x8000)), c(16));
    let shifted = ir.shl(ir.and(wide, c(0x7fff)), c(13));
    // The exponent's bias grows by 112.
    let normal = ir.add(shifted, c(112 << 23));
    // 2^-14 with a subnormal's digits behind it, less 2^-14. No operand is subnormal in `f32`,
    // where it may count as zero.
    let least = ir.float(Kind::F32, 2f64.powi(-14), lanes(wide));
    let above = ir.bitcast(ir.add(shifted, c(113 << 23)), Kind::F32);
    let subnormal = ir.bitcast(ir.sub(above, least), Kind::Int(32));
    let is_subnormal = ir.icmp(IntPredicate::ULT, shifted, c(1 << 23));
    let is_special = ir.icmp(IntPredicate::UGE, shifted, c(0x7c00 << 13));
    let special = ir.or(normal, c(0x7f80_0000));
    let bits = ir.select(is_special, special, ir.select(is_subnormal, subnormal, normal));
    ir.bitcast(ir.or(bits, sign), Kind::F32)
}
