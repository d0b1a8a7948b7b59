//! Conversions between element types: floats to integers saturate, integers wrap, `bool` is `!= 0`.

use ansc_runtime::DType;
use inkwell::values::InstructionOpcode;
use inkwell::{FloatPredicate, IntPredicate};

use crate::ir::{Ir, Kind, Reg, lanes};
use crate::ops::{half, kind, narrow};
use crate::target::Target;

pub(crate) fn cast<'c>(
    ir: &Ir<'c>,
    target: &Target,
    from: DType,
    to: DType,
    x: Reg<'c>,
) -> Reg<'c> {
    match (from, to) {
        _ if from == to => x,
        (_, DType::Bool) => truth(ir, x),
        _ if from.is_float() && to.is_float() => float_to_float(ir, target, from, to, x),
        _ if from.is_float() => float_to_int(ir, target, to, x),
        _ if to.is_float() => int_to_float(ir, target, from, to, x),
        _ => resize(ir, from, to, x),
    }
}

fn truth<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    match ir.kind(x) {
        Kind::Int(_) => ir.icmp(IntPredicate::NE, x, ir.same(x, 0.0)),
        _ => ir.fcmp(FloatPredicate::UNE, x, ir.same(x, 0.0)),
    }
}

fn resize<'c>(ir: &Ir<'c>, from: DType, to: DType, x: Reg<'c>) -> Reg<'c> {
    let Kind::Int(bits) = kind(to) else { unreachable!("both types are integers") };
    ir.resize(x, bits, from.is_signed_int())
}

fn float_to_float<'c>(ir: &Ir<'c>, target: &Target, from: DType, to: DType, x: Reg<'c>) -> Reg<'c> {
    match (kind(from), to) {
        (Kind::F64, DType::F32) => ir.cast(InstructionOpcode::FPTrunc, x, Kind::F32),
        (Kind::F64, _) => half::round(ir, target, to, half::narrow_to_odd(ir, x)),
        (_, DType::F64) => ir.cast(InstructionOpcode::FPExt, x, Kind::F64),
        _ => half::round(ir, target, to, x),
    }
}

fn float_to_int<'c>(ir: &Ir<'c>, target: &Target, to: DType, x: Reg<'c>) -> Reg<'c> {
    if to.size() <= 2 {
        return narrow::from_float(ir, target, to, x);
    }
    if to == DType::I32 && lanes(x).is_some() {
        return floats_to_words(ir, x);
    }
    let name = if to.is_signed_int() { "llvm.fptosi.sat" } else { "llvm.fptoui.sat" };
    let result = ir.ty(kind(to), lanes(x));
    ir.intrinsic_on(name, &[result, x.get_type()], &[x]).expect("the conversion returns a value")
}

/// Vectors to 32 bits with a sign, which LLVM converts lane by lane as well. No narrow float is the
/// largest integer: it is put in afterwards.
fn floats_to_words<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let [low, beyond] = [i32::MIN.into(), -f64::from(i32::MIN)].map(|limit| ir.same(x, limit));
    let raised = ir.select(ir.fcmp(FloatPredicate::OGT, x, low), x, low);
    let known = ir.select(ir.fcmp(FloatPredicate::UNO, x, x), ir.same(x, 0.0), raised);
    let is_beyond = ir.fcmp(FloatPredicate::OGE, known, beyond);
    let within = ir.select(is_beyond, low, known);
    let word = ir.cast(InstructionOpcode::FPToSI, within, Kind::Int(32));
    ir.select(is_beyond, ir.int(32, i32::MAX.into(), lanes(x)), word)
}

fn int_to_float<'c>(ir: &Ir<'c>, target: &Target, from: DType, to: DType, x: Reg<'c>) -> Reg<'c> {
    let op =
        if from.is_signed_int() { InstructionOpcode::SIToFP } else { InstructionOpcode::UIToFP };
    match to {
        DType::F32 | DType::F64 => ir.cast(op, x, kind(to)),
        // Up to 16 bits are exact in `f32`.
        _ if from.size() <= 2 => half::round(ir, target, to, ir.cast(op, x, Kind::F32)),
        _ => {
            let wide = ir.cast(op, x, Kind::F64);
            half::round(ir, target, to, half::narrow_to_odd(ir, wide))
        }
    }
}
