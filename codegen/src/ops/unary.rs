//! Unary operations.

use ansc_graph::UnOp;
use ansc_runtime::DType;
use inkwell::{FloatPredicate, IntPredicate};

use crate::ir::{Ir, Kind, Reg, lanes};
use crate::math;
use crate::ops::{Undefined, half, kind};
use crate::target::Target;

/// The last bit of an `f32` that tensor cores read.
const TF32_LEAST: i64 = 1 << 13;

pub(crate) fn unary<'c>(
    ir: &Ir<'c>,
    target: &Target,
    op: UnOp,
    dtype: DType,
    x: Reg<'c>,
) -> Result<Reg<'c>, Undefined> {
    match kind(dtype) {
        Kind::Int(1) => bool_unary(ir, op, x),
        Kind::Int(_) => int_unary(ir, op, dtype.is_signed_int(), x),
        _ => float_unary(ir, op, x).map(|exact| match op.result(dtype) {
            DType::Bool => exact,
            _ if keeps_halves(op) => exact,
            result => half::round(ir, target, result, exact),
        }),
    }
    .ok_or(Undefined { op: op.name(), dtype })
}

/// Whether the result of a half float is one without rounding: a half float with a fraction is so
/// small that all integers around it are half floats.
fn keeps_halves(op: UnOp) -> bool {
    use UnOp::*;
    matches!(op, Neg | Abs | Sign | Floor | Ceil | Round | Trunc)
}

fn bool_unary<'c>(ir: &Ir<'c>, op: UnOp, x: Reg<'c>) -> Option<Reg<'c>> {
    Some(match op {
        UnOp::Not => ir.not(x),
        UnOp::Abs => x,
        UnOp::IsNan | UnOp::IsInf => ir.int(1, 0, lanes(x)),
        _ => return None,
    })
}

fn int_unary<'c>(ir: &Ir<'c>, op: UnOp, signed: bool, x: Reg<'c>) -> Option<Reg<'c>> {
    let (zero, one) = (ir.same(x, 0.0), ir.same(x, 1.0));
    Some(match op {
        UnOp::Neg => ir.neg(x),
        UnOp::Not => ir.not(x),
        UnOp::Abs if signed => ir.select(ir.icmp(IntPredicate::SLT, x, zero), ir.neg(x), x),
        UnOp::Sign if signed => {
            let positive = ir.select(ir.icmp(IntPredicate::SGT, x, zero), one, zero);
            ir.select(ir.icmp(IntPredicate::SLT, x, zero), ir.same(x, -1.0), positive)
        }
        UnOp::Sign => ir.select(ir.icmp(IntPredicate::NE, x, zero), one, zero),
        UnOp::Abs | UnOp::Floor | UnOp::Ceil | UnOp::Round | UnOp::Trunc => x,
        UnOp::IsNan | UnOp::IsInf => ir.int(1, 0, lanes(x)),
        _ => return None,
    })
}

fn float_unary<'c>(ir: &Ir<'c>, op: UnOp, x: Reg<'c>) -> Option<Reg<'c>> {
    Some(match op {
        UnOp::Neg => ir.neg(x),
        UnOp::Abs => ir.intrinsic("llvm.fabs", &[x]),
        UnOp::Sign => sign(ir, x),
        UnOp::Sqrt => ir.intrinsic("llvm.sqrt", &[x]),
        UnOp::Floor => ir.intrinsic("llvm.floor", &[x]),
        UnOp::Ceil => ir.intrinsic("llvm.ceil", &[x]),
        UnOp::Round => ir.intrinsic("llvm.roundeven", &[x]),
        UnOp::Trunc => ir.intrinsic("llvm.trunc", &[x]),
        UnOp::Tf32 => tf32(ir, x),
        UnOp::IsNan => ir.fcmp(FloatPredicate::UNO, x, x),
        UnOp::IsInf => {
            let size = ir.intrinsic("llvm.fabs", &[x]);
            ir.fcmp(FloatPredicate::OEQ, size, ir.same(x, f64::INFINITY))
        }
        UnOp::Not => return None,
        transcendental => math::unary(ir, transcendental, x)?,
    })
}

/// The bits that tensor cores do not read are rounded away.
fn tf32<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let bits = ir.bitcast(x, Kind::Int(32));
    let (half, kept) = (TF32_LEAST / 2, -TF32_LEAST);
    let more = ir.add(bits, ir.int(32, half, lanes(x)));
    let rounded = ir.bitcast(ir.and(more, ir.int(32, kept, lanes(x))), Kind::F32);
    ir.select(ir.fcmp(FloatPredicate::UNO, x, x), x, rounded)
}

/// -1, 0 or 1; NaN stays NaN.
fn sign<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let size = ir.intrinsic("llvm.copysign", &[ir.same(x, 1.0), x]);
    let number = ir.fcmp(FloatPredicate::ONE, x, ir.same(x, 0.0));
    ir.select(number, size, x)
}
