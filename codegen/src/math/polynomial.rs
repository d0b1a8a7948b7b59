//! Polynomials.

use crate::ir::{Ir, Reg};

/// `c[0] + c[1] * x + c[2] * x^2 + ...` in fused steps: neighbours in pairs, and the pairs by
/// Horner's rule in `x^2`. That halves the chain of results that wait for one another, at the price
/// of one product; a processor does not look ahead far enough to fill the gaps of the longer chain.
pub(super) fn polynomial<'c>(ir: &Ir<'c>, x: Reg<'c>, coefficients: &[f64]) -> Reg<'c> {
    let pairs: Vec<_> = coefficients.chunks(2).map(|pair| linear(ir, pair, x)).collect();
    let square = ir.mul(x, x);
    let sum = pairs.into_iter().rev().reduce(|sum, pair| ir.fma(sum, square, pair));
    sum.expect("a polynomial has a coefficient")
}

/// `c[0] + c[1] * x`, or `c[0]` alone.
fn linear<'c>(ir: &Ir<'c>, c: &[f64], x: Reg<'c>) -> Reg<'c> {
    let first = ir.same(x, c[0]);
    c.get(1).map_or(first, |&second| ir.fma(ir.same(x, second), x, first))
}
