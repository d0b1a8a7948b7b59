//! Odd functions between -1 and 1, as a quotient of polynomials.
//!
//! ```text
//! t = x within +-largest
//! f(x) = t p(t^2) / q(t^2), within +-1
//! ```
//!
//! There are no cases to choose between: it takes half of the instructions of a polynomial for
//! small numbers and an exponential for large ones, and is wrong by a few units more.

use super::exp::clamp;
use super::polynomial::polynomial;
use crate::ir::{Ir, Reg};

pub(super) struct Quotient {
    pub(super) p: &'static [f64],
    pub(super) q: &'static [f64],
    /// The quotient rounds to one or more here, and so the function is one from here on.
    pub(super) largest: f64,
}

impl Quotient {
    pub(super) fn of<'c>(&self, ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
        let t = clamp(ir, x, -self.largest, self.largest);
        let square = ir.mul(t, t);
        let above = ir.mul(polynomial(ir, square, self.p), t);
        clamp(ir, ir.fdiv(above, polynomial(ir, square, self.q)), -1.0, 1.0)
    }
}
