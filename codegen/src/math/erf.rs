//! The error function: `x p(x^2) / q(x^2)`.

use super::quotient::Quotient;
use crate::ir::{Ir, Reg};

/// Minimax over `0..3.92`, relative to the result.
#[expect(clippy::approx_constant, reason = "the fit is near 2 / sqrt(pi), not equal to it")]
const ERF: Quotient = Quotient {
    p: &[
        1.128_379_1,
        0.199_925_1,
        0.050_573_397,
        0.003_701_627_3,
        1.418_504_1e-4,
        -1.957_824_7e-6,
        1.992_405_5e-8,
    ],
    q: &[1.0, 0.510_510_6, 0.114_998_64, 0.014_353_246, 9.560_417_4e-4],
    largest: 3.92,
};

pub(super) fn erf<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    ERF.of(ir, x)
}
