//! Fractions of small whole numbers, in lowest terms.

use std::ops::{Add, Mul, Neg, Sub};

use ansc_graph::arith::gcd;

/// The denominator is positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rational {
    numerator: i64,
    denominator: i64,
}

impl Rational {
    pub(super) const ZERO: Rational = Rational { numerator: 0, denominator: 1 };
    pub(super) const ONE: Rational = Rational { numerator: 1, denominator: 1 };

    pub(super) fn new(numerator: i64, denominator: i64) -> Rational {
        let divisor = gcd(numerator.abs(), denominator.abs()).max(1) * denominator.signum();
        Rational { numerator: numerator / divisor, denominator: denominator / divisor }
    }

    pub(super) fn is_zero(self) -> bool {
        self.numerator == 0
    }

    pub(super) fn is_negative(self) -> bool {
        self.numerator < 0
    }

    pub(super) fn abs(self) -> Rational {
        Rational { numerator: self.numerator.abs(), ..self }
    }

    pub(super) fn inverse(self) -> Rational {
        Rational::new(self.denominator, self.numerator)
    }

    pub(super) fn pow(self, exponent: usize) -> Rational {
        (0..exponent).fold(Rational::ONE, |product, _| product * self)
    }

    /// The nearest number of 64 bits.
    pub(super) fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

impl Add for Rational {
    type Output = Rational;

    fn add(self, other: Rational) -> Rational {
        Rational::new(
            self.numerator * other.denominator + other.numerator * self.denominator,
            self.denominator * other.denominator,
        )
    }
}

impl Neg for Rational {
    type Output = Rational;

    fn neg(self) -> Rational {
        Rational { numerator: -self.numerator, ..self }
    }
}

impl Sub for Rational {
    type Output = Rational;

    fn sub(self, other: Rational) -> Rational {
        self + -other
    }
}

impl Mul for Rational {
    type Output = Rational;

    fn mul(self, other: Rational) -> Rational {
        Rational::new(self.numerator * other.numerator, self.denominator * other.denominator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_in_lowest_terms() {
        let half = Rational::new(-3, -6);
        assert_eq!(half, Rational::new(1, 2));
        assert_eq!(half + Rational::new(1, 3), Rational::new(5, 6));
        assert_eq!(half - half, Rational::ZERO);
        assert_eq!(Rational::new(-2, 3).inverse(), Rational::new(-3, 2));
        assert_eq!(Rational::new(-2, 3).pow(3), Rational::new(-8, 27));
        assert_eq!(Rational::new(1, 3).to_f64(), 1.0 / 3.0);
    }
}
