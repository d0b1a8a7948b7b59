//! Mathematical functions as IR.

mod libm;

pub(crate) use libm::FUNCTIONS as LIBM_FUNCTIONS;

use ansc_graph::UnOp;

use crate::emit::ir::{Ir, Reg};

/// A transcendental function of an `f32` or `f64`, scalar or vector.
pub(crate) fn unary<'c>(ir: &Ir<'c>, op: UnOp, x: Reg<'c>) -> Option<Reg<'c>> {
    libm::unary(ir, op, x)
}

pub(crate) fn pow<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    libm::call(ir, "pow", &[a, b])
}

/// The remainder of truncating division.
pub(crate) fn fmod<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    libm::call(ir, "fmod", &[a, b])
}

/// The remainder with the divisor's sign.
pub(crate) fn floor_mod<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    use inkwell::FloatPredicate::{OLT, ONE};
    let rest = fmod(ir, a, b);
    let zero = ir.same(b, 0.0);
    let opposite = ir.xor(ir.fcmp(OLT, rest, zero), ir.fcmp(OLT, b, zero));
    let adjust = ir.and(opposite, ir.fcmp(ONE, rest, zero));
    ir.select(adjust, ir.add(rest, b), rest)
}
