//! The inverse tangent, and the inverse sine and cosine by it.
//!
//! ```text
//! t = min(|x|, 1 / |x|);  u = t, or (t - 1) / (t + 1) above 7/16, which is pi/4 less
//! ```

use inkwell::FloatPredicate::{OGT, OLT};

use crate::ir::{Ir, Reg};
use crate::math::polynomial::polynomial;

const P: &[f64] = &[
    0.333_333_333_333_329_3,
    -0.199_999_999_998_764_83,
    0.142_857_142_725_034_66,
    -0.111_111_104_054_623_56,
    0.090_908_871_334_365_07,
    -0.076_918_762_050_448_3,
    0.066_610_731_373_875_31,
    -0.058_335_701_337_905_735,
    0.049_768_779_946_159_324,
    -0.036_531_572_744_216_916,
    0.016_285_820_115_365_782,
];

pub(super) fn atan<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};
    let c = |v| ir.same(x, v);
    let size = ir.intrinsic("llvm.fabs", &[x]);
    let above_one = ir.fcmp(OGT, size, c(1.0));
    let t = ir.select(above_one, ir.fdiv(c(1.0), size), size);
    let large = ir.fcmp(OGT, t, c(0.4375));
    let turned = ir.fdiv(ir.sub(t, c(1.0)), ir.add(t, c(1.0)));
    let u = ir.select(large, turned, t);
    let square = ir.mul(u, u);
    let y = ir.sub(u, ir.mul(u, ir.mul(square, polynomial(ir, square, P))));
    let y = ir.select(large, ir.add(y, c(FRAC_PI_4)), y);
    let y = ir.select(above_one, ir.sub(c(FRAC_PI_2), y), y);
    ir.intrinsic("llvm.copysign", &[y, x])
}

/// `atan(x / sqrt((1 - x) (1 + x)))`
pub(super) fn asin<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let one = ir.same(x, 1.0);
    let rest = ir.intrinsic("llvm.sqrt", &[ir.mul(ir.sub(one, x), ir.add(one, x))]);
    atan(ir, ir.fdiv(x, rest))
}

/// `2 atan(sqrt((1 - x) / (1 + x)))`
pub(super) fn acos<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let one = ir.same(x, 1.0);
    let ratio = ir.fdiv(ir.sub(one, x), ir.add(one, x));
    let invalid = ir.fcmp(OLT, x, ir.neg(one));
    let half = atan(ir, ir.intrinsic("llvm.sqrt", &[ratio]));
    ir.select(invalid, ir.same(x, f64::NAN), ir.add(half, half))
}
