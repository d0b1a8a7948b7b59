//! The exponential function.
//!
//! ```text
//! n = round(x / ln 2);  r = x - n ln 2;  e^x = 2^n (1 + 2 r / (2 - c) ..)
//! ```

use crate::ir::{Ir, Kind, Reg};
use crate::math::exp::clamp;
use crate::math::polynomial::polynomial;

const P: &[f64] = &[
    0.166_666_666_666_666_02,
    -0.002_777_777_777_701_559_3,
    6.613_756_321_437_934e-5,
    -1.653_390_220_546_525_2e-6,
    4.138_136_797_057_238_5e-8,
];
/// `ln 2` in two parts; products of the first with small integers are exact.
pub(super) const LN2: (f64, f64) = (0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10);
/// Beyond these the result is zero, and infinite.
const RANGE: (f64, f64) = (-746.0, 710.0);
/// Adding this to a small number leaves its nearest integer in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;

pub(super) fn exp<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let c = |v| ir.same(x, v);
    let x = clamp(ir, x, RANGE.0, RANGE.1);
    let shifted = ir.fma(x, c(std::f64::consts::LOG2_E), c(ROUND));
    let n = ir.sub(shifted, c(ROUND));
    let high = ir.fma(n, c(-LN2.0), x);
    let low = ir.mul(n, c(LN2.1));
    let r = ir.sub(high, low);
    let square = ir.mul(r, r);
    let k = ir.sub(r, ir.mul(square, polynomial(ir, square, P)));
    let quotient = ir.fdiv(ir.mul(r, k), ir.sub(c(2.0), k));
    let mantissa = ir.sub(c(1.0), ir.sub(ir.sub(low, quotient), high));
    scale(ir, mantissa, shifted)
}

/// Times `2^n`, in two factors: one could not be represented near the ends of the range.
fn scale<'c>(ir: &Ir<'c>, mantissa: Reg<'c>, shifted: Reg<'c>) -> Reg<'c> {
    let bits = ir.bitcast(shifted, Kind::Int(64));
    let lanes = crate::ir::lanes(bits);
    let int = |v: i64| ir.int(64, v, lanes);
    let n = ir.sub(bits, int(ROUND.to_bits() as i64));
    let half = ir.ashr(n, int(1));
    let power = |n| ir.bitcast(ir.shl(ir.add(n, int(1023)), int(52)), Kind::F64);
    ir.mul(ir.mul(mantissa, power(half)), power(ir.sub(n, half)))
}
