//! Powers, and the remainder of truncating division.
//!
//! ```text
//! a^b = +-e^(b ln |a|), negative if `a` is and `b` is an odd number
//! a^5.5 = a^4 a sqrt(a)
//! ```
//! The second form gives a result that is a whole number without an error: `5 ^ 3` is 125 to the
//! last bit, also where it becomes an integer, which drops digits behind the point.

use inkwell::FloatPredicate::{OEQ, OGE, OLT, ONE};

use super::exp::exp;
use super::log::log;
use super::widened;
use crate::ir::{Ir, Reg};

pub(in crate::math) fn pow<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    widened(ir, &[a, b], |args| power(ir, args[0], args[1]))
}

fn power<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    let c = |v| ir.same(a, v);
    let size = ir.intrinsic("llvm.fabs", &[a]);
    let result = exp(ir, ir.mul(b, log(ir, size)));
    let floor = |x| ir.intrinsic("llvm.floor", &[x]);
    let half = ir.mul(b, c(0.5));
    let is_whole = ir.fcmp(OEQ, floor(b), b);
    let is_odd = ir.and(is_whole, ir.fcmp(ONE, floor(half), half));
    let result = ir.select(is_odd, ir.intrinsic("llvm.copysign", &[result, a]), result);
    let result = of_few_factors(ir, [a, b], result);
    let undefined = ir.and(ir.fcmp(OLT, a, c(0.0)), ir.not(is_whole));
    let result = ir.select(undefined, c(f64::NAN), result);
    // The power is one whatever the other operand is, even NaN.
    let is_infinite = ir.fcmp(OEQ, ir.intrinsic("llvm.fabs", &[b]), c(f64::INFINITY));
    let minus_one = ir.and(ir.fcmp(OEQ, a, c(-1.0)), is_infinite);
    let is_one = ir.or(ir.fcmp(OEQ, b, c(0.0)), ir.fcmp(OEQ, a, c(1.0)));
    ir.select(ir.or(is_one, minus_one), c(1.0), result)
}

/// Bits of an exponent whose powers are products: with more of them, powers of whole numbers are
/// too large to be exact.
const BITS: u32 = 6;

/// The product of `a`s and a square root, if `b` is a small enough multiple of a half; otherwise
/// `other`.
fn of_few_factors<'c>(ir: &Ir<'c>, [a, b]: [Reg<'c>; 2], other: Reg<'c>) -> Reg<'c> {
    let c = |v| ir.same(a, v);
    let floor = |x| ir.intrinsic("llvm.floor", &[x]);
    let size = ir.intrinsic("llvm.fabs", &[b]);
    let whole = floor(size);
    let rest = ir.sub(size, whole);
    let half = ir.fcmp(OEQ, rest, c(0.5));
    let first = ir.select(half, ir.intrinsic("llvm.sqrt", &[a]), c(1.0));
    let (mut product, mut square, mut left) = (first, a, whole);
    for bit in 0..BITS {
        let next = floor(ir.mul(left, c(0.5)));
        let is_odd = ir.fcmp(ONE, left, ir.add(next, next));
        product = ir.select(is_odd, ir.mul(product, square), product);
        left = next;
        if bit + 1 < BITS {
            square = ir.mul(square, square);
        }
    }
    let product = ir.select(ir.fcmp(OLT, b, c(0.0)), ir.fdiv(c(1.0), product), product);
    let no_rest = ir.or(half, ir.fcmp(OEQ, rest, c(0.0)));
    let is_small = ir.fcmp(OLT, size, c(f64::from(1u32 << BITS)));
    ir.select(ir.and(no_rest, is_small), product, other)
}

/// Quotients up to this are subtracted exactly at once: together with an `f32` it has 53 bits.
const STEP: f64 = 536_870_912.0;
/// Steps that take a quotient of `f32` down to its end.
const STEPS: i32 = 10;

/// Exact for an `f32`; for an `f64` as long as the quotient is below 2^53.
pub(in crate::math) fn fmod<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    widened(ir, &[a, b], |args| remainder(ir, args[0], args[1]))
}

fn remainder<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    let c = |v| ir.same(a, v);
    let divisor = ir.intrinsic("llvm.fabs", &[b]);
    let size = ir.intrinsic("llvm.fabs", &[a]);
    let rest = (0..STEPS)
        .rev()
        .fold(size, |rest, step| subtract(ir, rest, ir.mul(divisor, c(STEP.powi(step)))));
    // By infinity nothing is divided: the rest is all.
    let is_infinite = ir.fcmp(OEQ, divisor, c(f64::INFINITY));
    let rest = ir.select(is_infinite, size, rest);
    ir.intrinsic("llvm.copysign", &[rest, a])
}

/// `a - floor(a / b) b` of positive numbers; the quotient may have been rounded up.
fn subtract<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    let zero = ir.same(a, 0.0);
    let quotient = ir.intrinsic("llvm.floor", &[ir.fdiv(a, b)]);
    let rest = ir.intrinsic("llvm.fma", &[ir.neg(quotient), b, a]);
    let rest = ir.select(ir.fcmp(OLT, rest, zero), ir.add(rest, b), rest);
    let rest = ir.select(ir.fcmp(OGE, rest, b), ir.sub(rest, b), rest);
    // Above all numbers there is nothing to subtract.
    ir.select(ir.fcmp(OLT, a, b), a, rest)
}
