//! The inverse tangent, and the inverse sine and cosine by it.
//!
//! ```text
//! t = min(|x|, 1 / |x|);  u = t, or (t - 1) / (t + 1) above 7/16, which is pi/4 less
//! ```

use inkwell::FloatPredicate::{OGT, OLT};

use crate::emit::ir::{Ir, Reg};
use crate::math::polynomial::polynomial;

const P: &[f64] = &[
    3.333_333_333_333_293_180_27e-1,
    -1.999_999_999_987_648_324_76e-1,
    1.428_571_427_250_346_637_11e-1,
    -1.111_111_040_546_235_578_8e-1,
    9.090_887_133_436_506_561_96e-2,
    -7.691_876_205_044_829_994_95e-2,
    6.661_073_137_387_531_206_69e-2,
    -5.833_570_133_790_573_486_45e-2,
    4.976_877_994_615_932_360_17e-2,
    -3.653_157_274_421_691_552_7e-2,
    1.628_582_011_536_578_236_23e-2,
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
