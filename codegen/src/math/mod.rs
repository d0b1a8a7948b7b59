//! Mathematical functions as IR.
//!
//! On `f32` the common ones are short polynomials over whole vectors, the same instructions for a
//! scalar, so that a tail gets the bits that a full vector would. The rest, and `f64`, is the C
//! library's, and where there is none (on a GPU) that of `double`.
//!
//! | function | largest error over all `f32` |
//! | --- | --- |
//! | exp | 1.1 units in the last place |
//! | log | 1 unit |
//! | tanh | 5.5 units |
//! | sigmoid | 3 units |
//! | erf | 5.5 units |

mod double;
mod erf;
mod exp;
mod libm;
mod log;
mod polynomial;
mod quotient;
mod tanh;

pub(crate) use libm::FUNCTIONS as LIBM_FUNCTIONS;

use ansc_graph::UnOp;

use crate::ir::{Ir, Kind, Reg};

/// A transcendental function of an `f32` or `f64`, scalar or vector.
pub(crate) fn unary<'c>(ir: &Ir<'c>, op: UnOp, x: Reg<'c>) -> Option<Reg<'c>> {
    match op {
        UnOp::Exp if ir.kind(x) == Kind::F32 => Some(exp::exp(ir, x)),
        UnOp::Log if ir.kind(x) == Kind::F32 => Some(log::log(ir, x)),
        UnOp::Tanh if ir.kind(x) == Kind::F32 => Some(tanh::tanh(ir, x)),
        UnOp::Erf if ir.kind(x) == Kind::F32 => Some(erf::erf(ir, x)),
        UnOp::Sigmoid if ir.kind(x) == Kind::F32 => Some(exp::sigmoid(ir, x)),
        other if ir.libm => libm::unary(ir, other, x),
        other => double::unary(ir, other, x),
    }
}

pub(crate) fn pow<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    if ir.libm { libm::call(ir, "pow", &[a, b]) } else { double::pow(ir, a, b) }
}

/// The remainder of truncating division.
pub(crate) fn fmod<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    if ir.libm { libm::call(ir, "fmod", &[a, b]) } else { double::fmod(ir, a, b) }
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
