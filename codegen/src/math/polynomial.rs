//! Polynomials.

use crate::emit::ir::{Ir, Reg};

/// `c[0] + c[1] * x + c[2] * x^2 + ...`, by Horner's rule in fused steps.
pub(super) fn polynomial<'c>(ir: &Ir<'c>, x: Reg<'c>, coefficients: &[f64]) -> Reg<'c> {
    let (&last, rest) = coefficients.split_last().expect("a polynomial has a coefficient");
    rest.iter().rev().fold(ir.same(x, last), |sum, &c| ir.fma(sum, x, ir.same(x, c)))
}
