//! The error function.
//!
//! ```text
//! |x| < 1:  x p(x^2)
//! else:     +-(1 - e^q(|x|))        q approximates ln(erfc)
//! ```

use inkwell::FloatPredicate::OLT;

use super::exp::{clamp, exp};
use super::polynomial::polynomial;
use crate::emit::ir::{Ir, Reg};

/// Minimax coefficients of `erf(x) / x` in `x^2` over `0..1`.
#[expect(clippy::approx_constant, reason = "the fit is near 2 / sqrt(pi), not equal to it")]
const P: &[f64] = &[
    1.128_379_1,
    -0.376_126_26,
    0.112_835_854,
    -0.026_853_81,
    0.005_188_327,
    -0.000_801_019_1,
    7.853_854e-5,
];
/// Minimax coefficients of `ln(erfc(x))` over `1..4`, weighted by what they do to the result.
const Q: &[f64] = &[
    1.884_664_8e-4,
    -1.129_580_3,
    -0.633_216_4,
    -0.108_422_086,
    0.025_210_334,
    -0.004_205_283,
    4.414_722_7e-4,
    -2.169_758_6e-5,
];
/// From here on the result is one.
const LARGEST: f64 = 4.0;

pub(super) fn erf<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let small = ir.mul(polynomial(ir, ir.mul(x, x), P), x);
    let size = ir.intrinsic("llvm.fabs", &[x]);
    let bounded = clamp(ir, size, 0.0, LARGEST);
    let rest = ir.sub(ir.same(x, 1.0), exp(ir, polynomial(ir, bounded, Q)));
    let large = ir.intrinsic("llvm.copysign", &[rest, x]);
    ir.select(ir.fcmp(OLT, size, ir.same(x, 1.0)), small, large)
}
