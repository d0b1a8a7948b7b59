//! The exponential function, and the logistic function made of it.
//!
//! ```text
//! n = round(x / ln 2);  r = x - n ln 2, in +-ln(2)/2
//! e^x = 2^n (1 + r + r^2 p(r))
//! ```

use super::polynomial::polynomial;
use crate::ir::{Ir, Kind, Reg};

/// Minimax coefficients of `(e^r - 1 - r) / r^2` over `+-ln(2)/2`: the error in `e^r` is a
/// twentieth of what rounding does.
const P: &[f64] = &[0.499_999_94, 0.166_665_21, 0.041_668_389, 0.008_368_745_5, 0.001_381_453_9];
/// Beyond these the result is infinite, and zero.
const RANGE: (f64, f64) = (-104.0, 89.0);
/// `ln 2` in two parts; products of the first with small integers are exact.
const LN2: (f64, f64) = (0.693_359_375, -2.121_944_400_546_906e-4);
/// Adding this to a small number leaves its nearest integer and `2 * 127`, twice the bias of
/// exponents, in the low bits.
const ROUND: f64 = 12_582_912.0 + 254.0;

pub(super) fn exp<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let x = clamp(ir, x, RANGE.0, RANGE.1);
    let shifted = ir.fma(x, ir.same(x, std::f64::consts::LOG2_E), ir.same(x, ROUND));
    let n = ir.sub(shifted, ir.same(x, ROUND));
    let r = ir.fma(n, ir.same(x, -LN2.0), x);
    let r = ir.fma(n, ir.same(x, -LN2.1), r);
    let above_one = ir.fma(polynomial(ir, r, P), ir.mul(r, r), r);
    scale(ir, above_one, shifted)
}

/// `1 / (1 + e^-x)`, by the exponential of a negative number, which cannot overflow.
pub(super) fn sigmoid<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let one = ir.same(x, 1.0);
    let power = exp(ir, ir.neg(ir.intrinsic("llvm.fabs", &[x])));
    let negative = ir.fcmp(inkwell::FloatPredicate::OLT, x, ir.same(x, 0.0));
    ir.fdiv(ir.select(negative, power, one), ir.add(one, power))
}

/// `1 + above_one` times `2^n`, where `shifted` is `n + ROUND`: in two factors, since one could not
/// be represented where the result is a subnormal number or about to overflow. The exponents of the
/// two, bias included, are the halves of what `shifted` has in its low bits; what lies above them
/// is shifted away.
fn scale<'c>(ir: &Ir<'c>, above_one: Reg<'c>, shifted: Reg<'c>) -> Reg<'c> {
    let bits = ir.bitcast(shifted, Kind::Int(32));
    let half = ir.ashr(bits, ir.same(bits, 1.0));
    let power = |n| ir.bitcast(ir.shl(n, ir.same(n, 23.0)), Kind::F32);
    let [first, second] = [half, ir.sub(bits, half)].map(power);
    // Exact but for one rounding: a product with a power of two is.
    ir.mul(ir.fma(above_one, first, first), second)
}

/// NaN stays NaN.
pub(super) fn clamp<'c>(ir: &Ir<'c>, x: Reg<'c>, low: f64, high: f64) -> Reg<'c> {
    use inkwell::FloatPredicate::{OGT, OLT};
    let (low, high) = (ir.same(x, low), ir.same(x, high));
    let x = ir.select(ir.fcmp(OGT, x, high), high, x);
    ir.select(ir.fcmp(OLT, x, low), low, x)
}
