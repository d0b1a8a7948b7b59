//! The hyperbolic tangent: `x p(x^2) / q(x^2)`.

use super::quotient::Quotient;
use crate::ir::{Ir, Reg};

/// Minimax over `0..9`, relative to the result.
const TANH: Quotient = Quotient {
    p: &[1.0, 0.133_810_19, 0.003_495_579_8, 2.060_894_6e-5, 1.335_447_8e-8],
    q: &[1.0, 0.467_143_36, 0.025_876_95, 3.285_621_4e-4, 7.776_482_1e-7],
    largest: 9.0,
};

pub(super) fn tanh<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    TANH.of(ir, x)
}
