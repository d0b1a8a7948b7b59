//! The natural logarithm.
//!
//! ```text
//! x = 2^e m, m in [sqrt(1/2), sqrt(2));  f = m - 1;  s = f / (2 + f)
//! ln x = e ln 2 + f - (f^2 / 2 - s (f^2 / 2 + s^2 p(s^2)))
//! ```

use inkwell::FloatPredicate::{OEQ, OLT, UGE};
use inkwell::values::InstructionOpcode::SIToFP;

use super::exp::LN2;
use crate::ir::{Ir, Kind, Reg, lanes};
use crate::math::polynomial::polynomial;

const P: &[f64] = &[
    0.666_666_666_666_673_5,
    0.399_999_999_994_094_2,
    0.285_714_287_436_623_9,
    0.222_221_984_321_497_84,
    0.181_835_721_616_180_5,
    0.153_138_376_992_093_73,
    0.147_981_986_051_165_86,
];
/// A factor that lifts all subnormal numbers above them, and its exponent.
const LIFT: (f64, f64) = (1.801_439_850_948_198_4e16, 54.0);

pub(super) fn log<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let c = |v| ir.same(x, v);
    let subnormal = ir.fcmp(OLT, x, c(f64::MIN_POSITIVE));
    let lifted = ir.select(subnormal, ir.mul(x, c(LIFT.0)), x);
    let (exponent, f) = split(ir, lifted);
    let exponent = ir.select(subnormal, ir.sub(exponent, c(LIFT.1)), exponent);
    let s = ir.fdiv(f, ir.add(f, c(2.0)));
    let square = ir.mul(s, s);
    let rest = ir.mul(square, polynomial(ir, square, P));
    let half = ir.mul(ir.mul(f, f), c(0.5));
    let tail = ir.fma(exponent, c(LN2.1), ir.mul(s, ir.add(half, rest)));
    let low = ir.sub(ir.sub(half, tail), f);
    edges(ir, x, ir.sub(ir.mul(exponent, c(LN2.0)), low))
}

/// `(e, m - 1)`
fn split<'c>(ir: &Ir<'c>, x: Reg<'c>) -> (Reg<'c>, Reg<'c>) {
    let bits = ir.bitcast(x, Kind::Int(64));
    let int = |v: u64| ir.int(64, v as i64, lanes(bits));
    let root = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let from_root = ir.sub(bits, int(root));
    let exponent = ir.ashr(from_root, int(52));
    let mantissa = ir.add(ir.and(from_root, int((1 << 52) - 1)), int(root));
    let m = ir.bitcast(mantissa, Kind::F64);
    (ir.cast(SIToFP, exponent, Kind::F64), ir.sub(m, ir.same(m, 1.0)))
}

/// Infinity and NaN as they are, minus infinity of zero, NaN of negative numbers.
fn edges<'c>(ir: &Ir<'c>, x: Reg<'c>, result: Reg<'c>) -> Reg<'c> {
    let zero = ir.same(x, 0.0);
    let not_finite = ir.fcmp(UGE, x, ir.same(x, f64::INFINITY));
    let result = ir.select(not_finite, x, result);
    let result = ir.select(ir.fcmp(OEQ, x, zero), ir.same(x, f64::NEG_INFINITY), result);
    ir.select(ir.fcmp(OLT, x, zero), ir.same(x, f64::NAN), result)
}
