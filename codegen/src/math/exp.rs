//! The exponential function, and the logistic function made of it.
//!
//! ```text
//! n = round(x / ln 2);  r = x - n ln 2, in +-ln(2)/2
//! e^x = 2^n (1 + r + r^2 p(r))
//! ```

use super::polynomial::polynomial;
use crate::emit::ir::{Ir, Kind, Reg};

/// Minimax coefficients of `(e^r - 1 - r) / r^2` over `+-ln(2)/2`.
const P: &[f64] =
    &[0.5, 0.166_666_67, 0.041_666_266, 0.008_333_264, 0.001_394_639_4, 0.000_199_187_93];
/// Beyond these the result is infinite, and zero.
const RANGE: (f64, f64) = (-104.0, 89.0);
/// `ln 2` in two parts; products of the first with small integers are exact.
const LN2: (f64, f64) = (0.693_359_375, -2.121_944_400_546_906e-4);
/// Adding this to a small number leaves its nearest integer in the low bits.
const ROUND: f64 = 12_582_912.0;

pub(super) fn exp<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let x = clamp(ir, x, RANGE.0, RANGE.1);
    let shifted = ir.fma(x, ir.same(x, std::f64::consts::LOG2_E), ir.same(x, ROUND));
    let n = ir.sub(shifted, ir.same(x, ROUND));
    let r = ir.fma(n, ir.same(x, -LN2.0), x);
    let r = ir.fma(n, ir.same(x, -LN2.1), r);
    let square = ir.mul(r, r);
    let above_one = ir.fma(polynomial(ir, r, P), square, r);
    let mantissa = ir.add(above_one, ir.same(x, 1.0));
    scale(ir, mantissa, shifted)
}

/// `1 / (1 + e^-x)`, by the exponential of a negative number, which cannot overflow.
pub(super) fn sigmoid<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let one = ir.same(x, 1.0);
    let power = exp(ir, ir.neg(ir.intrinsic("llvm.fabs", &[x])));
    let negative = ir.fcmp(inkwell::FloatPredicate::OLT, x, ir.same(x, 0.0));
    ir.fdiv(ir.select(negative, power, one), ir.add(one, power))
}

/// Times `2^n`, where `shifted` is `n + ROUND`: in two factors, since one could not be represented
/// where the result is a subnormal number or about to overflow.
fn scale<'c>(ir: &Ir<'c>, mantissa: Reg<'c>, shifted: Reg<'c>) -> Reg<'c> {
    let int = Kind::Int(32);
    let bits = ir.bitcast(shifted, int);
    let n = ir.sub(bits, ir.same(bits, f64::from((ROUND as f32).to_bits())));
    let half = ir.ashr(n, ir.same(n, 1.0));
    let power = |n| {
        let biased = ir.add(n, ir.same(n, 127.0));
        ir.bitcast(ir.shl(biased, ir.same(biased, 23.0)), Kind::F32)
    };
    ir.mul(ir.mul(mantissa, power(half)), power(ir.sub(n, half)))
}

/// NaN stays NaN.
pub(super) fn clamp<'c>(ir: &Ir<'c>, x: Reg<'c>, low: f64, high: f64) -> Reg<'c> {
    use inkwell::FloatPredicate::{OGT, OLT};
    let (low, high) = (ir.same(x, low), ir.same(x, high));
    let x = ir.select(ir.fcmp(OGT, x, high), high, x);
    ir.select(ir.fcmp(OLT, x, low), low, x)
}
