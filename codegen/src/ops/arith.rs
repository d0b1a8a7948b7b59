//! Binary operations and reduction combiners.

use ansc_graph::{BinOp, Combiner};
use ansc_runtime::DType;
use inkwell::values::InstructionOpcode;
use inkwell::{FloatPredicate, IntPredicate};

use crate::ir::{Ir, Kind, Reg, lanes};
use crate::math;
use crate::ops::{Undefined, half};
use crate::target::Target;

/// `a op b` on operands of type `dtype`; one may be a scalar and the other a vector.
pub(crate) fn binary<'c>(
    ir: &Ir<'c>,
    target: &Target,
    op: BinOp,
    dtype: DType,
    a: Reg<'c>,
    b: Reg<'c>,
) -> Result<Reg<'c>, Undefined> {
    let (a, b) = ir.level(a, b);
    if op.is_comparison() {
        return Ok(compare(ir, op, dtype, a, b));
    }
    if op == BinOp::PairBf16 {
        return Ok(super::pair_bf16(ir, target, [a, b], false));
    }
    if dtype.is_float() {
        let exact = float_binary(ir, op, dtype, a, b).ok_or(Undefined { op: op.name(), dtype })?;
        return Ok(match op {
            // One of the operands.
            BinOp::Min | BinOp::Max => exact,
            _ => half::round(ir, target, dtype, exact),
        });
    }
    match dtype {
        DType::Bool => bool_binary(ir, op, a, b),
        DType::I32 if op == BinOp::Dot4 => {
            let bytes = super::Bytes { a, are_small: false, b };
            Some(super::dot4(ir, target, ir.same(a, 0.0), bytes))
        }
        DType::I32 if op == BinOp::Dot2 => Some(super::dot2(ir, target, ir.same(a, 0.0), [a, b])),
        DType::I32 if op == BinOp::DotBf16 => {
            let zero = ir.float(Kind::F32, 0.0, lanes(a));
            Some(super::dot_bf16(ir, target, zero, [a, b]))
        }
        DType::U32 if op == BinOp::Mix => Some(mix(ir, a, b)),
        _ => int_binary(ir, op, dtype.is_signed_int(), a, b),
    }
    .ok_or(Undefined { op: op.name(), dtype })
}

/// One step of a reduction; the arg-combiners are not combined this way.
pub(crate) fn combine<'c>(
    ir: &Ir<'c>,
    target: &Target,
    combiner: Combiner,
    dtype: DType,
    a: Reg<'c>,
    b: Reg<'c>,
) -> Result<Reg<'c>, Undefined> {
    let op = match combiner {
        Combiner::Sum => BinOp::Add,
        Combiner::Prod => BinOp::Mul,
        Combiner::Max => BinOp::Max,
        Combiner::Min => BinOp::Min,
        Combiner::ArgMax { .. } | Combiner::ArgMin { .. } => {
            return Err(Undefined { op: "arg-reduction of one value", dtype });
        }
    };
    binary(ir, target, op, dtype, a, b)
}

fn compare<'c>(ir: &Ir<'c>, op: BinOp, dtype: DType, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    if dtype.is_float() {
        let predicate = match op {
            BinOp::Eq => FloatPredicate::OEQ,
            BinOp::Ne => FloatPredicate::UNE,
            BinOp::Lt => FloatPredicate::OLT,
            _ => FloatPredicate::OLE,
        };
        return ir.fcmp(predicate, a, b);
    }
    let predicate = match (op, dtype.is_signed_int()) {
        (BinOp::Eq, _) => IntPredicate::EQ,
        (BinOp::Ne, _) => IntPredicate::NE,
        (BinOp::Lt, true) => IntPredicate::SLT,
        (BinOp::Lt, false) => IntPredicate::ULT,
        (_, true) => IntPredicate::SLE,
        (_, false) => IntPredicate::ULE,
    };
    ir.icmp(predicate, a, b)
}

fn bool_binary<'c>(ir: &Ir<'c>, op: BinOp, a: Reg<'c>, b: Reg<'c>) -> Option<Reg<'c>> {
    Some(match op {
        BinOp::And | BinOp::Min | BinOp::Mul => ir.and(a, b),
        BinOp::Or | BinOp::Max | BinOp::Add => ir.or(a, b),
        BinOp::Xor => ir.xor(a, b),
        _ => return None,
    })
}

fn float_binary<'c>(
    ir: &Ir<'c>,
    op: BinOp,
    dtype: DType,
    a: Reg<'c>,
    b: Reg<'c>,
) -> Option<Reg<'c>> {
    // A product of halves is rounded before it is added to. LLVM may do both as operations on
    // halves, and would fuse them if they said that they may be.
    let halves = dtype.size() == 2;
    Some(match op {
        BinOp::Add if halves => ir.binop(InstructionOpcode::FAdd, a, b),
        BinOp::Sub if halves => ir.binop(InstructionOpcode::FSub, a, b),
        BinOp::Mul if halves => ir.binop(InstructionOpcode::FMul, a, b),
        BinOp::Add => ir.add(a, b),
        BinOp::Sub => ir.sub(a, b),
        BinOp::Mul => ir.mul(a, b),
        BinOp::Div => ir.fdiv(a, b),
        BinOp::Rem => math::fmod(ir, a, b),
        BinOp::FloorDiv => ir.intrinsic("llvm.floor", &[ir.fdiv(a, b)]),
        BinOp::FloorMod => math::floor_mod(ir, a, b),
        BinOp::Pow => math::pow(ir, a, b),
        BinOp::Min => extreme(ir, FloatPredicate::OLT, a, b),
        BinOp::Max => extreme(ir, FloatPredicate::OGT, a, b),
        _ => return None,
    })
}

/// The smaller or larger of two floats, NaN if either is, any zero of two. One x86 instruction if
/// one side is a constant number, otherwise three, of which only one waits for the first operand:
/// in a reduction that is the running value.
fn extreme<'c>(ir: &Ir<'c>, better: FloatPredicate, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    // Where the two do not compare, this is the second.
    let pick = |x, y| ir.select(ir.fcmp(better, x, y), x, y);
    match (is_number(a), is_number(b)) {
        (true, _) => pick(a, b),
        (_, true) => pick(b, a),
        _ if better == FloatPredicate::OGT => ir.of_any_zero("llvm.maximum", &[b, a]),
        _ => ir.of_any_zero("llvm.minimum", &[b, a]),
    }
}

/// Whether the operand is a constant that is not NaN, the same in each lane.
fn is_number(v: Reg<'_>) -> bool {
    use inkwell::values::BasicValueEnum;
    let first = match v {
        BasicValueEnum::VectorValue(v) if v.is_const() && v.is_constant_data_vector() => {
            v.get_element_as_constant(0)
        }
        v => v,
    };
    let BasicValueEnum::FloatValue(f) = first else { return false };
    f.is_const() && f.get_constant().is_some_and(|(v, _)| !v.is_nan())
}

fn int_binary<'c>(ir: &Ir<'c>, op: BinOp, signed: bool, a: Reg<'c>, b: Reg<'c>) -> Option<Reg<'c>> {
    Some(match op {
        BinOp::Add => ir.add(a, b),
        BinOp::Sub => ir.sub(a, b),
        BinOp::Mul => ir.mul(a, b),
        BinOp::Div => divide(ir, signed, a, b).0,
        BinOp::Rem => divide(ir, signed, a, b).1,
        BinOp::FloorDiv => floor_divide(ir, signed, a, b).0,
        BinOp::FloorMod => floor_divide(ir, signed, a, b).1,
        BinOp::Pow => int_pow(ir, signed, a, b),
        BinOp::Min if signed => ir.intrinsic("llvm.smin", &[a, b]),
        BinOp::Min => ir.intrinsic("llvm.umin", &[a, b]),
        BinOp::Max if signed => ir.intrinsic("llvm.smax", &[a, b]),
        BinOp::Max => ir.intrinsic("llvm.umax", &[a, b]),
        BinOp::And => ir.and(a, b),
        BinOp::Or => ir.or(a, b),
        BinOp::Xor => ir.xor(a, b),
        BinOp::Shl | BinOp::Shr => shift(ir, op, signed, a, b),
        BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le => return None,
        BinOp::Dot4 | BinOp::Dot2 | BinOp::PairBf16 | BinOp::DotBf16 | BinOp::Mix => return None,
    })
}

fn mix<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    let number = |n: u32| ir.int(32, i64::from(n), lanes(a));
    let fold = |x, by| ir.xor(x, ir.lshr(x, number(by)));
    let x = ir.add(a, ir.mul(b, number(0x9e37_79b1)));
    let x = ir.mul(fold(x, 16), number(0x7feb_352d));
    let x = ir.mul(fold(x, 15), number(0x846c_a68b));
    fold(x, 16)
}

/// Quotient and remainder, truncating. A zero divisor gives zeros; the one quotient that
/// overflows wraps. Neither reaches the divide instruction, which would trap.
fn divide<'c>(ir: &Ir<'c>, signed: bool, a: Reg<'c>, b: Reg<'c>) -> (Reg<'c>, Reg<'c>) {
    let (zero, one) = (ir.same(b, 0.0), ir.same(b, 1.0));
    let by_zero = ir.icmp(IntPredicate::EQ, b, zero);
    let safe = ir.select(by_zero, one, b);
    if !signed {
        let quotient = ir.binop(InstructionOpcode::UDiv, a, safe);
        let rest = ir.binop(InstructionOpcode::URem, a, safe);
        return (ir.select(by_zero, zero, quotient), ir.select(by_zero, zero, rest));
    }
    let negates = ir.icmp(IntPredicate::EQ, b, ir.same(b, -1.0));
    let safe = ir.select(negates, one, safe);
    let quotient = ir.binop(InstructionOpcode::SDiv, a, safe);
    let rest = ir.binop(InstructionOpcode::SRem, a, safe);
    let quotient = ir.select(negates, ir.neg(a), quotient);
    (ir.select(by_zero, zero, quotient), ir.select(by_zero, zero, rest))
}

/// Quotient rounded down, and the remainder with the divisor's sign.
fn floor_divide<'c>(ir: &Ir<'c>, signed: bool, a: Reg<'c>, b: Reg<'c>) -> (Reg<'c>, Reg<'c>) {
    let (quotient, rest) = divide(ir, signed, a, b);
    if !signed {
        return (quotient, rest);
    }
    let zero = ir.same(b, 0.0);
    let inexact = ir.icmp(IntPredicate::NE, rest, zero);
    let opposite = ir.icmp(IntPredicate::SLT, ir.xor(rest, b), zero);
    let adjust = ir.and(inexact, opposite);
    let lower = ir.sub(quotient, ir.same(b, 1.0));
    (ir.select(adjust, lower, quotient), ir.select(adjust, ir.add(rest, b), rest))
}

/// Shifts by the width or more (or by a negative amount) leave zeros, or copies of the sign.
fn shift<'c>(ir: &Ir<'c>, op: BinOp, signed: bool, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    let Kind::Int(bits) = ir.kind(a) else { unreachable!("shifts are for integers") };
    let last = ir.int(bits, i64::from(bits) - 1, lanes(a));
    let far = ir.icmp(IntPredicate::UGT, b, last);
    let amount = ir.select(far, last, b);
    match (op, signed) {
        (BinOp::Shr, true) => ir.ashr(a, amount),
        (BinOp::Shr, false) => ir.select(far, ir.same(a, 0.0), ir.lshr(a, amount)),
        _ => ir.select(far, ir.same(a, 0.0), ir.shl(a, amount)),
    }
}

/// By squaring, wrapping. A negative exponent gives the reciprocal truncated: zero unless the base
/// is 1 or -1.
fn int_pow<'c>(ir: &Ir<'c>, signed: bool, base: Reg<'c>, exponent: Reg<'c>) -> Reg<'c> {
    let Kind::Int(bits) = ir.kind(base) else { unreachable!("an integer power") };
    let (zero, one) = (ir.same(base, 0.0), ir.same(base, 1.0));
    let (mut result, mut square) = (one, base);
    for bit in 0..bits {
        let set = ir.and(exponent, ir.shl(one, ir.int(bits, i64::from(bit), lanes(base))));
        let used = ir.icmp(IntPredicate::NE, set, zero);
        result = ir.select(used, ir.mul(result, square), result);
        square = ir.mul(square, square);
    }
    if !signed {
        return result;
    }
    // The exponent's two's complement has its parity, so `result` is right for 1 and -1 already.
    let negative = ir.icmp(IntPredicate::SLT, exponent, zero);
    let unit = ir.or(
        ir.icmp(IntPredicate::EQ, base, one),
        ir.icmp(IntPredicate::EQ, base, ir.same(base, -1.0)),
    );
    let vanishes = ir.and(negative, ir.not(unit));
    ir.select(vanishes, zero, result)
}
