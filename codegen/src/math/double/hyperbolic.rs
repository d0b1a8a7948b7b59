//! Hyperbolic functions and their inverses, by exponentials and logarithms; near zero, where those
//! cancel, by the first terms of their series.

use inkwell::FloatPredicate::OLT;

use super::exp::exp;
use super::log::log;
use crate::ir::{Ir, Reg};
use crate::math::polynomial::polynomial;

/// Below this the series are as good as exact.
const SMALL: f64 = 0.25;

/// `x p(x^2)` where `|x|` is small, else `large` of `|x|` with the sign of `x`.
fn odd<'c>(
    ir: &Ir<'c>,
    x: Reg<'c>,
    series: &[f64],
    large: impl FnOnce(Reg<'c>) -> Reg<'c>,
) -> Reg<'c> {
    let size = ir.intrinsic("llvm.fabs", &[x]);
    let near = ir.mul(x, polynomial(ir, ir.mul(x, x), series));
    let far = ir.intrinsic("llvm.copysign", &[large(size), x]);
    ir.select(ir.fcmp(OLT, size, ir.same(x, SMALL)), near, far)
}

/// `(e^x - e^-x) / 2`; half of `x` at a time, so that nothing overflows early.
pub(super) fn sinh<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let series: Vec<f64> = factorials(1);
    odd(ir, x, &series, |x| {
        let root = exp(ir, ir.mul(x, ir.same(x, 0.5)));
        let half = ir.mul(root, ir.same(x, 0.5));
        ir.sub(ir.mul(half, root), ir.fdiv(ir.fdiv(ir.same(x, 0.5), root), root))
    })
}

pub(super) fn cosh<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let size = ir.intrinsic("llvm.fabs", &[x]);
    let root = exp(ir, ir.mul(size, ir.same(x, 0.5)));
    let half = ir.mul(root, ir.same(x, 0.5));
    ir.add(ir.mul(half, root), ir.fdiv(ir.fdiv(ir.same(x, 0.5), root), root))
}

/// `1 - 2 / (e^(2 x) + 1)`; near zero `sinh / cosh` of the series.
pub(super) fn tanh<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let (c, square) = (|v| ir.same(x, v), ir.mul(x, x));
    let size = ir.intrinsic("llvm.fabs", &[x]);
    let sinh = ir.mul(x, polynomial(ir, square, &factorials(1)));
    let near = ir.fdiv(sinh, polynomial(ir, square, &factorials(0)));
    let power = exp(ir, ir.add(size, size));
    let far = ir.sub(c(1.0), ir.fdiv(c(2.0), ir.add(power, c(1.0))));
    let far = ir.intrinsic("llvm.copysign", &[far, x]);
    ir.select(ir.fcmp(OLT, size, c(SMALL)), near, far)
}

/// `1 / (1 + e^-x)`, by the exponential of a negative number, which cannot overflow.
pub(super) fn sigmoid<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let one = ir.same(x, 1.0);
    let power = exp(ir, ir.neg(ir.intrinsic("llvm.fabs", &[x])));
    let negative = ir.fcmp(OLT, x, ir.same(x, 0.0));
    ir.fdiv(ir.select(negative, power, one), ir.add(one, power))
}

/// `ln(x + sqrt(x^2 + 1))`; of a large `x`, `ln x + ln 2`.
pub(super) fn asinh<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    odd(ir, x, &inverse_series(-1.0), |x| {
        let square = ir.fma(x, x, ir.same(x, 1.0));
        large_or(ir, x, ir.add(x, ir.intrinsic("llvm.sqrt", &[square])))
    })
}

/// `ln(x + sqrt((x - 1) (x + 1)))`
pub(super) fn acosh<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let one = ir.same(x, 1.0);
    let square = ir.mul(ir.sub(x, one), ir.add(x, one));
    // Near one the logarithm is of something near one: `ln(1 + t)` with `t` exact.
    let t = ir.add(ir.sub(x, one), ir.intrinsic("llvm.sqrt", &[square]));
    let near = log_of_one_more(ir, t);
    let result = ir.select(ir.fcmp(OLT, x, ir.same(x, 2.0)), near, large_or(ir, x, ir.add(t, one)));
    ir.select(ir.fcmp(OLT, x, one), ir.same(x, f64::NAN), result)
}

/// `ln((1 + x) / (1 - x)) / 2`
pub(super) fn atanh<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let series: Vec<f64> = (0..14).map(|k| 1.0 / f64::from(2 * k + 1)).collect();
    odd(ir, x, &series, |x| {
        let one = ir.same(x, 1.0);
        let ratio = ir.fdiv(ir.add(one, x), ir.sub(one, x));
        ir.mul(log(ir, ratio), ir.same(x, 0.5))
    })
}

/// The logarithm of `sum`, or of `2 x` where its square is too large to be added.
fn large_or<'c>(ir: &Ir<'c>, x: Reg<'c>, sum: Reg<'c>) -> Reg<'c> {
    const LARGE: f64 = 1e150;
    let double = ir.add(log(ir, x), ir.same(x, std::f64::consts::LN_2));
    ir.select(ir.fcmp(OLT, x, ir.same(x, LARGE)), log(ir, sum), double)
}

/// `ln(1 + t)`: the logarithm of the rounded sum, corrected for the rounding.
fn log_of_one_more<'c>(ir: &Ir<'c>, t: Reg<'c>) -> Reg<'c> {
    let one = ir.same(t, 1.0);
    let sum = ir.add(t, one);
    let lost = ir.sub(t, ir.sub(sum, one));
    ir.add(log(ir, sum), ir.fdiv(lost, sum))
}

/// `1 / n!` for `n = first, first + 2, ..`
fn factorials(first: u32) -> Vec<f64> {
    let factorial = |n: u32| (1..=n).map(f64::from).product::<f64>();
    (0..9).map(|k| 1.0 / factorial(first + 2 * k)).collect()
}

/// Coefficients of the inverse sine's series; with `sign` -1, of the hyperbolic one's.
fn inverse_series(sign: f64) -> Vec<f64> {
    let mut binomial = 1.0;
    (0..20)
        .map(|k| {
            let k = f64::from(k);
            if k > 0.0 {
                binomial *= sign * (2.0 * k - 1.0) / (2.0 * k);
            }
            binomial / (2.0 * k + 1.0)
        })
        .collect()
}
