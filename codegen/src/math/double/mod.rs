//! Mathematical functions of `f64` as IR, for machines without a C library.
//!
//! Straight-line code over scalars and vectors, after the algorithms of FreeBSD's `msun`. Functions
//! of an `f32` that have no code of their own are computed in `f64` and rounded once.
//!
//! | function | largest error seen, f64 |
//! | --- | --- |
//! | exp, log, atan, erf | 1 unit in the last place |
//! | sin, cos, tan | 2 units below 2^27; beyond, precision is lost with the size of the argument |
//! | asin, acos, sinh, cosh, tanh, asinh, acosh, atanh, sigmoid | 1e-14 relative |
//! | pow | 2e-13 relative |
//!
//! All are within one unit for an `f32` (sin, cos, tan below 2^27).

mod atan;
mod erf;
mod exp;
mod hyperbolic;
mod log;
mod pow;
mod trigonometric;

pub(super) use pow::{fmod, pow};

use ansc_graph::UnOp;
use inkwell::values::InstructionOpcode::{FPExt, FPTrunc};

use crate::ir::{Ir, Kind, Reg};

/// A transcendental function of an `f32` or `f64`.
pub(super) fn unary<'c>(ir: &Ir<'c>, op: UnOp, x: Reg<'c>) -> Option<Reg<'c>> {
    let f = match op {
        UnOp::Exp => exp::exp,
        UnOp::Log => log::log,
        UnOp::Erf => erf::erf,
        UnOp::Sin => trigonometric::sin,
        UnOp::Cos => trigonometric::cos,
        UnOp::Tan => trigonometric::tan,
        UnOp::Asin => atan::asin,
        UnOp::Acos => atan::acos,
        UnOp::Atan => atan::atan,
        UnOp::Sinh => hyperbolic::sinh,
        UnOp::Cosh => hyperbolic::cosh,
        UnOp::Tanh => hyperbolic::tanh,
        UnOp::Asinh => hyperbolic::asinh,
        UnOp::Acosh => hyperbolic::acosh,
        UnOp::Atanh => hyperbolic::atanh,
        UnOp::Sigmoid => hyperbolic::sigmoid,
        _ => return None,
    };
    Some(widened(ir, &[x], |args| f(ir, args[0])))
}

/// Runs `f` on `f64`; the result has the type of the arguments.
fn widened<'c>(ir: &Ir<'c>, args: &[Reg<'c>], f: impl FnOnce(&[Reg<'c>]) -> Reg<'c>) -> Reg<'c> {
    if ir.kind(args[0]) == Kind::F64 {
        return f(args);
    }
    let wide: Vec<Reg<'c>> = args.iter().map(|&x| ir.cast(FPExt, x, Kind::F64)).collect();
    ir.cast(FPTrunc, f(&wide), Kind::F32)
}
