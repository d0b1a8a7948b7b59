//! The hyperbolic tangent.
//!
//! ```text
//! |x| < 0.625:  x + x^3 p(x^2)
//! else:         +-(1 - 2 / (e^(2 |x|) + 1))
//! ```

use inkwell::FloatPredicate::OLT;

use super::exp::exp;
use super::polynomial::polynomial;
use crate::emit::ir::{Ir, Reg};

/// Minimax coefficients of `(tanh(x) / x - 1) / x^2` in `x^2`.
const P: &[f64] = &[-0.333_332_84, 0.133_314_91, -0.053_743_497, 0.020_650_586, -0.005_717_044_7];
const SMALL: f64 = 0.625;

pub(super) fn tanh<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let square = ir.mul(x, x);
    let small = ir.fma(ir.mul(polynomial(ir, square, P), square), x, x);
    let size = ir.intrinsic("llvm.fabs", &[x]);
    let power = exp(ir, ir.add(size, size));
    let one = ir.same(x, 1.0);
    let quotient = ir.fdiv(ir.same(x, 2.0), ir.add(power, one));
    let large = ir.intrinsic("llvm.copysign", &[ir.sub(one, quotient), x]);
    ir.select(ir.fcmp(OLT, size, ir.same(x, SMALL)), small, large)
}
