//! Sine, cosine and tangent.
//!
//! ```text
//! n = round(2 x / pi);  r = x - n pi/2, in +-pi/4;  sin x is +-sin r or +-cos r by n mod 4
//! ```

use inkwell::IntPredicate::NE;

use crate::ir::{Ir, Kind, Reg, lanes};
use crate::math::polynomial::polynomial;

const SIN: &[f64] = &[
    -0.166_666_666_666_666_32,
    0.008_333_333_333_322_49,
    -0.000_198_412_698_298_579_5,
    2.755_731_370_707_006_8e-6,
    -2.505_076_025_340_686_3e-8,
    1.589_690_995_211_55e-10,
];
const COS: &[f64] = &[
    0.041_666_666_666_666_6,
    -0.001_388_888_888_887_411,
    2.480_158_728_947_673e-5,
    -2.755_731_435_139_066_3e-7,
    2.087_572_321_298_175e-9,
    -1.135_964_755_778_819_5e-11,
];
/// `pi / 2` in three parts, the first two of 53 bits.
const HALF_PI: [f64; 3] =
    [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_183_3e-33];
/// Adding this to a small number leaves its nearest integer in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// Sine and cosine of `r`, and `n`.
struct Reduced<'c> {
    sin: Reg<'c>,
    cos: Reg<'c>,
    n: Reg<'c>,
}

pub(super) fn sin<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    quadrant(ir, &reduce(ir, x), 0)
}

pub(super) fn cos<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    quadrant(ir, &reduce(ir, x), 1)
}

pub(super) fn tan<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let reduced = reduce(ir, x);
    ir.fdiv(quadrant(ir, &reduced, 0), quadrant(ir, &reduced, 1))
}

fn reduce<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reduced<'c> {
    let c = |v| ir.same(x, v);
    let shifted = ir.intrinsic("llvm.fma", &[x, c(std::f64::consts::FRAC_2_PI), c(ROUND)]);
    let n = ir.sub(shifted, c(ROUND));
    // Only a fused step subtracts without losing what the next part is to correct.
    let r = HALF_PI.iter().fold(x, |r, &part| ir.intrinsic("llvm.fma", &[n, c(-part), r]));
    let square = ir.mul(r, r);
    let sin = ir.fma(ir.mul(r, square), polynomial(ir, square, SIN), r);
    let fourth = ir.mul(square, square);
    let one_less = ir.fma(square, c(-0.5), c(1.0));
    let cos = ir.fma(fourth, polynomial(ir, square, COS), one_less);
    Reduced { sin, cos, n: ir.bitcast(shifted, Kind::Int(64)) }
}

/// The sine `more` quarters of a turn further.
fn quadrant<'c>(ir: &Ir<'c>, at: &Reduced<'c>, more: i64) -> Reg<'c> {
    let int = |v: i64| ir.int(64, v, lanes(at.n));
    let quarter = ir.add(at.n, int(more));
    let is_set = |bit| ir.icmp(NE, ir.and(quarter, int(bit)), int(0));
    let value = ir.select(is_set(1), at.cos, at.sin);
    ir.select(is_set(2), ir.neg(value), value)
}
