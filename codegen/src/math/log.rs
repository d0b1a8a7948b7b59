//! The natural logarithm.
//!
//! ```text
//! x = 2^e m, m in [sqrt(1/2), sqrt(2));  f = m - 1
//! ln x = e ln 2 + f - f^2/2 + f^3 p(f)
//! ```

use inkwell::FloatPredicate::{OEQ, OLT, UGE};

use super::polynomial::polynomial;
use crate::ir::{Ir, Kind, Reg};

/// Minimax coefficients of `(ln(1 + f) - f + f^2/2) / f^3` over `sqrt(1/2) - 1 .. sqrt(2) - 1`.
const P: &[f64] = &[
    0.333_333_13,
    -0.250_000_1,
    0.200_021_19,
    -0.166_679_96,
    0.142_195_5,
    -0.124_055_92,
    0.118_881_78,
    -0.116_756_39,
    0.067_465_916,
];
const LN2: (f64, f64) = (0.693_359_375, -2.121_944_400_546_906e-4);
/// The smallest number that is not subnormal, and a factor that lifts all subnormal ones above it.
const SMALLEST: f64 = f32::MIN_POSITIVE as f64;
const LIFT: (f64, f64) = (8_388_608.0, 23.0);

pub(super) fn log<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let subnormal = ir.fcmp(OLT, x, ir.same(x, SMALLEST));
    let lifted = ir.select(subnormal, ir.mul(x, ir.same(x, LIFT.0)), x);
    let (exponent, f) = split(ir, lifted);
    let lowered = ir.sub(exponent, ir.same(x, LIFT.1));
    let exponent = ir.select(subnormal, lowered, exponent);
    let square = ir.mul(f, f);
    let tail = ir.mul(ir.mul(polynomial(ir, f, P), f), square);
    let tail = ir.fma(exponent, ir.same(x, LN2.1), tail);
    let tail = ir.fma(square, ir.same(x, -0.5), tail);
    let result = ir.fma(exponent, ir.same(x, LN2.0), ir.add(f, tail));
    edges(ir, x, result)
}

/// `(e, m - 1)` as floats.
fn split<'c>(ir: &Ir<'c>, x: Reg<'c>) -> (Reg<'c>, Reg<'c>) {
    use inkwell::values::InstructionOpcode::SIToFP;
    let bits = ir.bitcast(x, Kind::Int(32));
    let int = |value: u32| ir.same(bits, f64::from(value));
    // Counted from sqrt(1/2), the exponent's field is that of the wanted interval.
    let root = std::f32::consts::FRAC_1_SQRT_2.to_bits();
    let from_root = ir.sub(bits, int(root));
    let exponent = ir.ashr(from_root, int(23));
    let mantissa = ir.add(ir.and(from_root, int(0x007f_ffff)), int(root));
    let m = ir.bitcast(mantissa, Kind::F32);
    (ir.cast(SIToFP, exponent, Kind::F32), ir.sub(m, ir.same(m, 1.0)))
}

/// Infinity and NaN as they are, minus infinity of zero, NaN of negative numbers.
fn edges<'c>(ir: &Ir<'c>, x: Reg<'c>, result: Reg<'c>) -> Reg<'c> {
    let zero = ir.same(x, 0.0);
    let not_finite = ir.fcmp(UGE, x, ir.same(x, f64::INFINITY));
    let result = ir.select(not_finite, x, result);
    let result = ir.select(ir.fcmp(OEQ, x, zero), ir.same(x, f64::NEG_INFINITY), result);
    ir.select(ir.fcmp(OLT, x, zero), ir.same(x, f64::NAN), result)
}
